//! Requests and replies.

use std::net::SocketAddr;

use serde_json::Value;

use super::Host;
use super::sse::{Frame, Stream, parse_frames};
use super::wire::{Broken, Framing, Wire};

/// An endpoint to send requests to, each on a connection of its own unless a [`Line`] is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Http {
    address: SocketAddr,
}

impl Http {
    pub(crate) fn to(host: &Host) -> Self {
        Self::at(host.address())
    }

    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address }
    }

    pub(crate) fn post(&self, message: &Value) -> Request {
        self.post_bytes(message.to_string())
    }

    /// A POST with the usual headers and any body.
    pub(crate) fn post_bytes(&self, body: impl Into<Vec<u8>>) -> Request {
        self.request("POST")
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .body(body)
    }

    pub(crate) fn get(&self) -> Request {
        self.request("GET").header("Accept", "text/event-stream")
    }

    pub(crate) fn delete(&self) -> Request {
        self.request("DELETE")
    }

    /// A request with a Host header and no other.
    pub(crate) fn request(&self, method: &str) -> Request {
        Request {
            address: self.address,
            method: method.to_owned(),
            path: "/mcp".to_owned(),
            headers: vec![("Host".to_owned(), self.address.to_string())],
            body: None,
        }
    }

    /// Sends these very bytes, a request with this method, and reads the whole reply.
    pub(crate) async fn send_bytes(&self, bytes: &[u8], method: &str) -> Result<Reply, Broken> {
        self.line().await.exchange_bytes(bytes, method).await
    }

    /// A connection that is kept for one request after the other.
    pub(crate) async fn line(&self) -> Line {
        Line(Wire::open(self.address).await)
    }
}

/// A request that has not been sent.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    /// Sets a header, in place of one of that name.
    pub(crate) fn header(self, name: &str, value: &str) -> Self {
        self.without(name).also(name, value)
    }

    /// Adds a header, besides one of that name.
    pub(crate) fn also(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    pub(crate) fn path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Exactly what goes over the wire. `Content-Length` is added if there is a body and no other
    /// framing.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let named = |name: &str| self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body
            && !named("content-length")
            && !named("transfer-encoding")
        {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }

    /// Sends it and reads the whole reply.
    pub(crate) async fn send(&self) -> Reply {
        self.try_send().await.expect("a whole reply")
    }

    /// Sends it; a server that hangs up instead of replying is no surprise.
    pub(crate) async fn try_send(&self) -> Result<Reply, Broken> {
        Line(Wire::open(self.address).await).exchange(self).await
    }

    /// Sends it, reads the head of the reply, and leaves the events to be read.
    pub(crate) async fn stream(&self) -> Stream {
        let mut wire = Wire::open(self.address).await;
        wire.write(&self.to_bytes()).await.expect("the request goes out");
        let (head, framing) = wire.head().await.expect("the head of a reply");
        Stream::new(wire, head, framing)
    }

    /// Sends it, reads the status, and hangs up.
    pub(crate) async fn try_send_head(&self) -> u16 {
        let mut wire = Wire::open(self.address).await;
        wire.write(&self.to_bytes()).await.expect("the request goes out");
        wire.head().await.expect("the head of a reply").0.status
    }

    /// Sends it and hangs up without reading a byte.
    pub(crate) async fn send_and_hang_up(&self) {
        Wire::open(self.address).await.write(&self.to_bytes()).await.expect("the request goes out");
    }

    /// Sends it and leaves the reply unread until the caller wants it.
    pub(crate) async fn leave(&self) -> Unread {
        let mut wire = Wire::open(self.address).await;
        wire.write(&self.to_bytes()).await.expect("the request goes out");
        Unread(wire)
    }
}

/// A reply of which nothing has been read.
#[derive(Debug)]
pub(crate) struct Unread(Wire);

impl Unread {
    /// The status of the reply, of which nothing else is wanted.
    pub(crate) async fn status(self) -> u16 {
        let mut wire = self.0;
        wire.head().await.expect("the head of a reply").0.status
    }

    /// The whole reply, stream or not.
    pub(crate) async fn reply(self) -> Reply {
        Line(self.0).receive("POST").await.expect("a whole reply")
    }

    pub(crate) async fn read(self) -> Stream {
        let mut wire = self.0;
        let (head, framing) = wire.head().await.expect("the head of a reply");
        Stream::new(wire, head, framing)
    }
}

/// A connection for one request after the other.
#[derive(Debug)]
pub(crate) struct Line(Wire);

impl Line {
    pub(crate) async fn send(&mut self, request: &Request) -> Reply {
        self.exchange(request).await.expect("a whole reply")
    }

    async fn exchange(&mut self, request: &Request) -> Result<Reply, Broken> {
        self.exchange_bytes(&request.to_bytes(), &request.method).await
    }

    async fn exchange_bytes(&mut self, bytes: &[u8], method: &str) -> Result<Reply, Broken> {
        let Self(wire) = self;
        // A server may refuse before it has read everything, and say so.
        let sent = wire.write(bytes).await;
        self.receive(method).await.map_err(|broken| sent.err().unwrap_or(broken))
    }

    /// Reads the reply to a request with this method.
    async fn receive(&mut self, method: &str) -> Result<Reply, Broken> {
        let Self(wire) = self;
        let (head, mut framing) = wire.head().await?;
        if method == "HEAD" {
            framing = Framing::Done;
        }
        let mut body = Vec::new();
        while let Some(piece) = wire.body(&mut framing).await? {
            body.extend_from_slice(&piece);
        }
        Ok(Reply { status: head.status, headers: head.headers, body })
    }
}

/// A whole reply.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }

    /// The body as one JSON value.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    /// The events of a stream.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        assert!(self.is_stream(), "{} {}", self.status, self.text());
        parse_frames(&self.body)
    }

    /// Every message in it, be it a stream, a batch or one message.
    pub(crate) fn messages(&self) -> Vec<Value> {
        if self.is_stream() {
            return self.frames().iter().filter_map(Frame::message).collect();
        }
        match self.json() {
            Value::Array(messages) => messages,
            message => vec![message],
        }
    }

    /// The answers in it.
    pub(crate) fn answers(&self) -> Vec<Value> {
        self.messages().into_iter().filter(|message| message.get("method").is_none()).collect()
    }

    /// The one answer in it.
    pub(crate) fn answer(&self) -> Value {
        let mut answers = self.answers();
        assert_eq!(answers.len(), 1, "{} {}", self.status, self.text());
        answers.remove(0)
    }

    /// Status and JSON-RPC error code of a refusal.
    pub(crate) fn refusal(&self) -> (u16, i64) {
        (self.status, self.json()["error"]["code"].as_i64().unwrap_or_default())
    }
}
