//! A server that forgets its sessions when it is told to, as after a restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::json;
use crate::support::server::{Reply, Request, Server};

/// The result of `initialize`, by its capabilities.
pub(super) const CAPABILITIES: &str = r#"{"logging":{},"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}}"#;

#[derive(Clone)]
pub(super) struct Forgetful {
    pub(super) server: Server,
    /// Sessions that were opened, and of these the ones that are forgotten.
    opened: Arc<AtomicUsize>,
    forgotten: Arc<AtomicUsize>,
}

impl Forgetful {
    /// Its sessions are `NAME1`, `NAME2` and so on. The script sees only requests in sessions that
    /// are not forgotten; what it does not know is answered with an empty result.
    pub(super) async fn start(
        name: &'static str,
        script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        Self::start_saying(Reply::status(404), name, script).await
    }

    /// Like [`Self::start`], but answers requests in forgotten sessions with `unknown`.
    pub(super) async fn start_saying(
        unknown: Reply,
        name: &'static str,
        script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let (opened, forgotten) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counts = (Arc::clone(&opened), Arc::clone(&forgotten));
        let server = Server::raw(move |request| {
            if request.method() == "initialize" {
                let no = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
                return Some(initialized(request, &format!("{name}{no}")));
            }
            let no = request.header("mcp-session-id")?.strip_prefix(name)?.parse::<usize>().ok()?;
            if no <= counts.1.load(Ordering::SeqCst) {
                return Some(unknown.clone());
            }
            script(request).or_else(|| usual(request))
        })
        .await;
        Self { server, opened, forgotten }
    }

    /// Forgets every session there is.
    pub(super) fn forget(&self) {
        self.forgotten.store(self.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    pub(super) fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }
}

fn initialized(request: &Request, session: &str) -> Reply {
    let (id, version) = (&request.body["id"], &request.body["params"]["protocolVersion"]);
    let result = format!(
        r#"{{"protocolVersion":{version},"capabilities":{CAPABILITIES},"serverInfo":{{"name":"s","version":"1"}}}}"#
    );
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    Reply::new(200, &format!("content-type: application/json\r\nmcp-session-id: {session}\r\n"), &body)
}

fn usual(request: &Request) -> Option<Reply> {
    match request.verb.as_str() {
        "POST" if request.body.get("id").is_some() && !request.method().is_empty() => {
            Some(Reply::result(request, &json!({})))
        }
        "POST" => Some(Reply::status(202)),
        "GET" => Some(Reply::status(405)),
        "DELETE" => Some(Reply::status(200)),
        _ => None,
    }
}
