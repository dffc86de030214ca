//! Two processes of the real binary on one store: a client may use either at any time.

mod support;

use std::time::Duration;

use serde_json::{Value, json};
use steadfast_store::testing::server::{PostgresServer, RedisServer};
use steadfast_store::{PostgresOptions, RedisOptions};
use support::{Server, advice, council, countdown, events, id_of, messages};

#[test]
fn a_server_request_of_one_process_is_answered_at_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let (one, other) = (Server::start(&file), Server::start(&file));
    let session = one.open_session();
    let mut running = one.post(Some(&session), &council(1, 3));
    running.read_until("\"ask-2\"");
    for (ask, text) in [("ask-2", "third"), ("ask-0", "first"), ("ask-1", "second")] {
        let answered = other.post(Some(&session), &advice(ask, text)).read_to_end();
        assert!(answered.starts_with("HTTP/1.1 202"), "{answered}");
        for process in [&one, &other] {
            let again = process.post(Some(&session), &advice(ask, "again")).read_to_end();
            assert!(again.starts_with("HTTP/1.1 400"), "{again}");
        }
    }
    let received = messages(&running.read_to_end());
    let answers: Vec<&Value> = received.iter().filter(|message| message["id"] == 1).collect();
    assert_eq!(answers.len(), 1, "{received:?}");
    let said = answers[0].to_string();
    for text in ["first", "second", "third"] {
        assert!(said.contains(text), "{said}");
    }
    assert!(!said.contains("again"), "{said}");
}

/// A shutdown waits for running calls. A call that was cancelled at the other process is no longer
/// running.
#[cfg(unix)]
#[test]
fn a_call_of_one_process_is_cancelled_at_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");
    let store = format!("sqlite:{}", file.display());
    let mut one = Server::start_with(&["--store", &store, "--drain", "10m"]);
    let other = Server::start(&file);
    let session = one.open_session();
    let mut running = one.post(Some(&session), &countdown(1, 1000, 60_000));
    running.read_until("\"progress\":0.0");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let cancelled = other.post(Some(&session), &cancel).read_to_end();
    assert!(cancelled.starts_with("HTTP/1.1 202"), "{cancelled}");
    let received = messages(&running.read_to_end());
    assert!(received.iter().all(|message| message["id"] != 1), "{received:?}");
    one.signal("TERM");
    assert!(one.ended().is_some_and(|status| status.success()));
}

/// The documents promise an error within five seconds of a crash: the time without a heartbeat
/// after which a process counts as dead, and the next sweep.
#[test]
fn by_default_a_dead_process_is_found_within_five_seconds() {
    let silences = [
        RedisOptions::new("redis://localhost").node_ttl,
        PostgresOptions::parse("postgres://localhost/sessions").unwrap().node_ttl,
    ];
    let sweep = steadfast_engine::Options::default().sweep_interval;
    for silence in silences {
        assert!(silence + sweep < Duration::from_secs(5), "{silence:?} and {sweep:?}");
    }
}

#[test]
fn calls_of_a_killed_process_get_their_error() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", directory.path().join("sessions.db").display());
    let (redis, postgres) = (RedisServer::start(&[]), PostgresServer::start(&[]));
    let servers = [redis.as_ref().map(RedisServer::url), postgres.as_ref().map(PostgresServer::url)];
    for store in servers.into_iter().flatten().chain([sqlite]) {
        let (one, other) =
            (Server::start_with(&["--store", &store]), Server::start_with(&["--store", &store]));
        let session = one.open_session();
        let mut running = one.post(Some(&session), &countdown(1, 1000, 60_000));
        let seen = running.read_until("\"progress\":0.0");
        let priming = id_of(events(&seen)[0]).to_owned();
        one.kill();
        let received = messages(&other.resume(&session, &priming).read_to_end());
        let answers: Vec<&Value> = received.iter().filter(|message| message["id"] == 1).collect();
        assert_eq!(answers.len(), 1, "{received:?}");
        assert_eq!(answers[0]["error"]["data"]["reason"], "outcome_unknown", "{received:?}");
        other.kill();
    }
}
