//! Tests with many concurrent tasks on one session. The outcomes that the tasks get must be
//! consistent with each other.
//!
//! If the store can be shared, half of the tasks use a second store, as another process would.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::changes::Appended;
use steadfast_session::command::{
    Answer, Answered, Append, AppendOutcome, Begin, BeginMode, Begun, Collect, Collected, FailNode, Finish,
    Finished, GetState, NodeFailed, OpenServerRequest, PutState, ServerRequestOpened, Start, Started,
    StateGot, StatePut, Successor, Target,
};
use steadfast_session::{
    CallNo, Class, Facts, Holdings, NodeId, Principal, Read, Request, Rules, ServerRequestNo, SessionId,
    Slice, Step, StreamNo, Time,
};
use steadfast_wire::{RequestId, Revision};
use tokio::task::JoinSet;

use super::signal_recorder::{RecordedSignal, SignalRecorder};
use super::{StoreFixture, block_on};
use crate::store::{Opened, Store, StoreExt};

const TASKS: u64 = 16;
const ROUNDS: u64 = 20;
const NODE: NodeId = NodeId(7);
const OTHER: NodeId = NodeId(8);
const NOW: Time = Time(1_000_000);
const SESSION: SessionId = SessionId::from_random([9; SessionId::BYTES]);

/// One session, and the stores through which the tasks use it.
struct SharedSession<P: StoreFixture> {
    stores: Vec<Arc<P::Store>>,
    signal_recorder: Arc<SignalRecorder>,
    _place: P,
}

impl<P: StoreFixture> SharedSession<P> {
    async fn new() -> Self {
        let fixture = P::fresh();
        let signal_recorder: Arc<SignalRecorder> = Arc::default();
        let count = if P::IS_SHARED { 2 } else { 1 };
        let open = |_| {
            let store = fixture.open(Rules::default());
            let subscriber: Arc<SignalRecorder> = Arc::clone(&signal_recorder);
            store.subscribe(subscriber);
            Arc::new(store)
        };
        let shared = Self { stores: (0..count).map(open).collect(), signal_recorder, _place: fixture };
        let facts = Facts {
            id: SESSION,
            principal: Principal::anonymous(),
            revision: Revision::LATEST_LEGACY,
            initialize: Bytes::from_static(b"{}"),
            opened_at: NOW,
        };
        let opened = shared.stores[0].open(facts).await.expect("the store opens a session");
        assert!(matches!(opened, Opened::Opened(_)));
        shared
    }

    /// Runs `tasks` tasks, distributed over the stores, and returns their results.
    async fn all<T, F>(&self, tasks: u64, task: impl Fn(Arc<P::Store>, u64) -> F) -> Vec<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let mut set = JoinSet::new();
        for n in 0..tasks {
            let which = usize::try_from(n).unwrap_or(0) % self.stores.len();
            set.spawn(task(Arc::clone(&self.stores[which]), n));
        }
        set.join_all().await
    }

    async fn read(&self, stream: StreamNo) -> Slice {
        match self.stores[0].read(SESSION, stream, 0, u64::MAX).await {
            Ok(Read::Slice(slice)) => slice,
            other => panic!("stream {stream} cannot be read: {other:?}"),
        }
    }

    /// Checks that exactly these answers are kept for the node, and collects them.
    async fn collect(&self, expected: Vec<(ServerRequestNo, Bytes)>) {
        for store in &self.stores {
            assert_eq!(kept_for(&**store, NODE).await, expected);
        }
        let server_requests = expected.into_iter().map(|(server_request, _)| server_request).collect();
        assert_eq!(
            run(&*self.stores[0], Collect { node: NODE, server_requests }).await,
            Collected::Collected
        );
        assert_eq!(kept_for(&*self.stores[0], NODE).await, []);
    }

    /// Returns the events that were signalled, in the order of the signals.
    fn signalled(&self) -> Vec<Appended> {
        let mut signals = self.signal_recorder.take();
        let signalled = signals.remove(&SESSION).unwrap_or_default();
        signalled
            .into_iter()
            .flat_map(|signalled| match signalled {
                RecordedSignal::SessionUpdate { appended, .. } => appended,
                RecordedSignal::Lifecycle(_) => Vec::new(),
            })
            .collect()
    }
}

async fn run<S: Step + Send + 'static>(store: &impl Store, step: S) -> S::Outcome {
    store.run(SESSION, step, NOW).await.expect("the store answers")
}

fn begin(id: impl Into<RequestId>, attempt: u64) -> Begin {
    Begin::local(NODE, attempt, vec![id.into()])
}

fn text(text: String) -> Bytes {
    Bytes::from(text)
}

