//! `kill -9` of the real binary: what it has answered is still there, and what it was doing gets an explicit error.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

#[test]
fn a_finished_answer_survives_and_a_running_call_gets_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sessions.db");

    let server = Server::start(&file);
    let session = server.open_session();
    let finished = server.post(Some(&session), &countdown(1, 3, 0)).read_to_end();
    assert_eq!(messages(&finished).last().unwrap()["id"], 1);
    let notes = server.post(Some(&session), &note("written before")).read_to_end();
    assert!(notes.contains("You have 1 note(s)."), "{notes}");
    // Begun, heard of, and never to be done.
    let mut running = server.post(Some(&session), &countdown(2, 1000, 60_000));
    let seen = running.read_until("\"progress\":0.0");
    server.kill();

    let server = Server::start(&file);
    let whole = events(&finished);
    for (i, event) in whole.iter().enumerate() {
        let rest = server.resume(&session, id_of(event)).read_to_end();
        assert_eq!(events(&rest), whole[i + 1..], "after {}", id_of(event));
    }
    let priming = id_of(events(&seen)[0]).to_owned();
    for _ in 0..2 {
        let answers: Vec<Value> = messages(&server.resume(&session, &priming).read_to_end())
            .into_iter()
            .filter(|message| message["id"] == 2)
            .collect();
        assert_eq!(answers.len(), 1);
        assert_eq!(answers[0]["error"]["code"], -32603);
        assert_eq!(answers[0]["error"]["data"]["reason"], "outcome_unknown");
    }
    let notes = server.post(Some(&session), &note("written after")).read_to_end();
    assert!(notes.contains("You have 2 note(s)."), "{notes}");
    let again = server.post(Some(&session), &countdown(2, 1, 0)).read_to_end();
    assert_eq!(messages(&again).last().unwrap()["id"], 2, "the id is free again");
    server.kill();
}

/// The binary, serving the demo on a port of its own choice.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start(file: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_steadfast"))
            .args(["serve", "--demo", "--listen", "127.0.0.1:0", "--store"])
            .arg(format!("sqlite:{}", file.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let address = lines.find_map(|line| {
            let line = line.expect("lines of text");
            line.split("http://").nth(1)?.split('/').next()?.parse().ok()
        });
        // What it prints after its address is for people; it must be able to print it.
        std::thread::spawn(move || lines.count());
        Self { process, address: address.expect("the banner names the address") }
    }

    fn open_session(&self) -> String {
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
        }});
        let reply = self.post(None, &initialize).read_to_end();
        let id = reply.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        id.expect("a session id").to_owned()
    }

    fn post(&self, session: Option<&str>, message: &Value) -> Reply {
        self.send("POST", session, "Content-Type: application/json\r\n", &message.to_string())
    }

    fn resume(&self, session: &str, event: &str) -> Reply {
        self.send("GET", Some(session), &format!("Last-Event-ID: {event}\r\n"), "")
    }

    fn send(&self, method: &str, session: Option<&str>, headers: &str, body: &str) -> Reply {
        let socket = TcpStream::connect(self.address).expect("the server listens");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout, to find hangs");
        let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "{method} /mcp HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAccept: application/json, text/event-stream\r\n\
             {session}{headers}Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        (&socket).write_all(request.as_bytes()).expect("the request goes out");
        Reply { socket, text: String::new() }
    }

    fn kill(mut self) {
        // SIGKILL, on Unix.
        self.process.kill().expect("the server can be killed");
        self.process.wait().expect("the server ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that fails leaves no server behind; one that has been killed already does not mind.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A reply as text. What separates chunks is left in it: nothing here looks like it.
struct Reply {
    socket: TcpStream,
    text: String,
}

impl Reply {
    fn read_to_end(mut self) -> String {
        self.socket.read_to_string(&mut self.text).expect("a whole reply");
        self.text
    }

    fn read_until(&mut self, what: &str) -> String {
        let mut buffer = [0; 1024];
        while !self.text.contains(what) || !self.text.ends_with("\n\r\n") {
            let count = self.socket.read(&mut buffer).expect("bytes of the server");
            assert_ne!(count, 0, "the connection ended before {what:?} in {:?}", self.text);
            self.text.push_str(std::str::from_utf8(&buffer[..count]).expect("text"));
        }
        self.text.clone()
    }
}

fn countdown(id: u64, from: u64, step_ms: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": "countdown", "arguments": {"from": from, "step_ms": step_ms}, "_meta": {"progressToken": id},
    }})
}

fn note(text: &str) -> Value {
    let arguments = json!({"action": "add", "text": text});
    json!({"jsonrpc": "2.0", "id": "note", "method": "tools/call",
           "params": {"name": "notebook", "arguments": arguments}})
}

/// The lines of each event that has an id, as they came.
fn events(reply: &str) -> Vec<&str> {
    let (_head, body) = reply.split_once("\r\n\r\n").expect("a head and a body");
    // What is in front of the id is the same for all events, apart from the size of a chunk.
    body.split("\n\n").filter_map(|frame| frame.find("id: ").map(|at| &frame[at..])).collect()
}

fn id_of(event: &str) -> &str {
    event.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id")
}

fn messages(reply: &str) -> Vec<Value> {
    let data = reply.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).expect("JSON")).collect()
}
