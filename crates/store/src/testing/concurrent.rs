//! Many tasks at once on one session: what each of them is told must add up.
//!
//! Where a place can be shared, half of the tasks use a second store, as another process would.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::changes::Appended;
use steadfast_session::command::{
    Answer, Answered, Append, AppendOutcome, AskOpened, Begin, Begun, Collect, Collected, FailNode, Finish,
    Finished, GetState, Heir, NodeFailed, OpenAsk, PutState, Start, Started, StateGot, StatePut, Target,
};
use steadfast_session::{
    AskNo, CallNo, Class, Facts, Holdings, NodeId, Principal, Read, Request, Rules, SessionId, Slice, Step,
    StreamNo, Time,
};
use steadfast_wire::{RequestId, Revision};
use tokio::task::JoinSet;

use super::recorder::{Heard, Recorder};
use super::{Place, block_on};
use crate::store::{Opened, Store, StoreExt};

const TASKS: u64 = 16;
const ROUNDS: u64 = 20;
const NODE: NodeId = NodeId(7);
const OTHER: NodeId = NodeId(8);
const NOW: Time = Time(1_000_000);
const SESSION: SessionId = SessionId::from_random([9; SessionId::BYTES]);

/// One session, and every store through which it is used.
struct Scene<P: Place> {
    stores: Vec<Arc<P::Store>>,
    recorder: Arc<Recorder>,
    _place: P,
}

impl<P: Place> Scene<P> {
    async fn new() -> Self {
        let place = P::fresh();
        let recorder: Arc<Recorder> = Arc::default();
        let count = if P::SHARES { 2 } else { 1 };
        let open = |_| {
            let store = place.open(Rules::default());
            let subscriber: Arc<Recorder> = Arc::clone(&recorder);
            store.subscribe(subscriber);
            Arc::new(store)
        };
        let scene = Self { stores: (0..count).map(open).collect(), recorder, _place: place };
        let facts = Facts {
            id: SESSION,
            principal: Principal::anonymous(),
            revision: Revision::LATEST_LEGACY,
            initialize: Bytes::from_static(b"{}"),
            opened_at: NOW,
        };
        let opened = scene.stores[0].open(facts).await.expect("the store opens a session");
        assert!(matches!(opened, Opened::Opened(_)));
        scene
    }

    /// Runs one task for each number below `tasks`, spread over the stores, and gives what they say.
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

    /// Exactly these answers are kept for the node; it takes them.
    async fn collect(&self, expected: Vec<(AskNo, Bytes)>) {
        for store in &self.stores {
            assert_eq!(kept_for(&**store, NODE).await, expected);
        }
        let asks = expected.into_iter().map(|(ask, _)| ask).collect();
        assert_eq!(run(&*self.stores[0], Collect { node: NODE, asks }).await, Collected::Collected);
        assert_eq!(kept_for(&*self.stores[0], NODE).await, []);
    }

    /// The events that were signalled, in the order of the signals.
    fn signalled(&self) -> Vec<Appended> {
        let mut heards = self.recorder.take();
        let heard = heards.remove(&SESSION).unwrap_or_default();
        heard
            .into_iter()
            .flat_map(|heard| match heard {
                Heard::News { appended, .. } => appended,
                Heard::Lifecycle(_) => Vec::new(),
            })
            .collect()
    }
}

async fn run<S: Step + Send + 'static>(store: &impl Store, step: S) -> S::Outcome {
    store.run(SESSION, step, NOW).await.expect("the store answers")
}

fn begin(id: impl Into<RequestId>, attempt: u64) -> Begin {
    Begin::here(NODE, attempt, vec![id.into()])
}

fn text(text: String) -> Bytes {
    Bytes::from(text)
}

