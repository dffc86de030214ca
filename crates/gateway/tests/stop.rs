//! Shutdown of the real binary: graceful on the first signal, immediate on the second.
#![cfg(unix)]

mod support;

use std::net::TcpListener;
use std::process::{Command, Stdio};

use support::{Server, countdown};

#[test]
fn a_second_signal_ends_a_drain() {
    for (first, second) in [("INT", "INT"), ("TERM", "INT"), ("INT", "TERM")] {
        let mut server = Server::start_with(&["--store", "memory:", "--drain", "10m"]);
        let session = server.open_session();
        // The drain would wait ten minutes for this call.
        let mut running = server.post(Some(&session), &countdown(1, 1000, 60_000));
        running.read_until("\"progress\":0.0");
        server.signal(first);
        server.wait_until_closed();
        server.signal(second);
        let status = server.ended().expect("the process ends at once");
        assert_eq!(status.code(), Some(130), "{first} {second}");
    }
}

#[test]
fn a_signal_shuts_an_idle_server_down() {
    let mut server = Server::start_with(&["--store", "memory:"]);
    server.open_session();
    server.signal("TERM");
    assert_eq!(server.ended().and_then(|status| status.code()), Some(0));
}

/// The store does not answer. The signal must end the start, which would fail later otherwise.
#[test]
fn a_signal_ends_a_server_that_waits_for_its_store() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("redis://{}", silent.local_addr().unwrap());
    let program = env!("CARGO_BIN_EXE_steadfast");
    let arguments = ["serve", "--demo", "--listen", "127.0.0.1:0", "--store", &store];
    let mut process = Command::new(program).args(arguments).stderr(Stdio::null()).spawn().unwrap();
    // The process handles signals before it connects to the store.
    drop(silent.accept().unwrap());
    let pid = process.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

/// A load balancer reuses connections, and does not repeat a request that it has sent.
#[test]
fn a_request_on_an_open_connection_is_served_during_the_shutdown_delay() {
    let mut server = Server::start_with(&["--store", "memory:"]);
    let session = server.open_session();
    let mut connection = server.connect();
    let answer = connection.call(&session, &countdown(1, 1, 0));
    assert!(!answer.contains("connection: close"), "{answer}");
    server.signal("TERM");
    server.wait_until_closed();
    let answer = connection.call(&session, &countdown(2, 1, 0));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"id\":2"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    // That was the last connection, so the shutdown does not wait.
    assert_eq!(server.ended().and_then(|status| status.code()), Some(0));
}
