//! Nodes that die, and nodes that only seemed dead.

use std::time::Duration;

use bytes::Bytes;
use steadfast_session::command::{Begin, Begun, Finished};
use steadfast_session::{Holdings, NodeId, Request};
use steadfast_store::testing::server::fresh_name;
use steadfast_store::{Store as _, StoreExt};

use crate::common::{NOW, ONE, OTHER, begin, begin_call, finish, open_session, run, server_or_skip, texts};
use crate::database::{Options, Server, Store, open, options, set_clock_ahead};

/// Longer than any test takes. No test waits for time to pass: each moves the clock of the database
/// ([`set_clock_ahead`]).
const TTL: Duration = Duration::from_secs(3600);

/// Two processes on one database. Neither sends heartbeats by itself.
struct Two {
    one: Store,
    other: Store,
    server: &'static Server,
    prefix: String,
}

impl Two {
    async fn start(server: &'static Server) -> Self {
        let prefix = fresh_name();
        let silent = Options { node_ttl: TTL, heartbeat: 10 * TTL, ..options(server, &prefix) };
        let (one, other) = (open(silent.clone()), open(silent));
        one.join(ONE, NOW).await.expect("the store answers");
        other.join(OTHER, NOW).await.expect("the store answers");
        Self { one, other, server, prefix }
    }

    /// Lets time pass without any heartbeat.
    fn advance_clock(&self, time: Duration) {
        set_clock_ahead(self.server, &self.prefix, time);
    }

    /// Lets time pass while the first process sends heartbeats, until it reaps the second one.
    /// Returns how many heartbeats the first one sent before that.
    async fn reap_other(&self) -> u32 {
        for beats in 1..10 {
            self.one.join(ONE, NOW).await.expect("the store answers");
            self.advance_clock(TTL / 3);
            if self.one.reap_dead_nodes(NOW).await.expect("the store answers") > 0 {
                return beats;
            }
        }
        panic!("a process that has been silent for three times its limit counts as alive");
    }
}

async fn held(store: &Store, session: steadfast_session::SessionId, node: NodeId) -> usize {
    match store.holdings(session, node).await.expect("the store answers") {
        Holdings::Held { calls, connections, .. } => calls.len() + connections.len(),
        Holdings::NoSession => 0,
    }
}

#[tokio::test]
async fn the_calls_of_a_dead_node_are_failed() {
    let two = Two::start(server_or_skip!()).await;
    let (alive, dead) = (&two.one, &two.other);
    assert_eq!(alive.is_alive(OTHER).await, Ok(true));
    let session = open_session(dead, 1).await;
    let (stream, _) = begin_call(dead, session, OTHER, 1).await;
    let (_, mine) = begin_call(alive, session, ONE, 2).await;
    assert!(two.reap_other().await >= 3, "too soon");
    assert_eq!(alive.is_alive(OTHER).await, Ok(false));
    assert_eq!(alive.is_alive(ONE).await, Ok(true));
    let answer = texts(alive, session, stream).await;
    assert!(answer.len() == 1 && answer[0].contains("outcome_unknown"), "{answer:?}");
    assert_eq!(held(alive, session, OTHER).await, 0);
    assert!(matches!(run(alive, session, finish(mine, "mine")).await, Finished::Finished { .. }));
}

/// A node that was stopped for too long continues. Its calls have failed. What it gets from now on
/// is found when it dies again.
#[tokio::test]
async fn a_live_node_that_was_reaped_cannot_answer_and_rejoins() {
    let two = Two::start(server_or_skip!()).await;
    let (alive, paused) = (&two.one, &two.other);
    let session = open_session(paused, 1).await;
    let (stream, call) = begin_call(paused, session, OTHER, 1).await;
    two.reap_other().await;
    assert_eq!(run(paused, session, finish(call, "too late")).await, Finished::AlreadyFinished);
    assert_eq!(texts(paused, session, stream).await.len(), 1, "one answer, and that is the error");
    for attempt in 2..5 {
        let (stream, _) = begin_call(paused, session, OTHER, attempt).await;
        assert_eq!(alive.is_alive(OTHER).await, Ok(true), "it is there again");
        two.reap_other().await;
        let answer = texts(alive, session, stream).await;
        assert!(answer.len() == 1 && answer[0].contains("outcome_unknown"), "{answer:?}");
    }
}