/// Tasks begin calls, write to their streams, and finish each call twice concurrently.
pub fn every_call_is_finished_exactly_once<P: StoreFixture>() {
    block_on(async {
        let shared = SharedSession::<P>::new().await;
        let calls = shared.all(TASKS, |store, n| async move { run_calls(&*store, n).await }).await;
        let signalled = shared.signalled();
        for (stream, call) in calls.into_iter().flatten() {
            let slice = shared.read(stream).await;
            let log: Vec<_> = slice.events.into_iter().map(|entry| (entry.seq, entry.payload)).collect();
            let expected: Vec<_> =
                ["one", "two", "answer"].iter().map(|what| Some(text(format!("{what} {call}")))).collect();
            assert_eq!(log, (1..).zip(expected).collect::<Vec<_>>(), "stream {stream}");
            assert!(slice.ended);
            let signalled: Vec<u64> =
                signalled.iter().filter(|event| event.stream == stream).map(|event| event.seq).collect();
            assert_eq!(signalled, [1, 2, 3], "signals of stream {stream} are not in the order of its log");
        }
    });
}

async fn run_calls(store: &impl Store, task: u64) -> Vec<(StreamNo, CallNo)> {
    let mut calls = Vec::new();
    for round in 0..ROUNDS {
        // Each task uses the same id again: it is free once the previous call has finished.
        let begun = run(store, begin(i64::try_from(task).unwrap_or(0), task * ROUNDS + round)).await;
        let Begun::Begun { stream, first: call, .. } = begun else { panic!("{begun:?}") };
        for what in ["one", "two"] {
            let payload = text(format!("{what} {call}"));
            let append = Append { target: Target::Call(call), class: Class::Droppable, payload, fence: None };
            assert!(matches!(run(store, append).await, AppendOutcome::Appended { .. }));
        }
        let finish = Finish { call, payload: text(format!("answer {call}")) };
        let (one, two) = tokio::join!(run(store, finish.clone()), run(store, finish));
        assert!(matches!(
            (one, two),
            (Finished::Finished { .. }, Finished::AlreadyFinished)
                | (Finished::AlreadyFinished, Finished::Finished { .. })
        ));
        calls.push((stream, call));
    }
    calls
}

/// All tasks begin a call with the same id. One succeeds; the others get `Duplicate`.
pub fn an_id_is_in_use_once_at_a_time<P: StoreFixture>() {
    block_on(async {
        let shared = SharedSession::<P>::new().await;
        for round in 0..ROUNDS {
            let attempt = move |n| round * TASKS + n;
            let begin_one = |store: Arc<P::Store>, n| async move {
                run(&*store, begin(RequestId::text("same"), attempt(n))).await
            };
            let outcomes = shared.all(TASKS, begin_one).await;
            let begun: Vec<CallNo> = outcomes
                .iter()
                .filter_map(|outcome| match outcome {
                    Begun::Begun { first, .. } => Some(*first),
                    other => {
                        assert_eq!(*other, Begun::Duplicate(RequestId::text("same")));
                        None
                    }
                })
                .collect();
            assert_eq!(begun.len(), 1, "{outcomes:?}");
            let finish = Finish { call: begun[0], payload: text("done".into()) };
            assert!(matches!(run(&*shared.stores[0], finish).await, Finished::Finished { .. }));
        }
    });
}

/// All tasks increment a counter in the session state by compare-and-set.
pub fn concurrent_increments_lose_nothing<P: StoreFixture>() {
    block_on(async {
        let shared = SharedSession::<P>::new().await;
        shared.all(TASKS, |store, _| async move { count_up(&*store).await }).await;
        let got = run(&*shared.stores[0], GetState { key: "counter".into() }).await;
        let StateGot::SessionOpen(Some(value)) = got else { panic!("{got:?}") };
        assert_eq!(value.bytes, text((TASKS * ROUNDS).to_string()));
    });
}

async fn count_up(store: &impl Store) {
    for _ in 0..ROUNDS {
        let mut current = None;
        loop {
            let (expected, count) = match &current {
                None => (None, 0),
                Some(steadfast_session::StateEntry { version, bytes }) => (Some(*version), number(bytes)),
            };
            let value = Some(text((count + 1).to_string()));
            match run(store, PutState { key: "counter".into(), expected, value }).await {
                StatePut::Put { .. } => break,
                StatePut::Conflict { current: other } => current = other,
                other => panic!("{other:?}"),
            }
        }
    }
}

fn number(bytes: &Bytes) -> u64 {
    std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).expect("a number")
}

