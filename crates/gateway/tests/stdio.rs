//! The gateway in front of a program with the stdio transport.
#![cfg(unix)]

mod support;

use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;

use serde_json::{Value, json};
use support::{At, Server, eventually, get, messages};
use tempfile::TempDir;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../upstream/tests/stdio/server.py");

/// Reloads: a value in the environment of the program, where another value means another program,
/// and keys of the endpoint.
const CHANGES: [(&str, &str); 3] = [
    ("two", ""),
    ("one", "max_request_bytes = \"1MiB\""),
    ("one", "timeouts = { unavailable = \"5s\", control = \"9m\" }\nhealth_check.silence = \"1s\""),
];

fn call(id: u64, tool: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

fn result(at: At<'_>, session: &str, tool: &str) -> Value {
    let reply = at.post(Some(session), &call(1, tool, json!({}))).read_to_end();
    let received = messages(&reply);
    received.last().unwrap_or_else(|| panic!("{reply}"))["result"].clone()
}

fn is_alive(pid: &Value) -> bool {
    let alive = Command::new("kill").args(["-0", &pid.to_string()]).stderr(Stdio::null()).status();
    alive.expect("the command `kill`").success()
}

#[test]
fn each_session_has_its_process_and_none_outlives_the_gateway() {
    let command = format!("python3 '{PROGRAM}'");
    let mut gateway = Server::serve(&["--stdio", &command, "--listen", "127.0.0.1:0", "--store", "memory:"]);
    assert!(gateway.banner().contains("in front of the program python3\n"), "{}", gateway.banner());
    let at = gateway.at("/mcp");
    let pids: Vec<Value> = [at.open_session(), at.open_session()]
        .iter()
        .map(|session| {
            let first = result(at, session, "pid")["pid"].clone();
            assert_eq!(result(at, session, "pid")["pid"], first, "a session keeps its process");
            first
        })
        .collect();
    assert!(pids[0].is_u64() && pids[0] != pids[1], "{pids:?}");
    assert!(pids.iter().all(is_alive));
    gateway.signal("TERM");
    assert_eq!(gateway.ended().and_then(|status| status.code()), Some(0));
    eventually("the programs have ended", || !pids.iter().any(is_alive));
}

/// A gateway in front of the program, with its configuration file.
struct Scene {
    directory: TempDir,
    gateway: Server,
}

impl Scene {
    fn start(text: &str) -> Self {
        let directory = tempfile::tempdir().expect("a folder");
        let file = directory.path().join("steadfast.toml");
        std::fs::write(&file, text).expect("a file");
        let log = directory.path().join("log");
        let arguments = ["--config", file.to_str().expect("a plain name")];
        let gateway = Server::serve_logged(&arguments, &log, &[("FIRST", "one")]);
        Self { directory, gateway }
    }

    /// Changes the configuration, and waits until it is applied. Call this once.
    fn change(&self, text: &str) {
        std::fs::write(self.directory.path().join("steadfast.toml"), text).expect("a file");
        self.gateway.signal("HUP");
        let applied = "steadfast_reloads_total{outcome=\"applied\"} 1";
        eventually("the file is read again", || get(self.gateway.admin(), "/metrics").contains(applied));
    }
}

/// A configuration with this value in the environment of the program.
fn config(value: &str, endpoint: &str, stdio: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n[[endpoint]]\n{endpoint}\n\
         [endpoint.stdio]\ncommand = \"python3\"\nargs = [\"{PROGRAM}\"]\nenv = {{ GIVEN = \"{value}\" }}\n{stdio}\n"
    )
}

#[test]
fn a_changed_program_takes_over_sessions_and_its_predecessor_finishes_its_calls() {
    let shared = "sharing = \"shared\"";
    let scene = Scene::start(&config("env:FIRST", "", shared));
    let at = scene.gateway.at("/mcp");
    let (mine, other) = (at.open_session(), at.open_session());
    let before = result(at, &mine, "environment");
    assert_eq!(before["value"], "one");
    assert_eq!(result(at, &other, "environment")["pid"], before["pid"], "all sessions share one process");
    let mut running = at.post(Some(&mine), &call(7, "slow", json!({"ms": 700})));
    running.read_until("\n\n");

    scene.change(&config("two", "", shared));
    let after = result(at, &mine, "environment");
    assert_eq!(after["value"], "two", "the session is the same, and the program is another one");
    let received = messages(&running.read_to_end());
    assert_eq!(received.last().expect("an answer")["result"]["pid"], before["pid"], "{received:?}");
    eventually("the predecessor has ended", || !is_alive(&before["pid"]));
    assert!(is_alive(&after["pid"]));
}

