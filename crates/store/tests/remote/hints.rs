//! A node receives signals of what other processes change in its holdings.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::{
    Answer, Attach, Begin, Begun, Cancel, Close, OpenServerRequest, Position, Renotified, Renotify, Target,
};
use steadfast_session::{CallNo, CloseReason, NodeId, Request, ServerRequestNo, SessionId, StreamNo};
use steadfast_store::Store as _;
use steadfast_store::testing::server::fresh_name;
use steadfast_store::testing::signal_recorder::{RecordedSignal, SignalRecorder};

use crate::common::{
    FIRST, NOW, ONE, OTHER, begin, begin_call, eventually, finish, message, open_session, run,
};
use crate::database::{Options, Server, Store, open, options};

struct Node {
    store: Store,
    signal_recorder: Arc<SignalRecorder>,
}

impl Node {
    async fn start(server: &Server, prefix: &str, node: NodeId) -> Self {
        let store = open(options(server, prefix));
        let signal_recorder: Arc<SignalRecorder> = Arc::default();
        store.subscribe(Arc::<SignalRecorder>::clone(&signal_recorder));
        store.join(node, NOW).await.expect("the store answers");
        Self { store, signal_recorder }
    }

    /// Waits for a signal that fits.
    async fn wait_for_signal(&self, what: &str, fits: impl Fn(&RecordedSignal) -> bool) {
        eventually(what, || async {
            self.signal_recorder.take().into_values().flatten().any(|signal| fits(&signal)).then_some(())
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
async fn a_reader_is_signalled_that_its_stream_has_grown_and_ended() {
    let (one, other, session) = two_or_skip!();
    let at = Position::Standalone;
    run(&other.store, session, Attach { at, node: OTHER }).await;
    run(&one.store, session, message("hello")).await;
    other
        .wait_for_signal(
            "growth",
            |signal| matches!(signal, RecordedSignal::SessionUpdate { grown, .. } if *grown == [FIRST]),
        )
        .await;
    // This call runs at one node and is read at the other.
    let (stream, call) = begin_call(&one.store, session, ONE, 1).await;
    let at = Position::After { stream, seq: 0 };
    run(&other.store, session, Attach { at, node: OTHER }).await;
    let superseded = |signal: &RecordedSignal| matches!(signal, RecordedSignal::SessionUpdate { superseded, .. } if superseded.iter().any(|(no, _)| *no == stream));
    one.wait_for_signal("another reader", superseded).await;
    run(&one.store, session, finish(call, "answer")).await;
    let ends = |signal: &RecordedSignal| matches!(signal, RecordedSignal::SessionUpdate { grown, ended, .. } if *grown == [stream] && *ended == [stream]);
    other.wait_for_signal("the answer", ends).await;
}

#[tokio::test]
async fn the_owner_of_a_call_is_signalled_its_cancellation() {
    let (one, other, session) = two_or_skip!();
    let Begun::Begun { first, .. } = run(&one.store, session, begin(ONE, 1)).await else { panic!() };
    run(&other.store, session, Cancel { id: 1.into() }).await;
    let stops = |signal: &RecordedSignal| matches!(signal, RecordedSignal::SessionUpdate { stopped, .. } if *stopped == [(first, ONE)]);
    one.wait_for_signal("the cancellation", stops).await;
}

#[tokio::test]
async fn the_owner_of_a_server_request_is_signalled_a_kept_answer() {
    let (one, other, session) = two_or_skip!();
    let open = OpenServerRequest {
        target: Target::Standalone,
        owner: ONE,
        rest: Bytes::from_static(b"}"),
        fence: None,
    };
    run(&one.store, session, open).await;
    let answer = Answer {
        server_request: ServerRequestNo(0),
        node: OTHER,
        attempt: 1,
        message: Bytes::from_static(b"yes"),
    };
    run(&other.store, session, answer).await;
    let kept = |signal: &RecordedSignal| matches!(signal, RecordedSignal::SessionUpdate { kept, .. } if *kept == [(ServerRequestNo(0), ONE)]);
    one.wait_for_signal("the answer", kept).await;
}

#[tokio::test]
async fn other_nodes_are_signalled_that_a_session_has_closed() {
    let (one, other, session) = two_or_skip!();
    let (_, call) = begin_call(&one.store, session, ONE, 1).await;
    run(&other.store, session, Close { reason: CloseReason::Deleted }).await;
    let stops = |signal: &RecordedSignal| matches!(signal, RecordedSignal::SessionUpdate { stopped, ended, .. } if *stopped == [(call, ONE)] && *ended == [StreamNo(1)]);
    one.wait_for_signal("the end", stops).await;
}

/// The node holds nothing else in the session, so it receives no other hints of it.
#[tokio::test]
async fn a_node_is_signalled_a_call_that_is_forwarded_to_it() {
    let (one, other, session) = two_or_skip!();
    let request = Request { text: Bytes::from_static(b"do"), reassignable: false };
    let forwarded = Begin { owner: OTHER, requests: vec![Some(request)], ..begin(ONE, 1) };
    assert!(matches!(run(&one.store, session, forwarded).await, Begun::Begun { .. }));
    let is_forwarded = |signal: &RecordedSignal| matches!(signal, RecordedSignal::SessionUpdate { forwarded, .. } if *forwarded == [(CallNo(0), OTHER)]);
    other.wait_for_signal("a call", is_forwarded).await;
    run(&other.store, session, finish(CallNo(0), "done")).await;
    one.wait_for_signal(
        "its end",
        |signal| matches!(signal, RecordedSignal::SessionUpdate { ended, .. } if *ended == [StreamNo(1)]),
    )
    .await;
}

/// The hint of a forwarded call is lost, and its node does not poll.
#[tokio::test]
async fn a_node_that_missed_a_hint_is_signalled_by_a_renotify() {
    let Some(server) = Server::shared() else { return };
    let prefix = fresh_name();
    let (one, other) = (Node::start(server, &prefix, ONE).await, Node::start(server, &prefix, OTHER).await);
    let session = open_session(&one.store, 1).await;
    // A process that sends no hints.
    let without_hints = open(Options { receives_hints: false, ..options(server, &prefix) });
    let request = Request { text: Bytes::from_static(b"do"), reassignable: true };
    let forwarded = Begin { owner: OTHER, requests: vec![Some(request)], ..begin(ONE, 1) };
    assert!(matches!(run(&without_hints, session, forwarded).await, Begun::Begun { .. }));
    let renotified = run(&one.store, session, Renotify { node: ONE }).await;
    assert_eq!(renotified, Renotified::Renotified { calls: 1 });
    let is_forwarded = |signal: &RecordedSignal| matches!(signal, RecordedSignal::SessionUpdate { forwarded, .. } if *forwarded == [(CallNo(0), OTHER)]);
    other.wait_for_signal("a call", is_forwarded).await;
    run(&other.store, session, finish(CallNo(0), "done")).await;
    assert_eq!(run(&one.store, session, Renotify { node: ONE }).await, Renotified::Renotified { calls: 0 });
}
