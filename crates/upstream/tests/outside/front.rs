//! An endpoint of ours before a server, and the bytes that go in and out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use steadfast_engine::{Engine, Options, Rules, SystemClock, SystemEntropy};
use steadfast_http::{Endpoint, listen};
use steadfast_store::MemoryStore;
use steadfast_upstream::{Config, Credential, Upstream};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Longer than any test runs: no test waits for a timeout of this length.
const AN_HOUR: Duration = Duration::from_secs(3600);

pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"open","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
pub(crate) const CALL: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}"#;
/// A request without a session, and what it is sent with.
pub(crate) const STATELESS: &str = r#"{"jsonrpc":"2.0","id":"one","method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
pub(crate) const STATELESS_HEADERS: &str =
    "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: t\r\n";

/// An endpoint before a server.
pub(crate) struct Front {
    address: SocketAddr,
    _engine: Arc<Engine>,
}

impl Front {
    /// As the gateway does it: where the server verifies credentials, its word is waited for.
    pub(crate) async fn start(config: Config) -> Self {
        let is_forwarded = matches!(config.credential, Credential::Forwarded);
        let auth_wait = if is_forwarded { AN_HOUR } else { Duration::ZERO };
        let http = steadfast_http::Config { auth_wait, ..steadfast_http::Config::default() };
        let upstream = Arc::new(Upstream::start(config).await.unwrap());
        let store = Arc::new(MemoryStore::new(Rules::default()));
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let engine = Engine::start(store, upstream, clock, entropy, Options::default(), Vec::new());
        let engine = engine.await.unwrap();
        let endpoint = Endpoint::new(Arc::clone(&engine), http);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(listen::serve(listener, endpoint, listen::Limits::default(), std::future::pending()));
        Self { address, _engine: engine }
    }

    /// The whole answer to a POST, with headers in lower case.
    pub(crate) async fn post(&self, headers: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_string(&mut text));
        read.await.expect("an answer").unwrap();
        text
    }
}

/// Head and body of a request.
pub(crate) async fn request(stream: &mut (impl AsyncRead + Unpin)) -> Option<(String, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, String::from_utf8(body).ok()?))
}

/// The text of an answer.
pub(crate) fn answer(status: u16, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

/// What a small server answers: it has sessions and does without, and has no tools worth
/// mentioning.
pub(crate) fn play(head: &str, body: &str) -> String {
    let json = "content-type: application/json\r\n";
    let id = body
        .split_once(r#""id":"#)
        .map_or("null", |(_, rest)| rest.split([',', '}']).next().unwrap_or("null"));
    if !head.starts_with("post") {
        return answer(405, "", "");
    }
    if body.contains(r#""method":"initialize""#) {
        let result = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        return answer(200, &format!("{json}mcp-session-id: s\r\n"), &body);
    }
    if id == "null" {
        return answer(202, "", "");
    }
    if body.contains(r#""method":"server/discover""#) {
        let result =
            r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}"#;
        return answer(200, json, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }
    answer(200, json, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[]}}}}"#))
}
