//! Nodes that die, and nodes that only seemed to.

use std::time::Duration;

use bytes::Bytes;
use steadfast_session::command::{Begin, Begun, Finished};
use steadfast_session::{Holdings, NodeId, Request};
use steadfast_store::testing::server::fresh_name;
use steadfast_store::{Store as _, StoreExt};

use crate::common::{
    NOW, ONE, OTHER, begin, begin_call, eventually, finish, open_session, run, server_or_skip, texts,
};
use crate::database::{Options, Server, Store, open, options, set_clock_ahead};

const TTL: Duration = Duration::from_millis(400);

/// A process that shows that it is alive, and one that was stopped right after it had started.
fn two(server: &Server) -> (Store, Store) {
    let prefix = fresh_name();
    let options = Options { node_ttl: TTL, ..options(server, &prefix) };
    let alive = open(Options { heartbeat: TTL / 10, ..options.clone() });
    (alive, open(Options { heartbeat: Duration::from_secs(3600), ..options }))
}

async fn buried(store: &Store) {
    let burial =
        || async { (store.bury_dead_nodes(NOW).await.expect("the store answers") > 0).then_some(()) };
    eventually("the burial", burial).await;
}

async fn held(store: &Store, session: steadfast_session::SessionId, node: NodeId) -> usize {
    match store.held(session, node).await.expect("the store answers") {
        Holdings::Held { calls, connections, .. } => calls.len() + connections.len(),
        Holdings::NoSession => 0,
    }
}

#[tokio::test]
async fn the_calls_of_a_dead_node_are_failed() {
    let (alive, dead) = two(server_or_skip!());
    alive.join(ONE, NOW).await.unwrap();
    dead.join(OTHER, NOW).await.unwrap();
    assert_eq!(alive.is_alive(OTHER).await, Ok(true));
    let session = open_session(&dead, 1).await;
    let (stream, _) = begin_call(&dead, session, OTHER, 1).await;
    let (_, mine) = begin_call(&alive, session, ONE, 2).await;
    assert_eq!(alive.bury_dead_nodes(NOW).await, Ok(0), "not yet");
    buried(&alive).await;
    assert_eq!(alive.is_alive(OTHER).await, Ok(false));
    assert_eq!(alive.is_alive(ONE).await, Ok(true));
    let answer = texts(&alive, session, stream).await;
    assert!(answer.len() == 1 && answer[0].contains("outcome_unknown"), "{answer:?}");
    assert_eq!(held(&alive, session, OTHER).await, 0);
    assert!(matches!(run(&alive, session, finish(mine, "mine")).await, Finished::Finished { .. }));
}

/// A node that was stopped for too long wakes up. What it held is over; what it takes from then on is found again when it dies.
#[tokio::test]
async fn a_node_that_was_buried_alive_cannot_answer_and_starts_anew() {
    let (alive, paused) = two(server_or_skip!());
    alive.join(ONE, NOW).await.unwrap();
    paused.join(OTHER, NOW).await.unwrap();
    let session = open_session(&paused, 1).await;
    let (stream, call) = begin_call(&paused, session, OTHER, 1).await;
    buried(&alive).await;
    assert_eq!(run(&paused, session, finish(call, "too late")).await, Finished::AlreadyFinished);
    assert_eq!(texts(&paused, session, stream).await.len(), 1, "one answer, and that is the error");
    for attempt in 2..5 {
        let (stream, _) = begin_call(&paused, session, OTHER, attempt).await;
        assert_eq!(alive.is_alive(OTHER).await, Ok(true), "it is there again");
        buried(&alive).await;
        let answer = texts(&alive, session, stream).await;
        assert!(answer.len() == 1 && answer[0].contains("outcome_unknown"), "{answer:?}");
    }
}

