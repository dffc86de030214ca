//! Configuration reloads: sessions, calls and streams that a change does not concern are
//! unaffected.
#![cfg(unix)]

mod support;

/// A server that follows a script.
#[allow(dead_code, reason = "a part of it is used here")]
#[path = "../../client/tests/support/server.rs"]
mod scripted;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use support::{Server, countdown, eventually, get, messages, note};
use tempfile::TempDir;

/// A gateway with a configuration file.
struct Scene {
    _directory: TempDir,
    file: PathBuf,
    log: PathBuf,
    server: Server,
}

impl Scene {
    fn start(text: &str) -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let (file, log) = (directory.path().join("steadfast.toml"), directory.path().join("log"));
        std::fs::write(&file, text).expect("a file");
        let name = file.to_str().expect("a path of text");
        let arguments =
            ["--config", name, "--listen", "127.0.0.1:0", "--store", "memory:", "--admin", "127.0.0.1:0"];
        let server = Server::serve_logged(&arguments, &log, &[]);
        Self { _directory: directory, file, log, server }
    }

    /// Changes the file and sends SIGHUP. Returns when the change is applied or refused.
    fn change(&self, text: &str) {
        let before = self.reloads();
        std::fs::write(&self.file, text).expect("a file");
        self.server.signal("HUP");
        eventually("the configuration is read again", || self.reloads() > before);
    }

    fn reloads(&self) -> u64 {
        let text = get(self.server.admin(), "/metrics");
        let counts = text.lines().filter(|line| line.starts_with("steadfast_reloads_total"));
        counts.map(|line| line.rsplit(' ').next().expect("a number").parse::<u64>().expect("a number")).sum()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a file")
    }
}

/// The scripted server uses this function to wait.
async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(20), work).await;
    done.unwrap_or_else(|_| panic!("waited too long for {what}"))
}

fn endpoints(list: &[(&str, &str)]) -> String {
    list.iter().map(|(path, rest)| format!("[[endpoint]]\npath = \"{path}\"\n{rest}\n")).collect()
}

fn found(scene: &Scene, path: &'static str) -> bool {
    !scene.server.at(path).send("GET", None, "", "").read_to_end().contains("There is no MCP endpoint")
}

#[test]
fn sessions_calls_and_streams_survive_a_reload() {
    let (one, two) =
        (Server::start_with(&["--store", "memory:"]), Server::start_with(&["--store", "memory:"]));
    let upstream = |server: &Server| format!("id = \"b\"\nupstream = \"http://{}/mcp\"", server.address());
    let scene = Scene::start(&endpoints(&[("/a", "demo = true"), ("/b", &upstream(&one))]));
    let (a, b) = (scene.server.at("/a"), scene.server.at("/b"));
    let (in_a, in_b) = (a.open_session(), b.open_session());
    assert!(b.post(Some(&in_b), &note("at one")).read_to_end().contains("You have 1 note(s)."));
    let mut standalone: Vec<_> =
        [(a, &in_a), (b, &in_b)].map(|(at, session)| at.send("GET", Some(session), "", "")).into();
    standalone.iter_mut().for_each(|stream| drop(stream.read_until("\n\n")));
    let mut running = b.post(Some(&in_b), &countdown(1, 30, 20));
    running.read_until("\"progress\":0.0");

    let changed = format!("{}\nconcurrency = 3\nmax_request_bytes = \"1MiB\"", upstream(&two));
    scene.change(&endpoints(&[("/a", "demo = true"), ("/b", &changed), ("/c", "demo = true")]));

    assert!(found(&scene, "/c"));
    scene.server.at("/c").open_session();
    assert!(standalone.iter_mut().all(support::Reply::is_waiting), "streams stay open");
    assert!(a.post(Some(&in_a), &note("x")).read_to_end().contains("You have 1 note(s)."));
    // The session is the same. Its new server has no notes yet.
    let other = b.post(Some(&in_b), &note("at two")).read_to_end();
    assert!(other.contains("You have 1 note(s)."), "{other}");
    let received = messages(&running.read_to_end());
    let progress = received.iter().filter(|message| message["method"] == "notifications/progress").count();
    assert_eq!(progress, 30, "the call finishes where it started");
    assert!(received.last().unwrap()["result"].is_object(), "{received:?}");
}

fn in_front_of(servers: &[&Server], more: &str) -> String {
    let urls: Vec<String> = servers.iter().map(|server| format!("http://{}/mcp", server.address())).collect();
    endpoints(&[("/a", &format!("upstream = {urls:?}\n{more}"))])
}

