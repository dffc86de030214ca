//! What a handler is given, and what it may do.

use crate::support::session::said;
use crate::support::{Backing, Host, Session, Value, json};

crate::on_every_store!(
    a_silent_handler_answers_and_sends_nothing_else,
    known_methods_with_wrong_parameters_are_refused_as_such,
    unknown_methods_are_not_found,
);

async fn a_silent_handler_answers_and_sends_nothing_else(backing: Backing) {
    let host = Host::start(backing, |builder| builder.silent_handler()).await;
    let session = Session::open(&host).await;
    for id in 1..=3 {
        let mut stream = session.tool(id, "progress", json!({"n": 3})).stream().await;
        let messages = stream.messages().await;
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!(messages[0]["id"], id);
        assert!(!said(&messages[0]).is_empty());
    }
}

async fn known_methods_with_wrong_parameters_are_refused_as_such(backing: Backing) {
    let host = Host::start(backing, |builder| builder).await;
    let session = Session::open(&host).await;
    for (method, params) in [
        ("tools/call", json!({})),
        ("tools/call", json!({"name": 5})),
        ("tools/call", json!([null, "echo"])),
        ("tools/list", json!({"cursor": 5})),
        ("prompts/get", json!({"arguments": {}})),
        ("resources/read", json!({"uri": 1})),
        ("logging/setLevel", json!({"level": "loud"})),
        ("ping", json!([])),
        ("made/up", json!([1])),
    ] {
        assert_eq!(code(&session, method, &params).await, -32602, "{method} {params}");
    }
}

async fn unknown_methods_are_not_found(backing: Backing) {
    let host = Host::start(backing, |builder| builder).await;
    let session = Session::open(&host).await;
    assert_eq!(code(&session, "made/up", &json!({"a": 1})).await, -32601);
    assert_eq!(code(&session, "ping", &json!({"_meta": {"progressToken": 1}})).await, 0);
}

/// The code of the error that a request gets; 0 for a result.
async fn code(session: &Session, method: &str, params: &Value) -> i64 {
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let answer = session.post(&request).stream().await.messages().await.remove(0);
    answer["error"]["code"].as_i64().unwrap_or(0)
}
