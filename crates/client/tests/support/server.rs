//! A scripted server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use steadfast_client::Uri;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// A request that the server received. The verb `CLOSED` records that the client closed a
/// connection during [`Act::Hang`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) verb: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
    /// The body as received.
    pub(crate) text: String,
}

impl Request {
    pub(crate) fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns true for a call of this tool.
    pub(crate) fn calls(&self, tool: &str) -> bool {
        self.method() == "tools/call" && self.body["params"]["name"] == tool
    }

    /// Returns true for the answer to a server request.
    pub(crate) fn is_answer(&self) -> bool {
        self.verb == "POST" && self.body.get("method").is_none()
    }
}

type Condition = Arc<dyn Fn(&[Request]) -> bool + Send + Sync>;

/// One action on a connection.
#[derive(Clone)]
pub(crate) enum Act {
    Send(Vec<u8>),
    /// Send one byte at a time.
    Drip(Vec<u8>),
    /// Wait until the received requests satisfy this condition.
    Until(Condition),
    /// Work for this long.
    Pause(Duration),
    /// Perform the reply that this function returns now.
    Later(Arc<dyn Fn() -> Reply + Send + Sync>),
    /// Wait until the client closes the connection, and record that.
    Hang,
}

/// The actions for one request. The connection is closed afterwards, unless `keep` is set.
#[derive(Clone, Default)]
pub(crate) struct Reply {
    acts: Vec<Act>,
    keep: bool,
}

impl Reply {
    /// A complete response.
    pub(crate) fn new(status: u16, headers: &str, body: &str) -> Self {
        let length = body.len();
        let head = format!("HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\n\r\n{body}");
        Self { acts: vec![Act::Send(head.into_bytes())], keep: true }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::new(status, "", "")
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::json_with(200, "", body)
    }

    pub(crate) fn json_with(status: u16, headers: &str, body: &Value) -> Self {
        Self::new(status, &format!("content-type: application/json\r\n{headers}"), &body.to_string())
    }

    /// The JSON-RPC result of the request.
    pub(crate) fn result(request: &Request, result: &Value) -> Self {
        Self::json(&json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result}))
    }

    pub(crate) fn error(request: &Request, status: u16, error: &Value) -> Self {
        let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "error": error});
        Self::json_with(status, "", &body)
    }

    /// The head of a stream that ends when the connection is closed.
    pub(crate) fn stream() -> Self {
        Self::default().send("HTTP/1.1 200 x\r\ncontent-type: text/event-stream\r\n\r\n")
    }

    /// The head of a chunked stream. Without the last chunk the stream is broken.
    pub(crate) fn chunked() -> Self {
        let head = "HTTP/1.1 200 x\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        Self::default().send(head)
    }

    /// Ends a chunked stream and keeps the connection open.
    pub(crate) fn end(self) -> Self {
        Self { keep: true, ..self.send("0\r\n\r\n") }
    }

    pub(crate) fn send(mut self, text: &str) -> Self {
        self.acts.push(Act::Send(text.as_bytes().to_vec()));
        self
    }

    pub(crate) fn drip(mut self, text: &str) -> Self {
        self.acts.push(Act::Drip(text.as_bytes().to_vec()));
        self
    }

    /// One chunk.
    pub(crate) fn chunk(self, text: &str) -> Self {
        self.send(&format!("{:x}\r\n{text}\r\n", text.len()))
    }

    /// An event with a message.
    pub(crate) fn event(self, message: &Value) -> Self {
        self.send(&format!("data: {message}\n\n"))
    }

    /// An event with the result of the request.
    pub(crate) fn answer(self, request: &Request, result: &Value) -> Self {
        self.event(&json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result}))
    }

    pub(crate) fn until(mut self, condition: impl Fn(&[Request]) -> bool + Send + Sync + 'static) -> Self {
        self.acts.push(Act::Until(Arc::new(condition)));
        self
    }

    pub(crate) fn pause(mut self, time: Duration) -> Self {
        self.acts.push(Act::Pause(time));
        self
    }

    /// Continues with the reply that `make` returns when everything before is done.
    pub(crate) fn later(mut self, make: impl Fn() -> Self + Send + Sync + 'static) -> Self {
        self.acts.push(Act::Later(Arc::new(make)));
        Self { keep: true, ..self }
    }

    /// Appends another reply.
    pub(crate) fn then(mut self, next: Self) -> Self {
        self.acts.extend(next.acts);
        Self { keep: next.keep, ..self }
    }

    pub(crate) fn hang(mut self) -> Self {
        self.acts.push(Act::Hang);
        self
    }
}

type Script = Arc<dyn Fn(&Request) -> Option<Reply> + Send + Sync>;

/// A server on its own port. It lives as long as the test's runtime.
#[derive(Clone)]
pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    script: Script,
    log: Mutex<Vec<Request>>,
    changed: Notify,
    /// Bytes written to sockets.
    written: AtomicUsize,
    connections: AtomicUsize,
}