/// All tasks append to one stream. Each message gets its own number, and signals arrive in that
/// order.
pub fn concurrent_messages_make_one_dense_log<P: StoreFixture>() {
    block_on(async {
        let shared = SharedSession::<P>::new().await;
        let append = |store: Arc<P::Store>, n| async move {
            let mut seqs = Vec::new();
            for round in 0..ROUNDS {
                let payload = text(format!("{n} {round}"));
                let append =
                    Append { target: Target::Standalone, class: Class::Notification, payload, fence: None };
                let appended = run(&*store, append).await;
                let AppendOutcome::Appended { stream, seq } = appended else { panic!("{appended:?}") };
                assert_eq!(stream, StreamNo::FIRST_STANDALONE);
                seqs.push(seq);
            }
            assert!(seqs.is_sorted(), "a task's own messages are in its order");
            seqs
        };
        let seqs = shared.all(TASKS, append).await;
        let all: BTreeSet<u64> = seqs.into_iter().flatten().collect();
        assert!(all.into_iter().eq(1..=TASKS * ROUNDS), "each number is given once");
        let log = shared.read(StreamNo::FIRST_STANDALONE).await;
        assert!(log.events.iter().map(|entry| entry.seq).eq(1..=TASKS * ROUNDS));
        let signalled = shared.signalled();
        assert_eq!(signalled.len(), log.events.len());
        if shared.stores.len() == 1 {
            assert!(
                signalled.iter().map(|event| event.seq).is_sorted(),
                "signals are in the order of the log"
            );
        }
    });
}

/// All tasks answer the same server request. One answer is accepted.
pub fn a_server_request_is_answered_once<P: StoreFixture>() {
    block_on(async {
        let shared = SharedSession::<P>::new().await;
        for _ in 0..ROUNDS {
            let open = OpenServerRequest {
                target: Target::Standalone,
                owner: NODE,
                rest: Bytes::from_static(b"\"method\":\"ping\"}"),
                fence: None,
            };
            let opened = run(&*shared.stores[0], open).await;
            let ServerRequestOpened::Opened { server_request, .. } = opened else { panic!("{opened:?}") };
            // Half of the answers arrive at the node that owns the request, half at another node.
            let answer = |store: Arc<P::Store>, n| async move {
                let node = if n % 2 == 0 { NODE } else { OTHER };
                (
                    n,
                    run(&*store, Answer { server_request, node, attempt: n, message: text(n.to_string()) })
                        .await,
                )
            };
            let answers = shared.all(TASKS, answer).await;
            let is_taken = |answer: &&(u64, Answered)| {
                matches!(answer.1, Answered::Answered { .. } | Answered::Stored { owner: NODE })
            };
            let already_begun: Vec<_> = answers.iter().filter(is_taken).collect();
            assert_eq!(already_begun.len(), 1, "{answers:?}");
            let (n, outcome) = already_begun[0];
            let kept = (*outcome != Answered::Answered { call: None })
                .then(|| (server_request, text(n.to_string())));
            shared.collect(kept.into_iter().collect()).await;
        }
    });
}

/// Tasks answer server requests at a node that does not own them. The owner finds each accepted
/// answer once.
pub fn every_kept_answer_is_collected_once<P: StoreFixture>() {
    block_on(async {
        let shared = SharedSession::<P>::new().await;
        let ask_and_collect = |store: Arc<P::Store>, n| async move {
            let node = NodeId(100 + n);
            for round in 0..ROUNDS {
                let open = OpenServerRequest {
                    target: Target::Standalone,
                    owner: node,
                    rest: Bytes::from_static(b"}"),
                    fence: None,
                };
                let opened = run(&*store, open).await;
                let ServerRequestOpened::Opened { server_request, .. } = opened else { panic!("{opened:?}") };
                let message = text(format!("{n} {round}"));
                let answer = Answer {
                    server_request,
                    node: OTHER,
                    attempt: n * ROUNDS + round,
                    message: message.clone(),
                };
                let (one, two) = tokio::join!(run(&*store, answer.clone()), run(&*store, answer));
                assert_eq!((one, two), (Answered::Stored { owner: node }, Answered::Stored { owner: node }));
                assert_eq!(kept_for(&*store, node).await, [(server_request, message)]);
                for _ in 0..2 {
                    assert_eq!(
                        run(&*store, Collect { node, server_requests: vec![server_request] }).await,
                        Collected::Collected
                    );
                    assert_eq!(kept_for(&*store, node).await, []);
                }
            }
        };
        shared.all(TASKS, ask_and_collect).await;
    });
}

async fn kept_for(store: &impl Store, node: NodeId) -> Vec<(ServerRequestNo, Bytes)> {
    match store.holdings(SESSION, node).await {
        Ok(Holdings::Held { answers, .. }) => answers,
        other => panic!("{other:?}"),
    }
}

/// Returns a `Begin` whose call is forwarded to another node.
fn forwarded_begin(attempt: u64, reassignable: bool) -> Begin {
    Begin {
        owner: OTHER,
        requests: vec![Some(Request { text: text(format!("do {attempt}")), reassignable })],
        ..begin(attempt.cast_signed(), attempt)
    }
}

