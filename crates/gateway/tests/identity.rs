//! Gateways on one store: endpoints with the same identity share sessions, and endpoints with
//! different servers share none.
#![cfg(unix)]

mod support;

/// A server that follows a script.
#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../client/tests/support/server.rs"]
mod scripted;

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Server, events, eventually, id_of, messages, note};
use tempfile::TempDir;

/// A folder with a SQLite file that gateways share.
struct Shared {
    directory: TempDir,
    store: String,
}

impl Shared {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let store = format!("sqlite:{}", directory.path().join("s.db").display());
        Self { directory, store }
    }

    fn gateway(&self, upstream: &str, more: &[&str]) -> Server {
        Server::serve_logged(&self.arguments(upstream, more), &self.log(), &[])
    }

    fn arguments<'a>(&'a self, upstream: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["--upstream", upstream, "--listen", "127.0.0.1:0", "--store", &self.store], more].concat()
    }

    /// The log of the gateway that was started last.
    fn log(&self) -> std::path::PathBuf {
        self.directory.path().join("log")
    }

    /// Nodes that the store lists: each has a file beside the database.
    fn nodes(&self) -> usize {
        let names = std::fs::read_dir(self.directory.path()).expect("the folder");
        names.filter(|name| is_lock_file(&name.as_ref().expect("a name").path())).count()
    }
}

fn is_lock_file(path: &Path) -> bool {
    path.to_string_lossy().contains("s.db-node-")
}

fn demo() -> (Server, String) {
    let demo = Server::start_with(&["--store", "memory:"]);
    let url = format!("http://{}/mcp", demo.address());
    (demo, url)
}

fn id_in_banner(server: &Server) -> String {
    let line = server.banner().lines().find_map(|line| line.strip_prefix("         id "));
    line.expect("the banner names the identity").to_owned()
}

/// The scripted server uses this function to wait.
async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(20), work).await;
    done.unwrap_or_else(|_| panic!("waited too long for {what}"))
}

/// A server with one read-only tool, `t`, which answers after `prod`.
async fn reader() -> scripted::Server {
    scripted::Server::with_sessions(|request| {
        let go = |log: &[scripted::Request]| log.iter().any(|request| request.verb == "PROD");
        let tool =
            json!({"name": "t", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}});
        match request.verb.as_str() {
            "POST" if request.method() == "tools/list" => {
                Some(scripted::Reply::result(request, &json!({"tools": [tool]})))
            }
            "POST" if request.calls("t") => {
                Some(scripted::Reply::stream().until(go).answer(request, &json!({"content": []})))
            }
            _ => None,
        }
    })
    .await
}

fn call(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "t"}})
}

#[test]
fn a_session_of_another_server_does_not_exist_here() {
    let shared = Shared::new();
    let ((_one, first), (_two, second)) = (demo(), demo());
    let a = Server::serve(&shared.arguments(&first, &[]));
    let b = shared.gateway(&second, &[]);
    let session = a.open_session();
    let said = a.post(Some(&session), &note("mine")).read_to_end();
    assert!(said.contains("You have 1 note(s)."), "{said}");
    let event = id_of(events(&said)[0]).to_owned();
    let at = b.at("/mcp");
    for reply in [
        at.post(Some(&session), &note("not yours")),
        at.send("GET", Some(&session), "", ""),
        at.resume(&session, &event),
        at.send("DELETE", Some(&session), "", ""),
    ] {
        let reply = reply.read_to_end();
        assert!(reply.starts_with("HTTP/1.1 404") && reply.contains("There is no such session."), "{reply}");
    }
    let after = a.post(Some(&session), &note("still mine")).read_to_end();
    assert!(after.contains("You have 2 note(s)."), "{after}");

    let log = std::fs::read_to_string(shared.log()).expect("a log");
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("another identity")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    let names = [id_in_banner(&a), id_in_banner(&b), "\"path\":\"/mcp\"".into(), "set `id`".into()];
    assert!(warnings[0].contains("WARN") && names.iter().all(|name| warnings[0].contains(name)), "{log}");
}

/// The other gateway reaps the dead one, and must not send the call to a server that does not know
/// its session.
#[test]
fn calls_of_a_dead_gateway_are_not_run_by_one_with_another_server() {
    let shared = Shared::new();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (one, two) = (runtime.block_on(reader()), runtime.block_on(reader()));
    let (first, second) = (one.url().to_string(), two.url().to_string());
    let a = shared.gateway(&first, &[]);
    let session = a.open_session();
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert!(a.post(Some(&session), &list).read_to_end().contains("readOnlyHint"));
    let mut running = a.post(Some(&session), &call(2));
    let event = id_of(events(&running.read_until("id: "))[0]).to_owned();
    runtime.block_on(one.until("the call", |log| log.iter().any(|one| one.calls("t"))));
    let b = shared.gateway(&second, &[]);
    assert_eq!(shared.nodes(), 2);
    a.kill();
    eventually("the dead gateway is reaped", || shared.nodes() == 1);
    assert_eq!(two.count(|request| request.calls("t")), 0, "the call was sent to another server");

    let a = shared.gateway(&first, &[]);
    let received = messages(&a.resume(&session, &event).read_to_end());
    let answers: Vec<&Value> = received.iter().filter(|message| message["id"] == 2).collect();
    assert_eq!(answers.len(), 1, "{received:?}");
    assert_eq!(answers[0]["error"]["data"]["reason"], "outcome_unknown", "{received:?}");
    assert_eq!(one.count(|request| request.calls("t")), 1, "the call was executed again");
    drop(b);
}

/// A server moves to another address while gateways are replaced one after the other. Each gateway
/// sends the calls that it receives to its own address, because the number of calls is not limited.
#[test]
fn sessions_follow_the_id_to_another_address() {
    let shared = Shared::new();
    let ((_one, first), (_two, second)) = (demo(), demo());
    let old = Server::serve(&shared.arguments(&first, &["--id", "notes", "--concurrency", "unlimited"]));
    let session = old.open_session();
    let new = shared.gateway(&second, &["--id", "notes", "--concurrency", "unlimited", "--path", "/moved"]);
    for (at, text) in [(new.at("/moved"), "new"), (old.at("/mcp"), "old")] {
        let said = at.post(Some(&session), &note(text)).read_to_end();
        assert!(said.starts_with("HTTP/1.1 200") && said.contains("note(s)."), "{said}");
    }
    old.kill();
    let said = new.at("/moved").post(Some(&session), &note("newer")).read_to_end();
    assert!(said.contains("You have 2 note(s)."), "{said}");
    let log = std::fs::read_to_string(shared.log()).expect("a log");
    assert!(!log.contains("another identity"), "{log}");
}

/// An operator copies the identity from the banner to keep the sessions.
#[test]
fn the_hash_as_an_id_keeps_the_existing_sessions() {
    let shared = Shared::new();
    let ((_one, first), (_two, second)) = (demo(), demo());
    let before = shared.gateway(&first, &[]);
    let (session, id) = (before.open_session(), id_in_banner(&before));
    before.kill();
    let moved = shared.gateway(&second, &["--id", &id]);
    let said = moved.post(Some(&session), &note("moved")).read_to_end();
    assert!(said.contains("You have 1 note(s)."), "{said}");
    assert_eq!(id_in_banner(&moved), id);
    moved.kill();
    let moved = shared.gateway(&second, &[]);
    let said = moved.post(Some(&session), &note("lost")).read_to_end();
    assert!(said.starts_with("HTTP/1.1 404"), "{said}");
}
