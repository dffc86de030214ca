//! A session that the server cannot read for now does not delay other sessions. A full server still
//! accepts what ends something.

use std::time::Duration;

use steadfast_session::command::{Close, Closed, Finished};
use steadfast_session::{CloseReason, SessionId, Time};
use steadfast_store::testing::server::fresh_name;
use steadfast_store::{Store as _, StoreError, StoreExt as _};

use crate::common::{
    NOW, ONE, OTHER, begin, begin_call, eventually, facts, finish, id, message, open_session, run,
    server_or_skip, texts,
};
use crate::database::{Options, Server, ask, open, options};

/// A time when every session that was opened at [`NOW`] has expired.
const ALL_EXPIRED: Time = Time(NOW.0 + 10 * 365 * 24 * 60 * 60 * 1000);

/// More than a sweep or a reap works on at once.
const MANY: u8 = 70;

/// How long a command is retried.
const RETRY_WINDOW: Duration = Duration::from_millis(50);

/// Makes every request for the session fail, as if its server of a cluster were down.
fn make_unavailable(server: &Server, prefix: &str, session: SessionId) {
    let () = ask(server, &format!("SET {prefix}:{{{}}} nonsense", session.text()));
}

fn is_unavailable<T>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(StoreError::Unavailable(_)))
}

#[tokio::test]
async fn other_sessions_are_swept() {
    let (server, prefix) = (server_or_skip!(), fresh_name());
    let options = Options { retry_window: RETRY_WINDOW, ..options(server, &prefix) };
    let (store, sweeper) = (open(options.clone()), open(options));
    let mut sessions = Vec::new();
    for n in 1..=MANY {
        sessions.push(open_session(&store, n).await);
    }
    make_unavailable(server, &prefix, sessions[0]);
    assert!(is_unavailable(&sweeper.sweep(ALL_EXPIRED, 256).await), "the sweep returns the error");
    for session in &sessions[1..] {
        assert_eq!(store.facts(*session).await, Ok(None));
    }
}

#[tokio::test]
async fn an_unavailable_session_does_not_stay_first_in_the_schedule() {
    let (server, prefix) = (server_or_skip!(), fresh_name());
    let options = Options { retry_window: RETRY_WINDOW, ..options(server, &prefix) };
    let (store, sweeper) = (open(options.clone()), open(options));
    let (first, second) = (open_session(&store, 1).await, open_session(&store, 2).await);
    make_unavailable(server, &prefix, first);
    assert!(is_unavailable(&sweeper.sweep(ALL_EXPIRED, 1).await));
    assert_eq!(sweeper.sweep(ALL_EXPIRED, 1).await, Ok(1));
    assert_eq!(store.facts(second).await, Ok(None));
    let later = Time(ALL_EXPIRED.0 + 60 * 1000);
    let reassignable =
        eventually("another try", async || Some(sweeper.sweep(later, 256).await).filter(is_unavailable));
    reassignable.await.unwrap_err();
}

#[tokio::test]
async fn other_sessions_are_released_from_a_dead_node() {
    let (server, prefix) = (server_or_skip!(), fresh_name());
    let ttl = Duration::from_secs(2);
    let options = Options { retry_window: RETRY_WINDOW, node_ttl: ttl, ..options(server, &prefix) };
    let alive = open(Options { heartbeat: ttl / 10, ..options.clone() });
    let dead = open(Options { heartbeat: Duration::from_secs(3600), ..options });
    alive.join(ONE, NOW).await.unwrap();
    dead.join(OTHER, NOW).await.unwrap();
    for n in 1..MANY {
        let session = open_session(&dead, n).await;
        make_unavailable(server, &prefix, session);
    }
    let last = open_session(&dead, MANY).await;
    let (stream, _) = begin_call(&dead, last, OTHER, 1).await;
    let freed = eventually("the error", async || {
        let reaped = alive.reap_dead_nodes(NOW).await;
        assert!(is_unavailable(&reaped) || reaped == Ok(0), "{reaped:?}");
        Some(texts(&alive, last, stream).await).filter(|texts| !texts.is_empty())
    });
    assert!(freed.await[0].contains("outcome_unknown"));
}

/// What was accepted completes, and that frees space. New work is refused, and nothing that was
/// acknowledged is lost.
#[tokio::test]
async fn a_full_server_accepts_what_ends_something() {
    let Some(server) = Server::start(&["--maxmemory-policy", "noeviction"]) else { return };
    let store = open(Options { retry_window: RETRY_WINDOW, ..options(&server, "t") });
    store.join(ONE, NOW).await.unwrap();
    let (session, idle) = (open_session(&store, 1).await, open_session(&store, 2).await);
    let (stream, call) = begin_call(&store, session, ONE, 1).await;
    let () = ask(&server, "CONFIG SET maxmemory 1");
    let full = |error: StoreError| matches!(error, StoreError::Unavailable(why) if why.contains("maxmemory"));
    assert!(full(store.run(session, begin(ONE, 2), NOW).await.unwrap_err()));
    assert!(full(store.run(session, message("hello"), NOW).await.unwrap_err()));
    assert!(full(store.open(facts(id(3))).await.unwrap_err()));
    let finished = run(&store, session, finish(call, "answer")).await;
    assert_eq!(finished, Finished::Finished { stream, seq: 1 });
    assert_eq!(texts(&store, session, stream).await, ["answer"]);
    assert_eq!(run(&store, idle, Close { reason: CloseReason::Deleted }).await, Closed::Closed);
    let () = ask(&server, "CONFIG SET maxmemory 0");
    begin_call(&store, session, ONE, 3).await;
    assert_eq!(texts(&store, session, stream).await, ["answer"]);
}
