//! Starts the real binary in its own process, with a client that reads raw HTTP.
#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// A running process of the binary, on a free port.
pub(crate) struct Server {
    process: Child,
    banner: String,
    address: SocketAddr,
}

impl Server {
    pub(crate) fn start(file: &Path) -> Self {
        Self::start_with(&["--store", &format!("sqlite:{}", file.display())])
    }

    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        Self::serve(&[&["--demo", "--listen", "127.0.0.1:0"], arguments].concat())
    }

    pub(crate) fn serve(arguments: &[&str]) -> Self {
        Self::spawn(arguments, Stdio::null(), &[])
    }

    /// Writes the log to a file.
    pub(crate) fn serve_logged(arguments: &[&str], log: &Path, variables: &[(&str, &str)]) -> Self {
        let log = std::fs::File::create(log).expect("a file for the log");
        Self::spawn(arguments, log.into(), variables)
    }

    fn spawn(arguments: &[&str], log: Stdio, variables: &[(&str, &str)]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_steadfast"))
            .arg("serve")
            .args(arguments)
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut banner = String::new();
        for line in lines.by_ref().map_while(Result::ok) {
            banner += &format!("{line}\n");
            if line.starts_with("Ctrl-C") {
                break;
            }
        }
        let address = url(&banner, "  URL ").expect("the banner names the address");
        // The process must not block on a full pipe.
        std::thread::spawn(move || lines.count());
        Self { process, banner, address }
    }

    /// The address of the admin listener.
    pub(crate) fn admin(&self) -> SocketAddr {
        url(&self.banner, "  admin ").expect("the banner names the address of the admin listener")
    }

    pub(crate) fn banner(&self) -> &str {
        &self.banner
    }

    /// The endpoint at this path.
    pub(crate) fn at(&self, path: &'static str) -> At<'_> {
        At { server: self, path }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn open_session(&self) -> String {
        self.at("/mcp").open_session()
    }

    pub(crate) fn post(&self, session: Option<&str>, message: &Value) -> Reply {
        self.at("/mcp").post(session, message)
    }

    pub(crate) fn resume(&self, session: &str, event: &str) -> Reply {
        self.at("/mcp").resume(session, event)
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("the command `kill`");
        assert!(sent.success());
    }

    /// A connection for several requests.
    pub(crate) fn connect(&self) -> Connection {
        let socket = TcpStream::connect(self.address).expect("the server listens");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout, to find hangs");
        Connection { socket, address: self.address }
    }

    /// Waits until the server, which is shutting down, refuses connections.
    pub(crate) fn wait_until_closed(&self) {
        eventually("new connections are refused", || TcpStream::connect(self.address).is_err());
    }

    /// Waits for the end of the process. Returns `None` after a minute.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        for _ in 0..6000 {
            if let Some(status) = self.process.try_wait().expect("a process") {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }

    pub(crate) fn kill(mut self) {
        // SIGKILL, on Unix.
        self.process.kill().expect("the server can be killed");
        self.process.wait().expect("the server ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that fails must leave no process. Errors mean that the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One endpoint of a server.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    server: &'a Server,
    path: &'static str,
}

impl At<'_> {
    pub(crate) fn open_session(&self) -> String {
        let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}, "sampling": {}},
            "clientInfo": {"name": "test", "version": "1"},
        }});
        let reply = self.post(None, &initialize).read_to_end();
        let id = reply.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        id.expect("a session id").to_owned()
    }

    pub(crate) fn post(&self, session: Option<&str>, message: &Value) -> Reply {
        self.send("POST", session, "Content-Type: application/json\r\n", &message.to_string())
    }

    pub(crate) fn resume(&self, session: &str, event: &str) -> Reply {
        self.send("GET", Some(session), &format!("Last-Event-ID: {event}\r\n"), "")
    }

    pub(crate) fn send(&self, method: &str, session: Option<&str>, headers: &str, body: &str) -> Reply {
        let address = self.server.address;
        let socket = TcpStream::connect(address).expect("the server listens");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout, to find hangs");
        let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
        let request = format!(
            "{method} {} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: application/json, text/event-stream\r\n\
             {session}{headers}Content-Length: {}\r\n\r\n{body}",
            self.path,
            body.len()
        );
        (&socket).write_all(request.as_bytes()).expect("the request goes out");
        Reply { socket, text: String::new() }
    }
}

