//! SIGTERM to the real binary while it runs a call whose client is not connected to it. The gateway
//! finishes the call before it exits, on every store.
#![cfg(unix)]

mod support;

use serde_json::Value;
use steadfast_store::testing::server::{PostgresServer, RedisServer};
use support::{Server, countdown, events, id_of, messages};

const STEPS: u64 = 20;
const STEP_MS: u64 = 50;

fn before(server: &Server, store: &str) -> Server {
    let url = format!("http://{}/mcp", server.address());
    Server::serve(&["--upstream", &url, "--listen", "127.0.0.1:0", "--store", store, "--drain", "600"])
}

/// The client that is told this has received every step once, and the result.
fn check_that_nothing_is_missing(told: &[Value], store: &str) {
    let steps: Vec<f64> = told.iter().filter_map(|message| message["params"]["progress"].as_f64()).collect();
    let expected: Vec<f64> = (0..STEPS).map(|step| step as f64).collect();
    assert_eq!(steps, expected, "on {store}: {told:?}");
    let answers: Vec<&Value> = told.iter().filter(|message| message["id"] == 1).collect();
    assert_eq!(answers.len(), 1, "on {store}: {told:?}");
    assert!(answers[0]["result"].is_object(), "on {store}: {told:?}");
}

/// Runs `check` with the address of each store that two processes can share.
fn on_each_store(check: impl Fn(&str)) {
    let directory = tempfile::tempdir().expect("a folder for the database");
    let (redis, postgres) = (RedisServer::start(&[]), PostgresServer::start(&[]));
    let servers = [redis.as_ref().map(RedisServer::url), postgres.as_ref().map(PostgresServer::url)];
    check(&format!("sqlite:{}", directory.path().join("sessions.db").display()));
    servers.into_iter().flatten().for_each(|store| check(&store));
}

#[test]
fn a_call_whose_client_is_away_is_finished_before_the_process_exits() {
    let server = Server::start_with(&["--store", "memory:"]);
    on_each_store(|store| {
        let mut gateway = before(&server, store);
        let session = gateway.open_session();
        let mut running = gateway.post(Some(&session), &countdown(1, STEPS, STEP_MS));
        let seen = running.read_until("\"progress\":1.0");
        let priming = id_of(events(&seen)[0]).to_owned();
        drop(running);
        gateway.signal("TERM");
        assert!(gateway.ended().is_some_and(|status| status.success()));
        let restarted = before(&server, store);
        let told = messages(&restarted.resume(&session, &priming).read_to_end());
        check_that_nothing_is_missing(&told, store);
    });
}

#[test]
fn a_call_whose_client_has_resumed_at_another_gateway_is_finished_before_the_process_exits() {
    let server = Server::start_with(&["--store", "memory:"]);
    on_each_store(|store| {
        let (mut gateway, other) = (before(&server, store), before(&server, store));
        let session = gateway.open_session();
        let mut running = gateway.post(Some(&session), &countdown(1, STEPS, STEP_MS));
        let seen = running.read_until("\"progress\":1.0");
        let priming = id_of(events(&seen)[0]).to_owned();
        drop(running);
        let mut resumed = other.resume(&session, &priming);
        resumed.read_until("\"progress\":2.0");
        gateway.signal("TERM");
        assert!(gateway.ended().is_some_and(|status| status.success()));
        drop(resumed);
        let told = messages(&other.resume(&session, &priming).read_to_end());
        check_that_nothing_is_missing(&told, store);
    });
}
