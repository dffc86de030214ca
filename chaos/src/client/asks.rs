//! Answering what the server asks: once, or now and then twice, of which one must count.

use std::sync::Arc;

use serde_json::{Value, json};
use steadfast_verify::{Seen, marks};

use super::session::Session;

/// How rarely an ask is answered twice at once.
const TWICE: u64 = 16;

/// Answers beside whatever else goes on.
pub(crate) fn answer(session: &Arc<Session>, ask: Value) {
    let id = ask["id"].clone();
    if !session.is_new_ask(&id.to_string()) {
        return;
    }
    if ask["method"] != "elicitation/create" {
        let session = Arc::clone(session);
        tokio::spawn(async move { session.tell(&json!({"jsonrpc": "2.0", "id": id, "result": {}})).await });
        return;
    }
    let call = marks(&ask["params"].to_string()).next().unwrap_or_default().to_owned();
    let times = if session.rng().one_in(TWICE) { 2 } else { 1 };
    for time in 0..times {
        let (session, id, call) = (Arc::clone(session), id.clone(), call.clone());
        let reply = format!("{call}-reply-{time}");
        tokio::spawn(async move {
            let result = json!({"action": "accept", "content": {"answer": reply}});
            let status = session.tell(&json!({"jsonrpc": "2.0", "id": id, "result": result})).await;
            let (name, ask) = (session.name.clone(), id.to_string());
            session.shared.recorder.note(Seen::Replied { session: name, call, ask, reply, status });
        });
    }
}