/// A connection for several requests.
pub(crate) struct Connection {
    socket: TcpStream,
    address: SocketAddr,
}

impl Connection {
    /// Sends a call and reads its chunked response.
    pub(crate) fn call(&mut self, session: &str, message: &Value) -> String {
        let (address, body) = (self.address, message.to_string());
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAccept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nMcp-Session-Id: {session}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.socket.write_all(request.as_bytes()).expect("the request goes out");
        let mut answer =
            Reply { socket: self.socket.try_clone().expect("the same socket"), text: String::new() };
        while !answer.text.ends_with("\r\n0\r\n\r\n") {
            assert_ne!(answer.read_some(), 0, "the connection ended after {:?}", answer.text);
        }
        answer.text
    }
}

/// Waits until a condition is true. Panics after ten seconds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it never happened: {what}");
}

fn url(banner: &str, line: &str) -> Option<SocketAddr> {
    let line = banner.lines().find(|each| each.starts_with(line))?;
    line.split("://").nth(1)?.split('/').next()?.parse().ok()
}

/// Sends a GET and returns the response.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout, to find hangs");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    (&socket).write_all(request.as_bytes()).expect("the request goes out");
    Reply { socket, text: String::new() }.read_to_end()
}

/// A response as text. Chunk sizes are not removed, because no test is confused by them.
pub(crate) struct Reply {
    socket: TcpStream,
    text: String,
}

impl Reply {
    pub(crate) fn read_to_end(mut self) -> String {
        while self.read_some() > 0 {}
        self.text
    }

    /// Whether it is open, with nothing to read.
    pub(crate) fn is_waiting(&mut self) -> bool {
        self.socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        let waits = self.socket.peek(&mut [0]).is_err_and(|error| {
            matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
        });
        self.socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        waits
    }

    pub(crate) fn read_until(&mut self, what: &str) -> String {
        while !self.text.contains(what) || !self.text.ends_with("\n\r\n") {
            assert_ne!(self.read_some(), 0, "the connection ended before {what:?} in {:?}", self.text);
        }
        self.text.clone()
    }

    /// Reads what there is; 0 at the end.
    fn read_some(&mut self) -> usize {
        let mut buffer = [0; 1024];
        let count = loop {
            match self.socket.read(&mut buffer) {
                // A read with a timeout is not taken up again by itself when the process was
                // stopped meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                read => break read.expect("bytes of the server"),
            }
        };
        let text = std::str::from_utf8(&buffer[..count]).expect("text");
        // No test is silent for so long, and a server that shows that it is there must not keep one
        // from failing.
        assert!(!text.contains(": keep-alive"), "nothing more comes after {:?}", self.text);
        self.text.push_str(text);
        count
    }
}

pub(crate) fn countdown(id: u64, from: u64, step_ms: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": "countdown", "arguments": {"from": from, "step_ms": step_ms}, "_meta": {"progressToken": id},
    }})
}

pub(crate) fn note(text: &str) -> Value {
    let arguments = json!({"action": "add", "text": text});
    json!({"jsonrpc": "2.0", "id": "note", "method": "tools/call",
           "params": {"name": "notebook", "arguments": arguments}})
}

/// A call that sends this many sampling requests at once.
pub(crate) fn council(id: u64, advisers: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
           "params": {"name": "council", "arguments": {"question": "why?", "advisers": advisers}}})
}

/// The answer of the client's model to a server request.
pub(crate) fn advice(ask: &str, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": ask, "result": {
        "model": "m", "role": "assistant", "content": {"type": "text", "text": text}}})
}

/// The text of each event that has an id.
pub(crate) fn events(reply: &str) -> Vec<&str> {
    let (_head, body) = reply.split_once("\r\n\r\n").expect("a head and a body");
    // Before the id there is only the size of a chunk.
    body.split("\n\n").filter_map(|frame| frame.find("id: ").map(|at| &frame[at..])).collect()
}

pub(crate) fn id_of(event: &str) -> &str {
    event.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id")
}

pub(crate) fn messages(reply: &str) -> Vec<Value> {
    let data = reply.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| !data.is_empty()).map(|data| serde_json::from_str(data).expect("JSON")).collect()
}
