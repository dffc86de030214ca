//! Stopping the real binary: once in good order, twice at once.
#![cfg(unix)]

mod support;

use support::{Server, countdown};

#[test]
fn a_second_signal_ends_a_drain() {
    for (first, second) in [("INT", "INT"), ("TERM", "INT"), ("INT", "TERM")] {
        let mut server = Server::start_with(&["--store", "memory:", "--drain", "600"]);
        let session = server.open_session();
        // It would keep the drain waiting for ten minutes.
        let mut running = server.post(Some(&session), &countdown(1, 1000, 60_000));
        running.read_until("\"progress\":0.0");
        server.signal(first);
        server.wait_until_draining(&session);
        server.signal(second);
        let status = server.ended().expect("the process ends at once");
        assert_eq!(status.code(), Some(130), "{first} {second}");
    }
}

#[test]
fn a_signal_ends_an_idle_server_in_good_order() {
    let mut server = Server::start_with(&["--store", "memory:"]);
    server.open_session();
    server.signal("TERM");
    assert_eq!(server.ended().and_then(|status| status.code()), Some(0));
}