/// Returns the requests of the calls that were forwarded to a node. All stores must agree.
async fn forwarded_calls_of<P: StoreFixture>(shared: &SharedSession<P>, node: NodeId) -> Vec<Bytes> {
    let mut requests = Vec::new();
    for store in &shared.stores {
        let held = store.holdings(SESSION, node).await.expect("the store answers");
        let Holdings::Held { forwarded, .. } = held else { panic!("{held:?}") };
        requests.push(forwarded.into_iter().map(|forwarded_call| forwarded_call.request).collect::<Vec<_>>());
    }
    assert!(requests.iter().all(|one| *one == requests[0]), "{requests:?}");
    requests.swap_remove(0)
}

/// The node that a call was forwarded to starts it, and the call is not reassigned any more. A call
/// that is started and finished at the same time is gone.
pub fn a_forwarded_call_that_was_started_is_not_reassigned<P: StoreFixture>() {
    block_on(async {
        let shared = SharedSession::<P>::new().await;
        let (first, last) = (&*shared.stores[0], &*shared.stores[shared.stores.len() - 1]);
        first.join(NODE, NOW).await.expect("the store answers");
        last.join(OTHER, NOW).await.expect("the store answers");
        let mut calls = Vec::new();
        for attempt in 1..=3 {
            let Begun::Begun { first, .. } = run(first, forwarded_begin(attempt, true)).await else {
                panic!()
            };
            calls.push(first);
        }
        let start = |call: CallNo| run(last, Start { call, node: OTHER, idempotent: false, fence: None });
        let finish = Finish { call: calls[1], payload: text("done".to_owned()) };
        assert_eq!(start(calls[0]).await, Started::Started);
        let (started, finished) = tokio::join!(start(calls[1]), run(last, finish));
        assert!(started == Started::Started && matches!(finished, Finished::Finished { .. }));
        assert_eq!(forwarded_calls_of(&shared, OTHER).await, ["do 1", "do 3"]);
        let failed = run(first, FailNode { node: OTHER, successor: Successor::Node(NODE) }).await;
        assert_eq!(failed, NodeFailed::Failed { failed: 1, reassigned: 1, kept: 0 });
        assert_eq!(forwarded_calls_of(&shared, OTHER).await, Vec::<Bytes>::new());
        assert_eq!(forwarded_calls_of(&shared, NODE).await, ["do 3"]);
        assert_eq!(start(calls[2]).await, Started::Gone);
    });
}

/// A call that is forwarded to a node that has not joined, or has left, does not begin: no node
/// would answer it. If the node leaves before the call is done, the node that reaps it answers the
/// call.
pub fn calls_are_forwarded_only_to_nodes_that_are_alive<P: StoreFixture>() {
    block_on(async {
        let shared = SharedSession::<P>::new().await;
        let (first, last) = (&*shared.stores[0], &*shared.stores[shared.stores.len() - 1]);
        first.join(NODE, NOW).await.expect("the store answers");
        assert_eq!(run(first, forwarded_begin(1, false)).await, Begun::Fenced);
        last.join(OTHER, NOW).await.expect("the store answers");
        assert!(matches!(run(first, forwarded_begin(2, false)).await, Begun::Begun { .. }));
        assert!(matches!(run(first, forwarded_begin(3, true)).await, Begun::Begun { .. }));
        for store in [first, last] {
            let held = store.holdings(SESSION, OTHER).await.expect("the store answers");
            let Holdings::Held { forwarded, connections, .. } = held else { panic!("{held:?}") };
            let texts: Vec<&[u8]> =
                forwarded.iter().map(|forwarded_call| &forwarded_call.request[..]).collect();
            assert_eq!(texts, [b"do 2", b"do 3"]);
            assert_eq!(connections, [], "it reads nothing");
        }
        last.leave(OTHER, NOW).await.expect("the store answers");
        assert_eq!(first.is_alive(OTHER).await, Ok(false));
        assert_eq!(shared.read(StreamNo(1)).await.events.len(), 1, "it gets its error at once");
        assert_eq!(shared.read(StreamNo(2)).await.events.len(), 0, "it is left to others");
        assert_eq!(first.reap_dead_nodes(NOW).await, Ok(1));
        assert_eq!(shared.read(StreamNo(2)).await.events.len(), 1, "this session has no successor");
        assert_eq!(first.reap_dead_nodes(NOW).await, Ok(0));
        assert_eq!(run(first, forwarded_begin(4, true)).await, Begun::Fenced);
        for store in [first, last] {
            let retry = Begin { mode: BeginMode::Retry, ..forwarded_begin(3, true) };
            let already_begun = Begun::AlreadyBegun { stream: StreamNo(2) };
            assert_eq!(
                run(store, retry).await,
                already_begun,
                "a retry gets the outcome although the node is gone"
            );
        }
    });
}