/// Tasks begin calls, write to their streams, and finish each call twice at once.
pub fn every_call_is_finished_exactly_once<P: Place>() {
    block_on(async {
        let scene = Scene::<P>::new().await;
        let calls = scene.all(TASKS, |store, n| async move { run_calls(&*store, n).await }).await;
        let signalled = scene.signalled();
        for (stream, call) in calls.into_iter().flatten() {
            let slice = scene.read(stream).await;
            let log: Vec<_> = slice.entries.into_iter().map(|entry| (entry.seq, entry.payload)).collect();
            let expected: Vec<_> =
                ["one", "two", "answer"].iter().map(|what| Some(text(format!("{what} {call}")))).collect();
            assert_eq!(log, (1..).zip(expected).collect::<Vec<_>>(), "stream {stream}");
            assert!(slice.ended);
            let heard: Vec<u64> =
                signalled.iter().filter(|event| event.stream == stream).map(|event| event.seq).collect();
            assert_eq!(heard, [1, 2, 3], "signals of stream {stream} are not in the order of its log");
        }
    });
}

async fn run_calls(store: &impl Store, task: u64) -> Vec<(StreamNo, CallNo)> {
    let mut calls = Vec::new();
    for round in 0..ROUNDS {
        // The same id again and again: free once the call before it is finished.
        let begun = run(store, begin(i64::try_from(task).unwrap_or(0), task * ROUNDS + round)).await;
        let Begun::Begun { stream, first: call, .. } = begun else { panic!("{begun:?}") };
        for what in ["one", "two"] {
            let payload = text(format!("{what} {call}"));
            let append = Append { target: Target::Call(call), class: Class::Chatter, payload, fence: None };
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

/// All tasks want the same id at once: one gets it, the others are told so.
pub fn an_id_is_begun_once_at_a_time<P: Place>() {
    block_on(async {
        let scene = Scene::<P>::new().await;
        for round in 0..ROUNDS {
            let attempt = move |n| round * TASKS + n;
            let begin_one = |store: Arc<P::Store>, n| async move {
                run(&*store, begin(RequestId::text("same"), attempt(n))).await
            };
            let outcomes = scene.all(TASKS, begin_one).await;
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
            assert!(matches!(run(&*scene.stores[0], finish).await, Finished::Finished { .. }));
        }
    });
}

/// A counter in session state, incremented by compare-and-set.
pub fn concurrent_increments_lose_nothing<P: Place>() {
    block_on(async {
        let scene = Scene::<P>::new().await;
        scene.all(TASKS, |store, _| async move { count_up(&*store).await }).await;
        let got = run(&*scene.stores[0], GetState { key: "counter".into() }).await;
        let StateGot::Got(Some(value)) = got else { panic!("{got:?}") };
        assert_eq!(value.bytes, text((TASKS * ROUNDS).to_string()));
    });
}

async fn count_up(store: &impl Store) {
    for _ in 0..ROUNDS {
        let mut current = None;
        loop {
            let (expected, count) = match &current {
                None => (None, 0),
                Some(steadfast_session::Value { version, bytes }) => (Some(*version), number(bytes)),
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

/// Messages of all tasks for one stream: each has its place, and the signals come in that order.
pub fn concurrent_messages_make_one_dense_log<P: Place>() {
    block_on(async {
        let scene = Scene::<P>::new().await;
        let append = |store: Arc<P::Store>, n| async move {
            let mut seqs = Vec::new();
            for round in 0..ROUNDS {
                let payload = text(format!("{n} {round}"));
                let append =
                    Append { target: Target::Standalone, class: Class::Notice, payload, fence: None };
                let appended = run(&*store, append).await;
                let AppendOutcome::Appended { stream, seq } = appended else { panic!("{appended:?}") };
                assert_eq!(stream, StreamNo::FIRST_STANDALONE);
                seqs.push(seq);
            }
            assert!(seqs.is_sorted(), "a task's own messages are in its order");
            seqs
        };
        let seqs = scene.all(TASKS, append).await;
        let all: BTreeSet<u64> = seqs.into_iter().flatten().collect();
        assert!(all.into_iter().eq(1..=TASKS * ROUNDS), "each number is given once");
        let log = scene.read(StreamNo::FIRST_STANDALONE).await;
        assert!(log.entries.iter().map(|entry| entry.seq).eq(1..=TASKS * ROUNDS));
        let heard = scene.signalled();
        assert_eq!(heard.len(), log.entries.len());
        if scene.stores.len() == 1 {
            assert!(heard.iter().map(|event| event.seq).is_sorted(), "signals are in the order of the log");
        }
    });
}

/// All tasks answer the same ask: one takes it.
pub fn an_ask_is_answered_once<P: Place>() {
    block_on(async {
        let scene = Scene::<P>::new().await;
        for _ in 0..ROUNDS {
            let open = OpenAsk {
                target: Target::Standalone,
                owner: NODE,
                rest: Bytes::from_static(b"\"method\":\"ping\"}"),
                fence: None,
            };
            let opened = run(&*scene.stores[0], open).await;
            let AskOpened::Opened { ask, .. } = opened else { panic!("{opened:?}") };
            // Half of the answers come to the asker's node, half to another.
            let answer = |store: Arc<P::Store>, n| async move {
                let node = if n % 2 == 0 { NODE } else { OTHER };
                (n, run(&*store, Answer { ask, node, attempt: n, message: text(n.to_string()) }).await)
            };
            let answers = scene.all(TASKS, answer).await;
            let is_taken = |answer: &&(u64, Answered)| {
                matches!(answer.1, Answered::Answered { .. } | Answered::Kept { owner: NODE })
            };
            let taken: Vec<_> = answers.iter().filter(is_taken).collect();
            assert_eq!(taken.len(), 1, "{answers:?}");
            let (n, outcome) = taken[0];
            let kept = (*outcome != Answered::Answered { call: None }).then(|| (ask, text(n.to_string())));
            scene.collect(kept.into_iter().collect()).await;
        }
    });
}

/// Nodes answer each other's asks while they collect: each answer that was taken is found by its owner, once.
pub fn every_kept_answer_is_collected_once<P: Place>() {
    block_on(async {
        let scene = Scene::<P>::new().await;
        let ask_and_collect = |store: Arc<P::Store>, n| async move {
            let node = NodeId(100 + n);
            for round in 0..ROUNDS {
                let open = OpenAsk {
                    target: Target::Standalone,
                    owner: node,
                    rest: Bytes::from_static(b"}"),
                    fence: None,
                };
                let opened = run(&*store, open).await;
                let AskOpened::Opened { ask, .. } = opened else { panic!("{opened:?}") };
                let message = text(format!("{n} {round}"));
                let answer =
                    Answer { ask, node: OTHER, attempt: n * ROUNDS + round, message: message.clone() };
                let (one, two) = tokio::join!(run(&*store, answer.clone()), run(&*store, answer));
                assert_eq!((one, two), (Answered::Kept { owner: node }, Answered::Kept { owner: node }));
                assert_eq!(kept_for(&*store, node).await, [(ask, message)]);
                for _ in 0..2 {
                    assert_eq!(run(&*store, Collect { node, asks: vec![ask] }).await, Collected::Collected);
                    assert_eq!(kept_for(&*store, node).await, []);
                }
            }
        };
        scene.all(TASKS, ask_and_collect).await;
    });
}

async fn kept_for(store: &impl Store, node: NodeId) -> Vec<(AskNo, Bytes)> {
    match store.held(SESSION, node).await {
        Ok(Holdings::Held { answers, .. }) => answers,
        other => panic!("{other:?}"),
    }
}

/// A call that one node gives to another.
fn mail(attempt: u64, again: bool) -> Begin {
    Begin {
        owner: OTHER,
        requests: vec![Some(Request { text: text(format!("do {attempt}")), again })],
        ..begin(attempt.cast_signed(), attempt)
    }
}

/// What a node has been given, by every store.
async fn errands_of<P: Place>(scene: &Scene<P>, node: NodeId) -> Vec<Bytes> {
    let mut told = Vec::new();
    for store in &scene.stores {
        let held = store.held(SESSION, node).await.expect("the store answers");
        let Holdings::Held { errands, .. } = held else { panic!("{held:?}") };
        told.push(errands.into_iter().map(|errand| errand.request).collect::<Vec<_>>());
    }
    assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
    told.swap_remove(0)
}

/// Whoever was given a call says that it begins, and everybody knows. Of one that is done in the same moment nothing is left.
pub fn a_call_that_was_begun_is_nobody_elses<P: Place>() {
    block_on(async {
        let scene = Scene::<P>::new().await;
        let (first, last) = (&*scene.stores[0], &*scene.stores[scene.stores.len() - 1]);
        first.join(NODE, NOW).await.expect("the store answers");
        last.join(OTHER, NOW).await.expect("the store answers");
        let mut given = Vec::new();
        for attempt in 1..=3 {
            let Begun::Begun { first, .. } = run(first, mail(attempt, true)).await else { panic!() };
            given.push(first);
        }
        let start = |call: CallNo| run(last, Start { call, node: OTHER, again: false, fence: None });
        let finish = Finish { call: given[1], payload: text("done".to_owned()) };
        assert_eq!(start(given[0]).await, Started::Started);
        let (started, finished) = tokio::join!(start(given[1]), run(last, finish));
        assert!(started == Started::Started && matches!(finished, Finished::Finished { .. }));
        assert_eq!(errands_of(&scene, OTHER).await, ["do 1", "do 3"]);
        let failed = run(first, FailNode { node: OTHER, heir: Heir::Node(NODE) }).await;
        assert_eq!(failed, NodeFailed::Failed { calls: 1, handed: 1, left: 0 });
        assert_eq!(errands_of(&scene, OTHER).await, Vec::<Bytes>::new());
        assert_eq!(errands_of(&scene, NODE).await, ["do 3"]);
        assert_eq!(start(given[2]).await, Started::Gone);
    });
}

/// A call for a node that has not joined, or has left, is not begun: nobody would ever answer it. One for a node that leaves
/// before it is done gets an answer from whoever buries that.
pub fn calls_are_given_to_nodes_that_are_there<P: Place>() {
    block_on(async {
        let scene = Scene::<P>::new().await;
        let (first, last) = (&*scene.stores[0], &*scene.stores[scene.stores.len() - 1]);
        first.join(NODE, NOW).await.expect("the store answers");
        assert_eq!(run(first, mail(1, false)).await, Begun::Fenced);
        last.join(OTHER, NOW).await.expect("the store answers");
        assert!(matches!(run(first, mail(2, false)).await, Begun::Begun { .. }));
        assert!(matches!(run(first, mail(3, true)).await, Begun::Begun { .. }));
        for store in [first, last] {
            let held = store.held(SESSION, OTHER).await.expect("the store answers");
            let Holdings::Held { errands, connections, .. } = held else { panic!("{held:?}") };
            let texts: Vec<&[u8]> = errands.iter().map(|errand| &errand.request[..]).collect();
            assert_eq!(texts, [b"do 2", b"do 3"]);
            assert_eq!(connections, [], "it reads nothing");
        }
        last.leave(OTHER, NOW).await.expect("the store answers");
        assert_eq!(first.is_alive(OTHER).await, Ok(false));
        assert_eq!(scene.read(StreamNo(1)).await.entries.len(), 1, "it gets its error at once");
        assert_eq!(scene.read(StreamNo(2)).await.entries.len(), 0, "it is left to others");
        assert_eq!(first.bury_dead_nodes(NOW).await, Ok(1));
        assert_eq!(scene.read(StreamNo(2)).await.entries.len(), 1, "nobody inherits here");
        assert_eq!(first.bury_dead_nodes(NOW).await, Ok(0));
        assert_eq!(run(first, mail(4, true)).await, Begun::Fenced);
        for store in [first, last] {
            let again = Begin { again: true, ..mail(3, true) };
            let taken = Begun::Taken { stream: StreamNo(2) };
            assert_eq!(run(store, again).await, taken, "whoever asks again is told, though all are gone");
        }
    });
}
