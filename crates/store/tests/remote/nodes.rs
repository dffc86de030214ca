//! Nodes that die, and nodes that only seemed to.

use std::time::Duration;

use bytes::Bytes;
use steadfast_session::command::{Begin, Begun, Finished};
use steadfast_session::{Holdings, NodeId, Request};
use steadfast_store::testing::server::fresh_name;
use steadfast_store::{Store as _, StoreExt};

use crate::common::{NOW, ONE, OTHER, begin, begin_call, finish, open_session, run, server_or_skip, texts};
use crate::database::{Options, Server, Store, open, options, set_clock_ahead};

/// Longer than any test takes: no test waits for time to pass, each moves the clock of the database
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

    /// So much time passes without a heartbeat of anybody.
    fn pass(&self, time: Duration) {
        set_clock_ahead(self.server, &self.prefix, time);
    }

    /// Time passes in which the first process sends heartbeats, until it counts the second one as
    /// dead. Gives how often the first was heard before that.
    async fn bury_other(&self) -> u32 {
        for beats in 1..10 {
            self.one.join(ONE, NOW).await.expect("the store answers");
            self.pass(TTL / 3);
            if self.one.bury_dead_nodes(NOW).await.expect("the store answers") > 0 {
                return beats;
            }
        }
        panic!("a process that has been silent for three times its limit counts as alive");
    }
}

async fn held(store: &Store, session: steadfast_session::SessionId, node: NodeId) -> usize {
    match store.held(session, node).await.expect("the store answers") {
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
    assert!(two.bury_other().await >= 3, "too soon");
    assert_eq!(alive.is_alive(OTHER).await, Ok(false));
    assert_eq!(alive.is_alive(ONE).await, Ok(true));
    let answer = texts(alive, session, stream).await;
    assert!(answer.len() == 1 && answer[0].contains("outcome_unknown"), "{answer:?}");
    assert_eq!(held(alive, session, OTHER).await, 0);
    assert!(matches!(run(alive, session, finish(mine, "mine")).await, Finished::Finished { .. }));
}

/// A node that was stopped for too long wakes up. What it held is over; what it takes from then on is found again when it dies.
#[tokio::test]
async fn a_node_that_was_buried_alive_cannot_answer_and_starts_anew() {
    let two = Two::start(server_or_skip!()).await;
    let (alive, paused) = (&two.one, &two.other);
    let session = open_session(paused, 1).await;
    let (stream, call) = begin_call(paused, session, OTHER, 1).await;
    two.bury_other().await;
    assert_eq!(run(paused, session, finish(call, "too late")).await, Finished::AlreadyFinished);
    assert_eq!(texts(paused, session, stream).await.len(), 1, "one answer, and that is the error");
    for attempt in 2..5 {
        let (stream, _) = begin_call(paused, session, OTHER, attempt).await;
        assert_eq!(alive.is_alive(OTHER).await, Ok(true), "it is there again");
        two.bury_other().await;
        let answer = texts(alive, session, stream).await;
        assert!(answer.len() == 1 && answer[0].contains("outcome_unknown"), "{answer:?}");
    }
}

/// After a time in which nobody could be heard, the first who is does not bury all others.
#[tokio::test]
async fn after_a_silence_of_all_everybody_gets_time() {
    let two = Two::start(server_or_skip!()).await;
    two.pass(TTL + TTL / 2);
    two.one.join(ONE, NOW).await.unwrap();
    assert_eq!(two.one.bury_dead_nodes(NOW).await, Ok(0));
    assert_eq!(two.one.is_alive(OTHER).await, Ok(true));
    assert!(two.bury_other().await >= 3, "everybody gets the whole time again");
}

/// Nobody at all was heard, so it is the database that was away. Whoever asks first when it is back has not shown itself yet.
#[tokio::test]
async fn the_first_question_after_a_silence_of_all_buries_nobody() {
    let two = Two::start(server_or_skip!()).await;
    let session = open_session(&two.other, 1).await;
    let (stream, call) = begin_call(&two.other, session, OTHER, 1).await;
    two.pass(TTL + TTL / 2);
    assert_eq!(two.one.bury_dead_nodes(NOW).await, Ok(0));
    for node in [ONE, OTHER] {
        assert_eq!(two.one.is_alive(node).await, Ok(true), "{node:?}");
    }
    assert_eq!(run(&two.other, session, finish(call, "answer")).await, Finished::Finished { stream, seq: 1 });
}

/// Whoever has left is not waited for, whoever else is silent.
#[tokio::test]
async fn a_node_that_has_left_is_buried_in_the_silence_of_all() {
    let two = Two::start(server_or_skip!()).await;
    let session = open_session(&two.other, 1).await;
    let request = Request { text: Bytes::from_static(b"do"), again: true };
    let begin = Begin { requests: vec![Some(request)], ..begin(OTHER, 1) };
    assert!(matches!(run(&two.other, session, begin).await, Begun::Begun { .. }));
    two.other.leave(OTHER, NOW).await.unwrap();
    two.pass(TTL + TTL / 2);
    assert_eq!(two.one.is_alive(OTHER).await, Ok(false));
    assert_eq!(two.one.bury_dead_nodes(NOW).await, Ok(1));
}

/// By the new time everybody has been silent for an hour.
#[tokio::test]
async fn a_clock_that_is_set_ahead_kills_nobody() {
    let two = Two::start(server_or_skip!()).await;
    for _ in 0..20 {
        two.pass(2 * TTL);
        assert_eq!(two.one.bury_dead_nodes(NOW).await, Ok(0));
        assert_eq!(two.one.is_alive(OTHER).await, Ok(true));
        // Each of them is heard again before the clock is set once more.
        two.one.join(ONE, NOW).await.unwrap();
        two.other.join(OTHER, NOW).await.unwrap();
    }
}

#[tokio::test]
async fn a_node_that_leaves_leaves_nothing() {
    let Two { one, other, .. } = Two::start(server_or_skip!()).await;
    let session = open_session(&one, 1).await;
    let (stream, _) = begin_call(&one, session, ONE, 1).await;
    one.leave(ONE, NOW).await.unwrap();
    assert_eq!(other.is_alive(ONE).await, Ok(false));
    assert_eq!(texts(&other, session, stream).await.len(), 1);
    let begun = other.run(session, begin(OTHER, 2), NOW).await;
    assert!(matches!(begun, Ok(Begun::Begun { .. })));
}