/// While two calls run, the gateway cannot tell which of them a server request belongs to, so it
/// uses the standalone stream. A client must be able to read that stream after a reload.
#[test]
fn a_server_request_after_a_reload_is_answered() {
    for (value, endpoint) in CHANGES {
        let scene = Scene::start(&config("one", "", ""));
        let at = scene.gateway.at("/mcp");
        let session = at.open_session();
        let go = scene.directory.path().join("go");
        let _other = at.post(Some(&session), &call(8, "hang", json!({})));
        let has_come = |count: usize| {
            let seen = result(at, &session, "seen")["seen"].clone();
            seen.as_array().expect("a list").iter().filter(|one| **one == "tools/call").count() >= count
        };
        eventually("the call has come", || has_come(2));
        let mut asking = at.post(Some(&session), &call(9, "ask", json!({"after": go})));
        let first = asking.read_until("\n\n");
        assert!(first.starts_with("HTTP/1.1 200"), "{first}");

        scene.change(&config(value, endpoint, ""));
        std::fs::write(&go, "").unwrap();
        let received = messages(&asking.read_until("elicitation/create"));
        let request = received.last().expect("a server request");
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": {"action": "decline"}});
        assert!(at.post(Some(&session), &answer).read_to_end().starts_with("HTTP/1.1 202"));
        let received = messages(&asking.read_to_end());
        let given = &received.last().expect("an answer")["result"]["answer"];
        assert_eq!(*given, json!({"result": {"action": "decline"}}), "{value} {endpoint}");
    }
}

/// A program keeps its state if a reload changes other keys of the endpoint.
#[test]
fn a_reload_of_other_keys_keeps_programs_running() {
    for sharing in ["per-session", "shared"] {
        for (value, endpoint) in CHANGES {
            let sharing = format!("sharing = \"{sharing}\"");
            let scene = Scene::start(&config("one", "", &sharing));
            let at = scene.gateway.at("/mcp");
            let sessions = [at.open_session(), at.open_session()];
            let pids = || sessions.each_ref().map(|session| result(at, session, "pid")["pid"].clone());
            let before = pids();
            scene.change(&config(value, endpoint, &sharing));
            let after = pids();
            assert_eq!(after == before, value == "one", "{sharing} {value} {endpoint}: {before:?} {after:?}");
            eventually("others have ended", || before.iter().all(is_alive) == (value == "one"));
        }
    }
}

#[test]
fn a_program_may_start_slowly() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("steadfast.toml");
    let program = format!("stdio = {{ command = \"python3\", args = [\"{PROGRAM}\", \"slow-start\"] }}");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n[[endpoint]]\npath = \"/slow\"\n{program}\n\
         [[endpoint]]\npath = \"/hasty\"\n{program}\ntimeouts = {{ control = \"50ms\", unavailable = \"10ms\" }}\n"
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Server::serve(&["--config", file.to_str().unwrap()]);
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    let hasty = gateway.at("/hasty").post(None, &initialize).read_to_end();
    assert!(hasty.contains("\"error\"") && !hasty.contains("mcp-session-id"), "{hasty}");
    let slow = gateway.at("/slow");
    assert!(result(slow, &slow.open_session(), "pid")["pid"].is_u64());
}

/// The client learns the reason, and restarts are paced.
#[test]
fn the_reason_of_a_program_that_ends_at_once_reaches_the_client() {
    let directory = tempfile::tempdir().unwrap();
    let (file, starts) = (directory.path().join("steadfast.toml"), directory.path().join("starts"));
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n[[endpoint]]\n\
         stdio = {{ command = \"python3\", args = [\"{PROGRAM}\", \"exit\"], env = {{ STARTS = \"{}\" }} }}\n",
        starts.display()
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Server::serve(&["--config", file.to_str().unwrap()]);
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    let words = "the program ended with exit status: 3; its last line on stderr: no configuration was found";
    let starts = || std::fs::read_to_string(&starts).unwrap().len();
    let reply = gateway.post(None, &initialize).read_to_end();
    assert!(reply.contains(words), "{reply}");
    assert_eq!(starts(), 2, "the program is started again once");
    let second = Instant::now();
    for _ in 0..2 {
        let before = starts();
        let reply = gateway.post(None, &initialize).read_to_end();
        assert!(reply.contains(words), "{reply}");
        assert!(starts() <= before + 1, "one start for each session");
    }
    // The first pause is 250 ms, and each further one is twice as long.
    assert!(second.elapsed() >= Duration::from_millis(600), "{:?}", second.elapsed());
}

/// No other client knows the id of the session, so the program would run until the session expires.
#[test]
fn a_client_that_disconnects_during_initialize_leaves_no_program() {
    let directory = tempfile::tempdir().unwrap();
    let (file, starts) = (directory.path().join("steadfast.toml"), directory.path().join("starts"));
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n[[endpoint]]\n\
         stdio = {{ command = \"python3\", args = [\"{PROGRAM}\", \"slow-start\"], env = {{ STARTS = \"{}\" }} }}\n",
        starts.display()
    );
    std::fs::write(&file, text).unwrap();
    let gateway = Server::serve(&["--config", file.to_str().unwrap()]);
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }});
    let initialize_timeout = gateway.post(None, &initialize);
    let mut pid = Value::Null;
    eventually("the program is there", || {
        let text = std::fs::read_to_string(&starts).unwrap_or_default();
        pid = text.trim().parse::<u64>().map(Value::from).unwrap_or_default();
        pid.is_u64()
    });
    drop(initialize_timeout);
    eventually("the program has ended", || !is_alive(&pid));
}

