//! A server that misbehaves in the way it is told, and how to reach it.

use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use serde_json::{Value, json};
use steadfast_client::transport::{Body, Transport as _};
use steadfast_client::{
    Answer, Backoff, BoxFuture, Bytes, Client, ClientHandler, Config, Era, Error, ErrorObject, Event,
    Notification, Revision, ServerRequest, StandaloneStream, Uri,
};
use steadfast_upstream::stdio::{ProcessPool, ProcessTransport};
use steadfast_upstream::{Program, Sharing, Stdio};
use tokio::sync::mpsc;

/// Waits for what must come. Panics after a time that is long for every machine, so that a hang is
/// a failure.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), work).await {
        Ok(done) => done,
        Err(_) => panic!("waited too long for {what}"),
    }
}

pub(crate) fn stdio(mode: &str) -> Stdio {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stdio/server.py");
    let arguments = vec![script.display().to_string(), mode.to_owned()];
    let program = Program { command: python().to_owned(), arguments, ..Program::default() };
    Stdio { exit_timeout: Duration::from_millis(200), line_bytes: 64 << 10, ..Stdio::new(program) }
}

/// The interpreter itself: what is found under its name may be a script that looks for it, which
/// takes a second.
fn python() -> &'static str {
    static PYTHON: OnceLock<String> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
        String::from_utf8(output.expect("python3 is there").stdout).expect("a path").trim().to_owned()
    })
}

pub(crate) fn programs(stdio: Stdio) -> ProcessPool {
    let backoff = Backoff { first: Duration::from_millis(20), ..Backoff::default() };
    ProcessPool::new(stdio, backoff, 0xb007)
}

pub(crate) fn shared(mode: &str) -> ProcessPool {
    programs(Stdio { sharing: Sharing::Shared, ..stdio(mode) })
}

pub(crate) fn config() -> Config {
    let mut config = Config::new(Uri::from_static("http://program/mcp"));
    config.era = Era::Session(Revision::V2025_11_25);
    config.capabilities = r#"{"elicitation":{}}"#.to_owned();
    // Ids that no process has.
    config.first_id = 500;
    config.backoff = Backoff { first: Duration::from_millis(20), attempts: 3, ..Backoff::default() };
    config
}

/// A client of a program of its own, and whatever keeps that alive.
pub(crate) struct Alone {
    pub(crate) client: Client,
    pub(crate) programs: ProcessPool,
}

pub(crate) async fn alone(mode: &str) -> Alone {
    let programs = programs(stdio(mode));
    let client = connect(programs.transport("alone"), config(), ()).await.expect("the program is there");
    Alone { client, programs }
}

pub(crate) async fn connect(
    child: Arc<ProcessTransport>,
    config: Config,
    owner: impl ClientHandler,
) -> Result<Client, Error> {
    within("a connection", Client::connect_over(child, config, owner)).await
}

/// Calls a tool and waits for its answer.
pub(crate) async fn call(client: &Client, tool: &str, arguments: Value) -> Result<Answer, Error> {
    within("the answer", begin(client, tool, arguments).answer()).await
}

pub(crate) fn begin(client: &Client, tool: &str, arguments: Value) -> steadfast_client::Call {
    let params = json!({"name": tool, "arguments": arguments}).to_string();
    client.call("tools/call", Some(&params)).expect("there is room")
}

/// The value of a result.
pub(crate) fn value(answer: Result<Answer, Error>) -> Value {
    match answer {
        Ok(Answer::Result(text)) => serde_json::from_slice(&text).expect("a result is JSON"),
        Ok(Answer::Error(text)) => panic!("an error: {}", String::from_utf8_lossy(&text)),
        Err(error) => panic!("no result: {error:?}"),
    }
}

/// Returns the message of an unknown outcome.
pub(crate) fn unknown(answer: Result<Answer, Error>) -> String {
    match answer {
        Err(Error::OutcomeUnknown { why }) => why,
        other => panic!("not unknown: {other:?}"),
    }
}

/// Sends a request as any HTTP client would.
pub(crate) async fn send(
    child: &ProcessTransport,
    method: &str,
    session: Option<&str>,
    body: Value,
) -> http::Response<Body> {
    let mut request = http::Request::builder().method(method).uri("http://program/mcp");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    within("a head", child.send(request.body(body).expect("a request"))).await.expect("an answer")
}

/// Tells the test what it hears.
pub(crate) struct Ear {
    heard: mpsc::UnboundedSender<Heard>,
    answer: &'static str,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Heard {
    ServerRequest(String),
    Notification(String),
    Event(Event),
}

pub(crate) fn ear(answer: &'static str) -> (Ear, mpsc::UnboundedReceiver<Heard>) {
    let (heard, hear) = mpsc::unbounded_channel();
    (Ear { heard, answer }, hear)
}

impl ClientHandler for Ear {
    fn on_server_request(&self, server_request: ServerRequest) -> BoxFuture<'_, Result<Bytes, ErrorObject>> {
        let _ = self.heard.send(Heard::ServerRequest(server_request.method));
        Box::pin(async { Ok(self.answer.into()) })
    }

    fn on_notification(&self, notification: Notification) -> BoxFuture<'_, ()> {
        let _ = self.heard.send(Heard::Notification(notification.method));
        Box::pin(async {})
    }

    fn on_event(&self, event: Event) {
        let _ = self.heard.send(Heard::Event(event));
    }
}

/// A client that holds the standalone stream, which is open.
pub(crate) async fn listening(child: Arc<ProcessTransport>) -> (Client, mpsc::UnboundedReceiver<Heard>) {
    let mut config = config();
    config.standalone_stream = StandaloneStream::Open;
    let (ear, mut hear) = ear(r#"{"action":"accept"}"#);
    let client = connect(child, config, ear).await.expect("the program is there");
    assert_eq!(within("the stream", hear.recv()).await, Some(Heard::Event(Event::StandaloneOpen)));
    (client, hear)
}

/// Whether there is such a process (and not only what it left for its parent).
pub(crate) fn is_running(pid: u64) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    state.is_ok_and(|text| text.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

/// Waits until a process is gone.
pub(crate) async fn gone(pid: u64) {
    within("the end of a process", async {
        while is_running(pid) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
