//! A node hears what others do to what it holds.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::{
    Answer, Attach, Begin, Begun, Cancel, Close, OpenAsk, Position, Remind, Reminded, Target,
};
use steadfast_session::{AskNo, CallNo, CloseReason, NodeId, Request, SessionId, StreamNo};
use steadfast_store::Store as _;
use steadfast_store::testing::recorder::{Heard, Recorder};
use steadfast_store::testing::server::fresh_name;

use crate::common::{
    FIRST, NOW, ONE, OTHER, begin, begin_call, eventually, finish, message, open_session, run,
};
use crate::database::{Options, Server, Store, open, options};

struct Node {
    store: Store,
    recorder: Arc<Recorder>,
}

impl Node {
    async fn start(server: &Server, prefix: &str, node: NodeId) -> Self {
        let store = open(options(server, prefix));
        let recorder: Arc<Recorder> = Arc::default();
        store.subscribe(Arc::<Recorder>::clone(&recorder));
        store.join(node, NOW).await.expect("the store answers");
        Self { store, recorder }
    }

    /// Waits for news that fit.
    async fn hears(&self, what: &str, fits: impl Fn(&Heard) -> bool) {
        eventually(what, || async {
            self.recorder.take().into_values().flatten().any(|heard| fits(&heard)).then_some(())
        })
        .await;
    }
}

async fn two() -> Option<(Node, Node, SessionId)> {
    let (server, prefix) = (Server::shared()?, fresh_name());
    let (one, other) = (Node::start(server, &prefix, ONE).await, Node::start(server, &prefix, OTHER).await);
    let session = open_session(&one.store, 1).await;
    Some((one, other, session))
}

macro_rules! two_or_skip {
    () => {
        match two().await {
            Some(two) => two,
            None => return,
        }
    };
}

#[tokio::test]
async fn a_reader_hears_that_its_stream_has_grown_and_ended() {
    let (one, other, session) = two_or_skip!();
    let at = Position::Standalone;
    run(&other.store, session, Attach { at, node: OTHER }).await;
    run(&one.store, session, message("hello")).await;
    other.hears("growth", |heard| matches!(heard, Heard::News { grown, .. } if *grown == [FIRST])).await;
    // A call that runs here and is read there.
    let (stream, call) = begin_call(&one.store, session, ONE, 1).await;
    let at = Position::After { stream, seq: 0 };
    run(&other.store, session, Attach { at, node: OTHER }).await;
    let superseded = |heard: &Heard| matches!(heard, Heard::News { superseded, .. } if superseded.iter().any(|(no, _)| *no == stream));
    one.hears("another reader", superseded).await;
    run(&one.store, session, finish(call, "answer")).await;
    let ends = |heard: &Heard| matches!(heard, Heard::News { grown, ended, .. } if *grown == [stream] && *ended == [stream]);
    other.hears("the answer", ends).await;
}

#[tokio::test]
async fn an_owner_hears_that_its_call_was_cancelled() {
    let (one, other, session) = two_or_skip!();
    let Begun::Begun { first, .. } = run(&one.store, session, begin(ONE, 1)).await else { panic!() };
    run(&other.store, session, Cancel { id: 1.into() }).await;
    let stops = |heard: &Heard| matches!(heard, Heard::News { stopped, .. } if *stopped == [(first, ONE)]);
    one.hears("the cancellation", stops).await;
}

#[tokio::test]
async fn an_asker_hears_that_its_answer_is_kept() {
    let (one, other, session) = two_or_skip!();
    let open =
        OpenAsk { target: Target::Standalone, owner: ONE, rest: Bytes::from_static(b"}"), fence: None };
    run(&one.store, session, open).await;
    let answer = Answer { ask: AskNo(0), node: OTHER, attempt: 1, message: Bytes::from_static(b"yes") };
    run(&other.store, session, answer).await;
    let kept = |heard: &Heard| matches!(heard, Heard::News { kept, .. } if *kept == [(AskNo(0), ONE)]);
    one.hears("the answer", kept).await;
}

#[tokio::test]
async fn everybody_hears_that_a_session_has_closed() {
    let (one, other, session) = two_or_skip!();
    let (_, call) = begin_call(&one.store, session, ONE, 1).await;
    run(&other.store, session, Close { reason: CloseReason::Deleted }).await;
    let stops = |heard: &Heard| matches!(heard, Heard::News { stopped, ended, .. } if *stopped == [(call, ONE)] && *ended == [StreamNo(1)]);
    one.hears("the end", stops).await;
}

/// It has nothing to do with the session, so no other news of it reach it.
#[tokio::test]
async fn a_node_hears_of_a_call_that_it_is_given() {
    let (one, other, session) = two_or_skip!();
    let request = Request { text: Bytes::from_static(b"do"), again: false };
    let mail = Begin { owner: OTHER, requests: vec![Some(request)], ..begin(ONE, 1) };
    assert!(matches!(run(&one.store, session, mail).await, Begun::Begun { .. }));
    let given =
        |heard: &Heard| matches!(heard, Heard::News { errands, .. } if *errands == [(CallNo(0), OTHER)]);
    other.hears("a call", given).await;
    run(&other.store, session, finish(CallNo(0), "done")).await;
    one.hears("its end", |heard| matches!(heard, Heard::News { ended, .. } if *ended == [StreamNo(1)])).await;
}

/// The word of a call is lost, and its node does not look by itself.
#[tokio::test]
async fn a_node_that_was_not_told_of_a_call_hears_of_it_when_it_is_reminded() {
    let Some(server) = Server::shared() else { return };
    let prefix = fresh_name();
    let (one, other) = (Node::start(server, &prefix, ONE).await, Node::start(server, &prefix, OTHER).await);
    let session = open_session(&one.store, 1).await;
    // By way of a process that tells nobody anything.
    let mute = open(Options { hears_others: false, ..options(server, &prefix) });
    let request = Request { text: Bytes::from_static(b"do"), again: true };
    let mail = Begin { owner: OTHER, requests: vec![Some(request)], ..begin(ONE, 1) };
    assert!(matches!(run(&mute, session, mail).await, Begun::Begun { .. }));
    let reminded = run(&one.store, session, Remind { node: ONE }).await;
    assert_eq!(reminded, Reminded::Reminded { calls: 1 });
    let given =
        |heard: &Heard| matches!(heard, Heard::News { errands, .. } if *errands == [(CallNo(0), OTHER)]);
    other.hears("a call", given).await;
    run(&other.store, session, finish(CallNo(0), "done")).await;
    assert_eq!(run(&one.store, session, Remind { node: ONE }).await, Reminded::Reminded { calls: 0 });
}
