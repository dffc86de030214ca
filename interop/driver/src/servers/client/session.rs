//! One client session: its handshake, its requests and its streams.

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::exchange::{self, Response};
use super::messages;
use super::stream::Stream;
use crate::servers::outcome::{Fault, FaultKind, Outcome};

/// The time limit for the response to a call that takes no time, on a busy machine.
pub(crate) const RESPONSE_LIMIT: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub(crate) struct Session {
    address: SocketAddr,
    id: Option<String>,
    revision: String,
}

impl Session {
    /// Initializes a session, lists the tools as clients do, and enables logs if the server has
    /// them.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, Fault> {
        let mut session = Self { address, id: None, revision: "2025-11-25".to_owned() };
        let response = session.send(Method::POST, None, &messages::initialize()).await;
        let response = response.map_err(|outcome| outcome.fault("initialize"))?;
        let id = response.head.headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
        let id = id.ok_or_else(|| Fault::new(FaultKind::Broken, "the server opens no session"))?.to_owned();
        let mut stream = Stream::new(response);
        let first =
            timeout(RESPONSE_LIMIT, stream.next()).await.map_err(|_| Outcome::Hangs.fault("initialize"))?;
        let Ok(Some(answer)) = first else {
            return Err(Fault::new(FaultKind::Broken, format!("initialize: {first:?}")));
        };
        let Some(revision) = answer.pointer("/result/protocolVersion").and_then(Value::as_str) else {
            return Err(Outcome::of(&answer).fault("initialize"));
        };
        session = Self { address, id: Some(id), revision: revision.to_owned() };
        session.notify(&messages::notification("notifications/initialized", json!({}))).await?;
        session.request("tools/list", json!({})).await?;
        if answer.pointer("/result/capabilities/logging").is_some() {
            session.request("logging/setLevel", json!({"level": "info"})).await?;
        }
        Ok(session)
    }

    /// Posts a request and returns the stream of its response.
    pub(crate) async fn post(&self, request: &Value) -> Result<Stream, Outcome> {
        self.send(Method::POST, None, request).await.map(Stream::new)
    }

    /// Opens the standalone stream, or resumes a stream after an event id.
    pub(crate) async fn get(&self, after: Option<&str>) -> Result<Stream, Outcome> {
        self.send(Method::GET, after, &Value::Null).await.map(Stream::new)
    }

    /// Posts a message that has no response: a notification, or the response to a server request.
    pub(crate) async fn notify(&self, message: &Value) -> Result<(), Fault> {
        let sent = self.send(Method::POST, None, message).await;
        sent.map(drop).map_err(|outcome| outcome.fault("a message without response"))
    }

    /// Posts a request and waits for its outcome.
    pub(crate) async fn outcome(&self, request: &Value) -> Outcome {
        match self.post(request).await {
            Ok(mut stream) => stream.outcome(&request["id"], RESPONSE_LIMIT, &mut Vec::new()).await,
            Err(outcome) => outcome,
        }
    }

    /// Calls a tool and returns the text of its result. Fails if the call fails.
    pub(crate) async fn text_of(&self, tool: &str, arguments: Value) -> Result<String, Fault> {
        match self.outcome(&messages::call(format!("plain {tool}"), tool, arguments)).await {
            Outcome::Text(text) => Ok(text),
            other => Err(other.fault(tool)),
        }
    }

    async fn request(&self, method: &str, params: Value) -> Result<(), Fault> {
        match self.outcome(&messages::request(method, method, params)).await {
            Outcome::Text(_) => Ok(()),
            other => Err(other.fault(method)),
        }
    }

    async fn send(&self, verb: Method, after: Option<&str>, message: &Value) -> Result<Response, Outcome> {
        let mut headers = vec![("Mcp-Protocol-Version", self.revision.as_str())];
        match &self.id {
            Some(id) => headers.push(("Mcp-Session-Id", id)),
            // The revision is not negotiated yet.
            None => headers.clear(),
        }
        headers.extend(after.map(|id| ("Last-Event-ID", id)));
        let body = if verb == Method::POST {
            headers.push(("Content-Type", "application/json"));
            headers.push(("Accept", "application/json, text/event-stream"));
            message.to_string()
        } else {
            headers.push(("Accept", "text/event-stream"));
            String::new()
        };
        let sent = timeout(RESPONSE_LIMIT, exchange::send(self.address, verb, &headers, body)).await;
        let response = sent.map_err(|_| Outcome::Hangs)?.map_err(Outcome::Lost)?;
        let status = response.head.status;
        if status.is_success() {
            return Ok(response);
        }
        let body = response.body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        Err(Outcome::Refused { status: status.as_u16(), body: String::from_utf8_lossy(&body).into_owned() })
    }
}
