//! A client of 2026-07-28: each request stands for itself.

use serde_json::{Value, json};
use steadfast_wire::header_annotations;

use super::session::said;
use super::{Host, Http, Reply, Request, Stream};

pub(crate) const VERSION: &str = "2026-07-28";

/// What a client says of itself with every request.
#[derive(Clone, Debug)]
pub(crate) struct Modern {
    pub(crate) http: Http,
    /// The members of `_meta`, as they are sent.
    pub(crate) meta: Value,
    token: Option<String>,
}

impl Modern {
    pub(crate) fn to(host: &Host) -> Self {
        Self { http: Http::to(host), meta: envelope(), token: None }
    }

    /// One more member of `_meta`, or another value for one.
    pub(crate) fn meta(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.meta[name] = value.into();
        self
    }

    /// A client that can do these things.
    pub(crate) fn able(self, capabilities: Value) -> Self {
        self.meta("io.modelcontextprotocol/clientCapabilities", capabilities)
    }

    /// A client that wants log messages from this level on.
    pub(crate) fn log_level(self, level: &str) -> Self {
        self.meta("io.modelcontextprotocol/logLevel", level)
    }

    /// A client with a token.
    pub(crate) fn known_as(mut self, name: &str) -> Self {
        self.token = Some(format!("Bearer {name}"));
        self
    }

    pub(crate) fn request(&self, id: impl Into<Value>, method: &str, params: Value) -> Request {
        let mut params = params;
        let mut meta = self.meta.clone();
        if let Some(own) = params["_meta"].as_object() {
            meta.as_object_mut().expect("an object").extend(own.clone());
        }
        params["_meta"] = meta;
        let name = header_annotations::name_member(method)
            .and_then(|member| params[member].as_str().map(str::to_owned));
        let message = json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params});
        let mut request = self.http.post(&message).header("MCP-Protocol-Version", VERSION);
        request = request.header("Mcp-Method", method);
        if let Some(name) = name {
            request = request.header("Mcp-Name", &header_annotations::encode(&name));
        }
        match &self.token {
            Some(token) => request.header("Authorization", token),
            None => request,
        }
    }

    /// A call of a tool, without a wish for progress.
    pub(crate) fn tool(&self, id: impl Into<Value>, name: &str, arguments: Value) -> Request {
        self.request(id, "tools/call", json!({"name": name, "arguments": arguments}))
    }

    pub(crate) async fn call(&self, id: impl Into<Value>, name: &str, arguments: Value) -> Value {
        self.tool(id, name, arguments).send().await.answer()
    }

    /// Calls a tool and gives the text it says.
    pub(crate) async fn say(&self, id: impl Into<Value>, name: &str, arguments: Value) -> String {
        said(&self.call(id, name, arguments).await)
    }

    pub(crate) async fn ask(&self, id: impl Into<Value>, method: &str, params: Value) -> Reply {
        self.request(id, method, params).send().await
    }

    /// A GET for what came after an event.
    pub(crate) fn resume(&self, event: &str) -> Request {
        let request = self.http.get().header("MCP-Protocol-Version", VERSION).header("Last-Event-ID", event);
        match &self.token {
            Some(token) => request.header("Authorization", token),
            None => request,
        }
    }

    pub(crate) fn listen(&self, id: impl Into<Value>, filter: Value) -> Request {
        self.request(id, "subscriptions/listen", json!({"notifications": filter}))
    }

    /// Subscribes, and gives the stream behind its acknowledgement, and what was acknowledged.
    pub(crate) async fn subscribe(&self, id: impl Into<Value>, filter: Value) -> (Stream, Value) {
        let id = id.into();
        let mut stream = self.listen(id.clone(), filter).stream().await;
        let first = stream.message().await;
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
        assert_eq!(first["params"]["_meta"], json!({"io.modelcontextprotocol/subscriptionId": id}));
        let accepted = first["params"]["notifications"].clone();
        (stream, accepted)
    }
}

/// The least that `_meta` must say.
pub(crate) fn envelope() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}
