//! The gateway in front of a server, which is another process of the binary with the demo server.

mod support;

use support::{Server, countdown, messages, note};

fn in_front_of(server: &Server, arguments: &[&str]) -> Server {
    let url = format!("http://{}/mcp", server.address());
    Server::serve(&[&["--upstream", &url, "--listen", "127.0.0.1:0"], arguments].concat())
}

#[test]
fn calls_reach_the_server_and_answers_the_client() {
    let demo = Server::start_with(&["--store", "memory:"]);
    let gateway = in_front_of(&demo, &["--store", "memory:"]);
    let session = gateway.open_session();
    let received = messages(&gateway.post(Some(&session), &countdown(7, 3, 0)).read_to_end());
    let progress = received.iter().filter(|message| message["method"] == "notifications/progress").count();
    assert_eq!(progress, 3, "{received:?}");
    assert_eq!(received.last().unwrap()["id"], 7);
    assert!(received.last().unwrap()["result"].is_object(), "{received:?}");
}

#[test]
fn a_restarted_gateway_finds_its_upstream_sessions_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", directory.path().join("s.db").display());
    let demo = Server::start_with(&["--store", "memory:"]);
    let gateway = in_front_of(&demo, &["--store", &store]);
    let session = gateway.open_session();
    assert!(gateway.post(Some(&session), &note("before")).read_to_end().contains("You have 1 note(s)."));
    gateway.kill();
    let gateway = in_front_of(&demo, &["--store", &store]);
    let after = gateway.post(Some(&session), &note("after")).read_to_end();
    assert!(after.contains("You have 2 note(s)."), "{after}");
}
