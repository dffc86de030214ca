//! A client's side of a session.

use serde_json::{Value, json};
use steadfast::{SessionId, SessionToken};

use super::{Host, Http, Reply, Request};

/// The revision that tests speak unless they care.
pub(crate) const REVISION: &str = "2025-11-25";

/// What a client knows of its session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) http: Http,
    pub(crate) id: String,
    pub(crate) revision: String,
}

impl Session {
    pub(crate) async fn open(host: &Host) -> Self {
        Self::at(host, REVISION).await
    }

    /// Opens a session of this revision.
    pub(crate) async fn at(host: &Host, revision: &str) -> Self {
        let http = Http::to(host);
        let reply = http.post(&initialize(revision)).send().await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.json()["result"]["protocolVersion"], revision);
        let id = reply.header("mcp-session-id").expect("a session id").to_owned();
        let session = Self { http, id, revision: revision.to_owned() };
        assert_eq!(session.notify("notifications/initialized", json!({})).await.status, 202);
        session
    }

    /// Returns this session as a client of another host uses it.
    pub(crate) fn via(&self, host: &Host) -> Self {
        Self { http: Http::to(host), ..self.clone() }
    }

    pub(crate) fn session_id(&self) -> SessionId {
        SessionToken::parse(&self.id).expect("the token of a session").id()
    }

    /// Puts the session's headers on a request.
    pub(crate) fn with_headers(&self, request: Request) -> Request {
        request.header("Mcp-Session-Id", &self.id).header("MCP-Protocol-Version", &self.revision)
    }

    pub(crate) fn post(&self, message: &Value) -> Request {
        self.with_headers(self.http.post(message))
    }

    pub(crate) fn request(&self, id: impl Into<Value>, method: &str, params: Value) -> Request {
        self.post(&json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params}))
    }

    /// A call of a tool, which wants progress.
    pub(crate) fn tool(&self, id: impl Into<Value>, name: &str, arguments: Value) -> Request {
        self.post(&tool_call(id, name, arguments))
    }

    /// Calls a tool and gives the answer.
    pub(crate) async fn call(&self, id: impl Into<Value>, name: &str, arguments: Value) -> Value {
        self.tool(id, name, arguments).send().await.answer()
    }

    /// Calls a tool and gives the text it says.
    pub(crate) async fn say(&self, id: impl Into<Value>, name: &str, arguments: Value) -> String {
        said(&self.call(id, name, arguments).await)
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) -> Reply {
        self.post(&json!({"jsonrpc": "2.0", "method": method, "params": params})).send().await
    }

    pub(crate) async fn cancel(&self, id: impl Into<Value>) -> Reply {
        self.notify("notifications/cancelled", json!({"requestId": id.into()})).await
    }

    /// Answers a request of the server.
    pub(crate) async fn answer(&self, ask: &Value, result: Value) -> Reply {
        self.post(&json!({"jsonrpc": "2.0", "id": ask, "result": result})).send().await
    }

    /// A GET for what belongs to no call.
    pub(crate) fn listen(&self) -> Request {
        self.with_headers(self.http.get())
    }

    /// A GET for what came after an event.
    pub(crate) fn resume(&self, event: &str) -> Request {
        self.listen().header("Last-Event-ID", event)
    }

    pub(crate) fn delete(&self) -> Request {
        self.with_headers(self.http.delete())
    }
}

pub(crate) fn initialize(revision: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": revision,
        "capabilities": {"sampling": {}, "elicitation": {}, "roots": {}},
        "clientInfo": {"name": "tests", "version": "1"},
    }})
}

pub(crate) fn tool_call(id: impl Into<Value>, name: &str, arguments: Value) -> Value {
    let id = id.into();
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": name, "arguments": arguments, "_meta": {"progressToken": id},
    }})
}

/// The text of a tool's answer.
pub(crate) fn said(answer: &Value) -> String {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}
