//! Answers server requests. Some are answered twice at once, and the server must accept one answer.

use std::sync::Arc;

use serde_json::{Value, json};
use steadfast_verify::{Seen, marks};

use super::session::Session;

/// One in so many server requests is answered twice at once.
const ANSWERED_TWICE: u64 = 16;

/// Answers a server request in a task of its own. Ignores one that was delivered before.
pub(crate) fn answer(session: &Arc<Session>, request: Value) {
    let id = request["id"].clone();
    if !session.is_first_delivery(&id.to_string()) {
        return;
    }
    if request["method"] != "elicitation/create" {
        let session = Arc::clone(session);
        tokio::spawn(async move {
            session.post_until_decided(&json!({"jsonrpc": "2.0", "id": id, "result": {}})).await
        });
        return;
    }
    let call = marks(&request["params"].to_string()).next().unwrap_or_default().to_owned();
    let times = if session.rng().one_in(ANSWERED_TWICE) { 2 } else { 1 };
    for time in 0..times {
        let (session, id, call) = (Arc::clone(session), id.clone(), call.clone());
        let reply = format!("{call}-reply-{time}");
        tokio::spawn(async move {
            let result = json!({"action": "accept", "content": {"answer": reply}});
            let status =
                session.post_until_decided(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
            let (name, ask) = (session.name.clone(), id.to_string());
            session.shared.recorder.record(Seen::Replied { session: name, call, ask, reply, status });
        });
    }
}