/// The identity that the warnings in the log name.
fn named_id(log: &str) -> &str {
    let warned = log.lines().rfind(|line| line.contains("sessions_id")).expect("a warning");
    warned.split("\"sessions_id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an id")
}

/// Without `id`, sessions are kept as long as the endpoint keeps one of its replicas.
#[test]
fn a_replica_that_is_added_or_removed_keeps_the_sessions() {
    let servers = [(); 3].map(|()| Server::start_with(&["--store", "memory:"]));
    let [one, two, three] = &servers;
    let scene = Scene::start(&in_front_of(&[one], ""));
    let a = scene.server.at("/a");
    let session = a.open_session();
    let works = || a.post(Some(&session), &note("x")).read_to_end().contains("note(s).");
    assert!(works());
    scene.change(&in_front_of(&[one, two], ""));
    assert!(works());
    scene.change(&in_front_of(&[two, three], ""));
    assert!(works());
    let log = scene.log();
    assert!(log.contains("to find its sessions after a restart, set `id`"), "{log}");
    // With the `id` of the log, the endpoint keeps its sessions, with any server.
    scene.change(&in_front_of(&[one], &format!("id = \"{}\"", named_id(&log))));
    assert!(works());
}

#[test]
fn another_server_has_other_sessions() {
    let servers = [(); 2].map(|()| Server::start_with(&["--store", "memory:"]));
    let [one, two] = &servers;
    let scene = Scene::start(&in_front_of(&[one], ""));
    let a = scene.server.at("/a");
    let session = a.open_session();
    let mut running = a.post(Some(&session), &countdown(1, 20, 20));
    running.read_until("\"progress\":0.0");
    scene.change(&in_front_of(&[two], ""));
    let received = messages(&running.read_to_end());
    assert!(received.last().unwrap()["result"].is_object(), "the running call finishes: {received:?}");
    let refused = a.post(Some(&session), &note("lost")).read_to_end();
    assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
    a.open_session();
    let log = scene.log();
    assert!(log.contains("no longer finds its sessions"), "{log}");
    // The same `id` still finds them.
    scene.change(&in_front_of(&[two], &format!("id = \"{}\"", named_id(&log))));
    assert!(a.post(Some(&session), &note("found")).read_to_end().contains("You have 1 note(s)."));
}

/// An identity can move to another path, with its sessions.
#[test]
fn an_id_moves_sessions_to_another_path() {
    let scene = Scene::start(&endpoints(&[("/a", "demo = true\nid = \"x\"")]));
    let session = scene.server.at("/a").open_session();
    assert!(scene.server.at("/a").post(Some(&session), &note("a")).read_to_end().contains("You have 1"));
    scene.change(&endpoints(&[("/a", "demo = true"), ("/b", "demo = true\nid = \"x\"")]));
    let refused = scene.server.at("/a").post(Some(&session), &note("a")).read_to_end();
    assert!(refused.starts_with("HTTP/1.1 404"), "{refused}");
    let found = scene.server.at("/b").post(Some(&session), &note("b")).read_to_end();
    assert!(found.contains("You have 2 note(s)."), "{found}");
    assert!(!scene.log().contains("sessions_id"), "the sessions are found: {}", scene.log());
}

/// A server has one standalone stream per session. While a call finishes on the old upstream, the
/// new upstream opens that stream at once, and the old one closes it.
#[test]
fn the_new_upstream_takes_over_the_standalone_stream() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(scripted::Server::with_sessions(|request| {
        let go = |log: &[scripted::Request]| log.iter().any(|request| request.verb == "PROD");
        match request.verb.as_str() {
            "GET" => Some(scripted::Reply::stream().hang()),
            "POST" if request.calls("t") => {
                Some(scripted::Reply::stream().until(go).answer(request, &json!({"done": true})))
            }
            _ => None,
        }
    }));
    let count = |log: &[scripted::Request], verb: &str| log.iter().filter(|one| one.verb == verb).count();
    let upstream = format!("upstream = \"{}\"", server.url());
    let scene = Scene::start(&endpoints(&[("/a", &upstream)]));
    let a = scene.server.at("/a");
    let session = a.open_session();
    runtime.block_on(server.until("the stream", |log| count(log, "GET") == 1));
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}});
    let running = a.post(Some(&session), &call);
    runtime.block_on(server.until("the call", |log| log.iter().any(|one| one.calls("t"))));
    scene.change(&endpoints(&[("/a", &format!("{upstream}\nconcurrency = 3"))]));
    runtime.block_on(server.until("another stream", |log| count(log, "GET") == 2));
    runtime.block_on(server.until("the end of the first", |log| count(log, "CLOSED") == 1));
    server.prod();
    let received = messages(&running.read_to_end());
    assert_eq!(received.last().unwrap()["result"], json!({"done": true}), "{received:?}");
    assert_eq!((count(&server.log(), "GET"), count(&server.log(), "CLOSED")), (2, 1));
}