/// After a time without any heartbeats, the first node that sends one does not reap all others.
#[tokio::test]
async fn after_a_time_without_heartbeats_every_node_gets_the_full_time() {
    let two = Two::start(server_or_skip!()).await;
    two.advance_clock(TTL + TTL / 2);
    two.one.join(ONE, NOW).await.unwrap();
    assert_eq!(two.one.reap_dead_nodes(NOW).await, Ok(0));
    assert_eq!(two.one.is_alive(OTHER).await, Ok(true));
    assert!(two.reap_other().await >= 3, "every node gets the full time again");
}

/// Without any heartbeats it is the database that was down. The first node that asks has not sent a
/// heartbeat yet either.
#[tokio::test]
async fn the_first_reap_after_a_time_without_heartbeats_reaps_no_node() {
    let two = Two::start(server_or_skip!()).await;
    let session = open_session(&two.other, 1).await;
    let (stream, call) = begin_call(&two.other, session, OTHER, 1).await;
    two.advance_clock(TTL + TTL / 2);
    assert_eq!(two.one.reap_dead_nodes(NOW).await, Ok(0));
    for node in [ONE, OTHER] {
        assert_eq!(two.one.is_alive(node).await, Ok(true), "{node:?}");
    }
    assert_eq!(run(&two.other, session, finish(call, "answer")).await, Finished::Finished { stream, seq: 1 });
}

/// A node that has left is reaped even while no node sends heartbeats.
#[tokio::test]
async fn a_node_that_has_left_is_reaped_without_any_heartbeats() {
    let two = Two::start(server_or_skip!()).await;
    let session = open_session(&two.other, 1).await;
    let request = Request { text: Bytes::from_static(b"do"), reassignable: true };
    let begin = Begin { requests: vec![Some(request)], ..begin(OTHER, 1) };
    assert!(matches!(run(&two.other, session, begin).await, Begun::Begun { .. }));
    two.other.leave(OTHER, NOW).await.unwrap();
    two.advance_clock(TTL + TTL / 2);
    assert_eq!(two.one.is_alive(OTHER).await, Ok(false));
    assert_eq!(two.one.reap_dead_nodes(NOW).await, Ok(1));
}

/// By the new clock, every node has sent no heartbeat for two hours.
#[tokio::test]
async fn no_node_counts_as_dead_when_the_clock_is_set_ahead() {
    let two = Two::start(server_or_skip!()).await;
    for _ in 0..20 {
        two.advance_clock(2 * TTL);
        assert_eq!(two.one.reap_dead_nodes(NOW).await, Ok(0));
        assert_eq!(two.one.is_alive(OTHER).await, Ok(true));
        // Each node sends a heartbeat before the clock is set again.
        two.one.join(ONE, NOW).await.unwrap();
        two.other.join(OTHER, NOW).await.unwrap();
    }
}

#[tokio::test]
async fn a_node_that_leaves_holds_nothing() {
    let Two { one, other, .. } = Two::start(server_or_skip!()).await;
    let session = open_session(&one, 1).await;
    let (stream, _) = begin_call(&one, session, ONE, 1).await;
    one.leave(ONE, NOW).await.unwrap();
    assert_eq!(other.is_alive(ONE).await, Ok(false));
    assert_eq!(texts(&other, session, stream).await.len(), 1);
    let begun = other.run(session, begin(OTHER, 2), NOW).await;
    assert!(matches!(begun, Ok(Begun::Begun { .. })));
}
