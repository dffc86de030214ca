//! The gateway in front of a server: another process of the binary, with the demo.

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
    let told = messages(&gateway.post(Some(&session), &countdown(7, 3, 0)).read_to_end());
    let progress = told.iter().filter(|message| message["method"] == "notifications/progress").count();
    assert_eq!(progress, 3, "{told:?}");
    assert_eq!(told.last().unwrap()["id"], 7);
    assert!(told.last().unwrap()["result"].is_object(), "{told:?}");
}

#[test]
fn a_gateway_that_is_killed_finds_its_sessions_at_the_server_again() {
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