/// The upstream that has received `initialize` finishes it. Then the session is like any other.
#[test]
fn a_session_that_is_being_opened_survives_a_reload() {
    for is_moved in [false, true] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (one, two) = (runtime.block_on(slow_to_open()), runtime.block_on(slow_to_open()));
        two.prod();
        let upstream = |server: &scripted::Server, more: &str| {
            endpoints(&[("/a", &format!("id = \"a\"\nupstream = \"{}\"\n{more}", server.url()))])
        };
        let scene = Scene::start(&upstream(&one, ""));
        let a = scene.server.at("/a");
        let opened = std::thread::scope(|scope| {
            let opened = scope.spawn(|| a.open_session());
            runtime.block_on(one.until("the beginning", |log| log.iter().any(is_opening)));
            scene.change(&upstream(if is_moved { &two } else { &one }, "concurrency = 3"));
            one.prod();
            opened.join().expect("a session")
        });
        let listeners = |log: &[scripted::Request]| {
            let count = |verb: &str| log.iter().filter(|one| one.verb == verb).count();
            count("GET") - count("CLOSED")
        };
        if !is_moved {
            runtime.block_on(one.until("its own stream", move |log| listeners(log) == 1));
        }
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}});
        let received = messages(&a.post(Some(&opened), &call).read_to_end());
        assert_eq!(
            received.last().unwrap()["result"],
            json!({"content": []}),
            "moved {is_moved}: {received:?}"
        );
        let openings = [&one, &two].map(|server| server.count(is_opening));
        assert_eq!(
            openings,
            if is_moved { [1, 1] } else { [1, 0] },
            "no upstream session is opened needlessly"
        );
    }
}

fn is_opening(request: &scripted::Request) -> bool {
    request.method() == "initialize"
}

/// A server that answers `initialize` only after `prod`.
async fn slow_to_open() -> scripted::Server {
    scripted::Server::with_sessions(|request| {
        let go = |log: &[scripted::Request]| log.iter().any(|request| request.verb == "PROD");
        let result = json!({"content": []});
        let welcome = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"},
        });
        match request.verb.as_str() {
            "GET" => Some(scripted::Reply::stream().hang()),
            "POST" if is_opening(request) => {
                let with_id = scripted::Reply::stream().replace("200 x", "200 x\r\nmcp-session-id: s1");
                Some(with_id.until(go).answer(request, &welcome))
            }
            "POST" if request.calls("t") => Some(scripted::Reply::result(request, &result)),
            _ => None,
        }
    })
    .await
}

/// A call that runs on the old upstream counts toward the concurrency of the new one.
#[test]
fn a_reload_does_not_exceed_the_concurrency() {
    for before in ["concurrency = 1", "", "concurrency = 2"] {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let server = runtime.block_on(scripted::Server::with_sessions(|request| {
            let go = |log: &[scripted::Request]| log.iter().any(|request| request.verb == "PROD");
            let result = json!({"content": []});
            match request.verb.as_str() {
                "POST" if request.calls("slow") => {
                    Some(scripted::Reply::stream().until(go).answer(request, &result))
                }
                "POST" if request.calls("quick") => Some(scripted::Reply::result(request, &result)),
                _ => None,
            }
        }));
        let upstream = |more: &str| endpoints(&[("/a", &format!("upstream = \"{}\"\n{more}", server.url()))]);
        let scene = Scene::start(&upstream(before));
        let a = scene.server.at("/a");
        let session = a.open_session();
        let call = |id: u64, name: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name}});
        let slow = a.post(Some(&session), &call(1, "slow"));
        runtime.block_on(server.until("the call", |log| log.iter().any(|one| one.calls("slow"))));
        scene.change(&upstream("concurrency = 1\nmax_response_bytes = \"1MiB\""));
        let quick = a.post(Some(&session), &call(2, "quick"));
        let has_come = || server.count(|request| request.calls("quick")) > 0;
        let waits =
            || get(scene.server.admin(), "/metrics").contains("steadfast_queued_calls{endpoint=\"/a\"} 1");
        eventually("the second call is queued or sent", || has_come() || waits());
        assert!(!has_come(), "{before}: two calls at a time");
        server.prod();
        for (name, reply) in [("slow", slow), ("quick", quick)] {
            let received = messages(&reply.read_to_end());
            assert_eq!(
                received.last().unwrap()["result"],
                json!({"content": []}),
                "{before}: {name}: {received:?}"
            );
        }
    }
}