/// After a time in which nobody could be heard, the first who is does not bury all others.
#[tokio::test]
async fn after_a_silence_of_all_everybody_gets_time() {
    let server = server_or_skip!();
    let prefix = fresh_name();
    let silent = Options { node_ttl: TTL, heartbeat: Duration::from_secs(3600), ..options(server, &prefix) };
    let (one, other) = (open(silent.clone()), open(silent));
    one.join(ONE, NOW).await.unwrap();
    other.join(OTHER, NOW).await.unwrap();
    tokio::time::sleep(TTL + TTL / 2).await;
    one.join(ONE, NOW).await.unwrap();
    assert_eq!(one.bury_dead_nodes(NOW).await, Ok(0));
    assert_eq!(one.is_alive(OTHER).await, Ok(true));
    let beat_and_bury = || async {
        one.join(ONE, NOW).await.unwrap();
        (one.bury_dead_nodes(NOW).await.unwrap() == 1).then_some(())
    };
    eventually("the burial", beat_and_bury).await;
}

/// Nobody at all was heard, so it is the database that was away. Whoever asks first when it is back has not shown itself yet.
#[tokio::test]
async fn the_first_question_after_a_silence_of_all_buries_nobody() {
    let server = server_or_skip!();
    let prefix = fresh_name();
    let silent = Options { node_ttl: TTL, heartbeat: Duration::from_secs(3600), ..options(server, &prefix) };
    let (one, other) = (open(silent.clone()), open(silent));
    one.join(ONE, NOW).await.unwrap();
    other.join(OTHER, NOW).await.unwrap();
    let session = open_session(&other, 1).await;
    let (stream, call) = begin_call(&other, session, OTHER, 1).await;
    tokio::time::sleep(TTL + TTL / 2).await;
    assert_eq!(one.bury_dead_nodes(NOW).await, Ok(0));
    for node in [ONE, OTHER] {
        assert_eq!(one.is_alive(node).await, Ok(true), "{node:?}");
    }
    assert_eq!(run(&other, session, finish(call, "answer")).await, Finished::Finished { stream, seq: 1 });
}

/// Whoever has left is not waited for, whoever else is silent.
#[tokio::test]
async fn a_node_that_has_left_is_buried_in_the_silence_of_all() {
    let server = server_or_skip!();
    let prefix = fresh_name();
    let silent = Options { node_ttl: TTL, heartbeat: Duration::from_secs(3600), ..options(server, &prefix) };
    let (one, other) = (open(silent.clone()), open(silent));
    one.join(ONE, NOW).await.unwrap();
    other.join(OTHER, NOW).await.unwrap();
    let session = open_session(&other, 1).await;
    let request = Request { text: Bytes::from_static(b"do"), again: true };
    let begin = Begin { requests: vec![Some(request)], ..begin(OTHER, 1) };
    assert!(matches!(run(&other, session, begin).await, Begun::Begun { .. }));
    other.leave(OTHER, NOW).await.unwrap();
    tokio::time::sleep(TTL + TTL / 2).await;
    assert_eq!(one.is_alive(OTHER).await, Ok(false));
    assert_eq!(one.bury_dead_nodes(NOW).await, Ok(1));
}

/// By the new time everybody has been silent for an hour.
#[tokio::test]
async fn a_clock_that_is_set_ahead_kills_nobody() {
    let server = server_or_skip!();
    let prefix = fresh_name();
    let options = Options { node_ttl: TTL, heartbeat: TTL / 10, ..options(server, &prefix) };
    let (one, other) = (open(options.clone()), open(options));
    one.join(ONE, NOW).await.unwrap();
    other.join(OTHER, NOW).await.unwrap();
    for _ in 0..20 {
        set_clock_ahead(server, &prefix, Duration::from_secs(3600));
        assert_eq!(one.bury_dead_nodes(NOW).await, Ok(0));
        assert_eq!(one.is_alive(OTHER).await, Ok(true));
    }
}

#[tokio::test]
async fn a_node_that_leaves_leaves_nothing() {
    let (one, other) = two(server_or_skip!());
    one.join(ONE, NOW).await.unwrap();
    other.join(OTHER, NOW).await.unwrap();
    let session = open_session(&one, 1).await;
    let (stream, _) = begin_call(&one, session, ONE, 1).await;
    one.leave(ONE, NOW).await.unwrap();
    assert_eq!(other.is_alive(ONE).await, Ok(false));
    assert_eq!(texts(&other, session, stream).await.len(), 1);
    let begun = other.run(session, begin(OTHER, 2), NOW).await;
    assert!(matches!(begun, Ok(Begun::Begun { .. })));
}
