//! SIGTERM to the real binary while it runs a call whose client is not connected to it. The gateway
//! finishes the call before it exits, on every store.
#![cfg(unix)]

mod support;

use serde_json::Value;
use steadfast_store::testing::server::{PostgresServer, RedisServer};
use support::{Server, countdown, events, id_of, messages};

const STEPS: u64 = 20;
const STEP_MS: u64 = 50;

fn in_front_of(server: &Server, store: &str) -> Server {
    let url = format!("http://{}/mcp", server.address());
    Server::serve(&["--upstream", &url, "--listen", "127.0.0.1:0", "--store", store, "--drain", "10m"])
}

/// Checks that the messages contain every step once, and the result.
fn check_that_no_message_is_missing(received: &[Value], store: &str) {
    let steps: Vec<f64> =
        received.iter().filter_map(|message| message["params"]["progress"].as_f64()).collect();
    let expected: Vec<f64> = (0..STEPS).map(|step| step as f64).collect();
    assert_eq!(steps, expected, "on {store}: {received:?}");
    let answers: Vec<&Value> = received.iter().filter(|message| message["id"] == 1).collect();
    assert_eq!(answers.len(), 1, "on {store}: {received:?}");
    assert!(answers[0]["result"].is_object(), "on {store}: {received:?}");
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
        let mut gateway = in_front_of(&server, store);
        let session = gateway.open_session();
        let mut running = gateway.post(Some(&session), &countdown(1, STEPS, STEP_MS));
        let seen = running.read_until("\"progress\":1.0");
        let priming = id_of(events(&seen)[0]).to_owned();
        drop(running);
        gateway.signal("TERM");
        assert!(gateway.ended().is_some_and(|status| status.success()));
        let restarted = in_front_of(&server, store);
        let received = messages(&restarted.resume(&session, &priming).read_to_end());
        check_that_no_message_is_missing(&received, store);
    });
}

#[test]
fn a_call_whose_client_has_resumed_at_another_gateway_is_finished_before_the_process_exits() {
    let server = Server::start_with(&["--store", "memory:"]);
    on_each_store(|store| {
        let (mut gateway, other) = (in_front_of(&server, store), in_front_of(&server, store));
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
        let received = messages(&other.resume(&session, &priming).read_to_end());
        check_that_no_message_is_missing(&received, store);
    });
}