/// The program may be installed before the first session needs it.
#[test]
fn a_missing_program_is_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let arguments = ["--stdio", "no-such-program", "--listen", "127.0.0.1:0", "--store", "memory:"];
    let _gateway = Server::serve_logged(&arguments, &log, &[]);
    let warning = "is in the PATH of the program";
    eventually("a warning", || std::fs::read_to_string(&log).unwrap().contains(warning));
}

/// Posts a request of 2026-07-28.
fn modern(at: At<'_>, method: &str, mut params: Value) -> String {
    let mut headers = format!(
        "Content-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n"
    );
    if let Some(name) = params["name"].as_str() {
        headers += &format!("Mcp-Name: {name}\r\n");
    }
    params["_meta"] = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    at.send("POST", None, &headers, &request.to_string()).read_to_end()
}

/// The first requests of a client.
#[derive(Clone, Copy, Debug)]
enum Client {
    /// Opens a session at once.
    Legacy,
    /// Asks for the revisions first, and opens a session if the server has sessions.
    Modern,
    /// Sends a call first, and opens a session if the server has sessions.
    ModernAtOnce,
}

#[test]
fn the_first_connection_starts_a_program_once() {
    for (client, mode, opens_session) in [
        (Client::Legacy, "good", true),
        (Client::Modern, "good", true),
        (Client::ModernAtOnce, "good", true),
        (Client::Modern, "modern", false),
        (Client::ModernAtOnce, "modern", false),
        (Client::Legacy, "modern", true),
        (Client::Legacy, "modern-only", false),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let (file, starts) = (directory.path().join("steadfast.toml"), directory.path().join("starts"));
        let text = format!(
            "listen = \"127.0.0.1:0\"\nstore = \"memory:\"\n[[endpoint]]\n\
             stdio = {{ command = \"python3\", args = [\"{PROGRAM}\", \"{mode}\"], env = {{ STARTS = \"{}\" }} }}\n",
            starts.display()
        );
        std::fs::write(&file, text).unwrap();
        let gateway = Server::serve(&["--config", file.to_str().unwrap()]);
        let at = gateway.at("/mcp");
        let is_stateless = match client {
            Client::Legacy => false,
            Client::Modern => modern(at, "server/discover", json!({})).contains("2026-07-28"),
            Client::ModernAtOnce => !modern(at, "tools/call", json!({"name": "echo"})).contains("-32022"),
        };
        assert_eq!(is_stateless, mode == "modern" && !matches!(client, Client::Legacy), "{client:?} {mode}");
        if is_stateless {
            let reply = modern(at, "tools/call", json!({"name": "echo"}));
            assert!(reply.contains("\"pid\""), "{reply}");
        } else if opens_session {
            assert!(result(at, &at.open_session(), "echo")["pid"].is_u64(), "{client:?} {mode}");
        } else {
            let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
            }});
            let reply = at.post(None, &initialize).read_to_end();
            assert!(!reply.contains("mcp-session-id"), "{reply}");
        }
        let started = std::fs::read_to_string(&starts).unwrap();
        assert_eq!(started.lines().count(), 1, "{client:?} {mode}: {started}");
    }
}

/// Programs are often third-party code, and the environment of the gateway has the secrets of all
/// of them.
#[test]
fn a_program_receives_the_variables_that_it_is_meant_to() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let command = format!("python3 '{PROGRAM}'");
    let arguments = ["--stdio", &command, "--listen", "127.0.0.1:0", "--store", "memory:"];
    let variables = ["--env", "SECRET_OF_ITS_OWN", "--env", "GIVEN=by=flag"];
    let gateway = Server::serve_logged(
        &[&arguments[..], &variables[..]].concat(),
        &log,
        &[("SECRET_OF_THE_GATEWAY", "s"), ("SECRET_OF_ITS_OWN", "s"), ("HOME", "/"), ("LC_ALL", "C")],
    );
    let at = gateway.at("/mcp");
    let seen = result(at, &at.open_session(), "environment");
    let names: Vec<&str> = seen["names"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(seen["value"], "by=flag");
    for name in ["PATH", "HOME", "LC_ALL", "SECRET_OF_ITS_OWN"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    // CARGO_MANIFEST_DIR is an example of a variable that no program inherits.
    for name in ["SECRET_OF_THE_GATEWAY", "CARGO_MANIFEST_DIR"] {
        assert!(!names.contains(&name), "{name} in {names:?}");
    }
}

#[test]
fn the_log_says_how_a_program_that_ends_at_once_receives_variables() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let command = format!("python3 '{PROGRAM}' exit");
    let arguments = ["--stdio", &command, "--listen", "127.0.0.1:0", "--store", "memory:"];
    let gateway = Server::serve_logged(&arguments, &log, &[]);
    modern(gateway.at("/mcp"), "server/discover", json!({}));
    eventually("a line", || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines().any(|line| line.contains("a program has ended") && line.contains("`inherit_env`"))
    });
}