impl Server {
    /// A server that follows the script exactly. It answers 400 to requests that the script does
    /// not handle.
    pub(crate) async fn raw(script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            script: Arc::new(script),
            log: Mutex::default(),
            changed: Notify::new(),
            written: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
        });
        let server = Self { address, state: Arc::clone(&state) };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).expect("an option of TCP");
                state.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(Arc::clone(&state).serve(stream));
            }
        });
        server
    }

    /// A server with sessions: `initialize`, `ping`, notifications and DELETE work, and there is no
    /// standalone stream. The script takes precedence.
    pub(crate) async fn with_sessions(
        script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let sessions = AtomicUsize::new(0);
        Self::raw(move |request| script(request).or_else(|| with_sessions(request, &sessions))).await
    }

    /// A stateless server: `server/discover` works. The script takes precedence.
    pub(crate) async fn stateless(
        script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self::raw(move |request| {
            script(request).or_else(|| {
                let result = json!({"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}});
                (request.method() == "server/discover").then(|| Reply::result(request, &result))
            })
        })
        .await
    }

    pub(crate) fn url(&self) -> Uri {
        format!("http://{}/mcp", self.address).parse().expect("an address")
    }

    /// All received requests, in order of arrival.
    pub(crate) fn log(&self) -> Vec<Request> {
        self.state.log.lock().expect("the log").clone()
    }

    pub(crate) fn count(&self, which: impl Fn(&Request) -> bool) -> usize {
        self.log().iter().filter(|request| which(request)).count()
    }

    pub(crate) fn written(&self) -> usize {
        self.state.written.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Adds a record with the verb `PROD` to the log, which a script can wait for.
    pub(crate) fn prod(&self) {
        let prod = Request { verb: "PROD".to_owned(), ..Request::default() };
        self.state.log.lock().expect("the log").push(prod);
        self.state.changed.notify_waiters();
    }

    /// Waits until the received requests satisfy the condition.
    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&[Request]) -> bool) {
        super::within(what, self.state.until(&condition)).await;
    }
}

fn with_sessions(request: &Request, sessions: &AtomicUsize) -> Option<Reply> {
    match (request.verb.as_str(), request.method()) {
        ("POST", "initialize") => {
            let number = sessions.fetch_add(1, Ordering::SeqCst) + 1;
            let version = &request.body["params"]["protocolVersion"];
            let result = json!({"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}});
            let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
            Some(Reply::json_with(200, &format!("mcp-session-id: s{number}\r\n"), &body))
        }
        ("POST", "ping") => Some(Reply::result(request, &json!({}))),
        ("POST", method) if method.starts_with("notifications/") => Some(Reply::status(202)),
        ("POST", "") => Some(Reply::status(202)),
        ("GET", _) => Some(Reply::status(405)),
        ("DELETE", _) => Some(Reply::status(200)),
        _ => None,
    }
}

impl State {
    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let mut buffer = Vec::new();
        while let Some(request) = read(&mut stream, &mut buffer).await {
            let reply = {
                // Under the lock, so that the script sees requests in the order of the log.
                let mut log = self.log.lock().expect("the log");
                log.push(request.clone());
                (self.script)(&request).unwrap_or_else(|| Reply::new(400, "", "not in the script"))
            };
            self.changed.notify_waiters();
            for act in reply.acts {
                if self.perform(act, &mut stream, &mut buffer).await.is_err() {
                    return;
                }
            }
            if !reply.keep {
                return;
            }
        }
    }

    async fn perform(&self, act: Act, stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<()> {
        match act {
            Act::Send(bytes) => {
                for part in bytes.chunks(16 << 10) {
                    stream.write_all(part).await?;
                    self.written.fetch_add(part.len(), Ordering::SeqCst);
                }
            }
            Act::Drip(bytes) => {
                for byte in bytes {
                    stream.write_all(&[byte]).await?;
                    tokio::task::yield_now().await;
                }
            }
            Act::Until(condition) => self.until(&*condition).await,
            Act::Pause(time) => tokio::time::sleep(time).await,
            Act::Later(make) => {
                for act in make().acts {
                    Box::pin(self.perform(act, stream, buffer)).await?;
                }
            }
            Act::Hang => {
                let end = stream.read_buf(buffer).await;
                assert!(!matches!(end, Ok(1..)), "a client sends on a connection whose answer is not over");
                let closed = Request { verb: "CLOSED".to_owned(), ..Request::default() };
                self.log.lock().expect("the log").push(closed);
                self.changed.notify_waiters();
            }
        }
        Ok(())
    }

    async fn until(&self, condition: &(impl Fn(&[Request]) -> bool + ?Sized)) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if condition(&self.log.lock().expect("the log")) {
                return;
            }
            changed.await;
        }
    }
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Request> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer.drain(..end).collect()).expect("a head is ASCII");
    let mut lines = head.lines();
    let verb = lines.next()?.split(' ').next()?.to_owned();
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        // Joins repeated headers, so that tests notice them.
        let known = headers.entry(name.to_owned()).or_default();
        *known = if known.is_empty() { value.to_owned() } else { format!("{known}, {value}") };
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().expect("a number"));
    while buffer.len() < length {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8(buffer.drain(..length).collect()).expect("a body is text");
    let body = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect("JSON") };
    Some(Request { verb, headers, body, text })
}

impl Reply {
    /// Replaces a text in everything that the reply sends.
    pub(crate) fn replace(mut self, this: &str, other: &str) -> Self {
        for act in &mut self.acts {
            if let Act::Send(bytes) | Act::Drip(bytes) = act {
                *bytes = String::from_utf8_lossy(bytes).replace(this, other).into_bytes();
            }
        }
        self
    }
}
