//! A client names its session, or its task, with a token that works like a password. No store holds
//! one.

use steadfast::SessionToken;

use crate::support::recorder::Recorded;
use crate::support::{Backing, Host, Modern, Session, json};

crate::on_shared_stores!(a_store_never_sees_a_token);

/// Two nodes serve a session and a task and send each other hints. Rows, keys, channels, payloads:
/// each has the hash.
async fn a_store_never_sees_a_token(backing: Backing) {
    let recorded = Recorded::new(backing);
    let here = Host::start_on(recorded.place.clone(), |builder| builder).await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    session.call(1, "echo", json!({"text": "x"})).await;
    session.listen().stream().await.cut();
    let mut asking = session.tool(2, "ask", json!({"method": "roots/list"})).stream().await;
    asking.message().await;
    assert_eq!(session.via(&there).answer(&json!("ask-0"), json!({"roots": []})).await.status, 202);
    asking.rest().await;
    let modern = |host| Modern::to(host).able(json!({"extensions": {"io.modelcontextprotocol/tasks": {}}}));
    let started = modern(&here).call(3, "task_gate", json!({"name": "a", "text": "done"})).await;
    let task = started["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{started}")).to_owned();
    let looked = modern(&there).ask(4, "tasks/get", json!({"taskId": task})).await.answer();
    assert_eq!(looked["result"]["status"], "working", "{looked}");
    for token in [&session.id, &task] {
        let id = SessionToken::parse(token).expect("a token").id();
        assert!(recorded.contains(id.as_bytes()) || recorded.contains(id.text().as_bytes()), "the hash");
        let bytes = data_encoding::BASE64URL_NOPAD.decode(token.as_bytes()).expect("24 bytes");
        assert!(!recorded.contains(token.as_bytes()), "the text of a token");
        assert!(!recorded.contains(&bytes), "the bytes of a token");
        assert!(
            !recorded.contains(data_encoding::HEXLOWER.encode(&bytes).as_bytes()),
            "a token in hexadecimal"
        );
    }
    here.gates.open("a");
}