#[test]
fn a_removed_endpoint_finishes_its_calls() {
    let both = endpoints(&[("/a", "demo = true"), ("/b", "demo = true")]);
    let scene = Scene::start(&both);
    let b = scene.server.at("/b");
    let session = b.open_session();
    let mut running = b.post(Some(&session), &countdown(1, 20, 20));
    running.read_until("\"progress\":0.0");
    let mut waiting = b.send("GET", Some(&session), "", "");
    waiting.read_until("\n\n");
    scene.change(&endpoints(&[("/a", "demo = true")]));
    assert!(!found(&scene, "/b"));
    assert!(waiting.read_to_end().contains("retry:"), "the stream ends with a retry hint");
    let received = messages(&running.read_to_end());
    assert!(received.last().unwrap()["result"].is_object(), "{received:?}");
    scene.change(&both);
    assert!(
        b.post(Some(&session), &note("again")).read_to_end().contains("You have 1 note(s)."),
        "the session was kept"
    );
}

#[test]
fn http_settings_apply_to_the_next_request() {
    let scene = Scene::start(&endpoints(&[("/a", "demo = true")]));
    let a = scene.server.at("/a");
    let session = a.open_session();
    let large = note(&"x".repeat(2000));
    assert!(a.post(Some(&session), &large).read_to_end().starts_with("HTTP/1.1 200"));
    scene.change(&endpoints(&[("/a", "demo = true\nmax_request_bytes = \"1KiB\"")]));
    assert!(a.post(Some(&session), &large).read_to_end().starts_with("HTTP/1.1 413"));
}

#[test]
fn a_file_with_faults_changes_nothing() {
    let text = endpoints(&[("/a", "demo = true")]);
    let scene = Scene::start(&text);
    let session = scene.server.at("/a").open_session();
    scene.change("[[endpoint]]\npth = \"/b\"\n");
    let log = scene.log();
    assert!(log.contains("unknown key"), "{log}");
    assert!(log.contains(&format!("{}:2:1", scene.file.display())), "{log}");
    assert!(log.contains("did you mean `path`?") && log.contains("the old one stays in use"), "{log}");
    assert!(scene.server.at("/a").post(Some(&session), &note("x")).read_to_end().starts_with("HTTP/1.1 200"));
    std::fs::remove_file(&scene.file).unwrap();
    scene.server.signal("HUP");
    eventually("the missing file is reported", || {
        scene.log().contains("cannot use the new configuration; the old one stays")
    });
    assert!(scene.server.at("/a").post(Some(&session), &note("x")).read_to_end().starts_with("HTTP/1.1 200"));
}

#[test]
fn keys_that_need_a_restart_are_logged_at_each_reload() {
    let text = endpoints(&[("/a", "demo = true")]);
    let scene = Scene::start(&format!("session.idle_timeout = \"1h\"\n{text}"));
    let other = endpoints(&[("/a", "demo = true\ntimeouts.call = \"2h\"")]);
    for times in 1..=2 {
        scene.change(&format!("session.idle_timeout = \"2h\"\n{other}"));
        let log = scene.log();
        let logged = |key: &str| {
            log.lines().filter(|line| line.contains("needs a restart") && line.contains(key)).count()
        };
        // Once for the signal, and once more if the watcher finds the change first.
        assert!(
            logged("\"session\"") >= times && logged("timeouts.call of the endpoint /a") >= times,
            "{log}"
        );
        assert_eq!(logged("listen"), 0, "{log}");
    }
}

/// Without a signal.
#[test]
fn a_changed_file_is_reloaded() {
    let scene = Scene::start(&endpoints(&[("/a", "demo = true")]));
    std::fs::write(&scene.file, endpoints(&[("/bb", "demo = true")])).unwrap();
    eventually("the new endpoint is there", || found(&scene, "/bb"));
    assert!(!found(&scene, "/a"));
}

#[test]
fn the_log_filter_can_be_reloaded() {
    let text = endpoints(&[("/a", "demo = true")]);
    let scene = Scene::start(&text);
    let refused = || drop(scene.server.at("/a").send("PATCH", None, "", "").read_to_end());
    refused();
    assert!(!scene.log().contains("refused"));
    scene.change(&format!("log = \"steadfast_http=debug\"\n{text}"));
    refused();
    eventually("the refusal is logged", || scene.log().contains("\"refused\""));
    let log = scene.log();
    let line = log.lines().find(|line| line.contains("\"refused\"")).unwrap();
    assert!(
        line.contains("\"method\":\"PATCH\"") && line.contains("\"path\":\"/a\"") && line.contains("405"),
        "{line}"
    );
}
