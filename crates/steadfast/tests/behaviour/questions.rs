//! A handler that asks through `InputRequests`, in either era.

use crate::support::session::said;
use crate::support::{Backing, Host, Http, Session, Value, json};

crate::on_every_store!(
    with_a_session_all_questions_are_open_at_once,
    the_first_question_that_fails_fails_the_call,
    without_a_session_the_request_is_repeated_with_the_answers,
    a_client_that_cannot_answer_is_told_what_is_missing,
);

/// What the client's model makes of a question.
fn sample(prompt: &str) -> Value {
    json!({"role": "assistant", "model": "none", "content": {"type": "text", "text": format!("<{prompt}>")}})
}

async fn with_a_session_all_questions_are_open_at_once(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "questions", json!({})).stream().await;
    let answer = async |ask: &Value| {
        let prompt = ask["params"]["messages"][0]["content"]["text"].as_str().unwrap();
        assert_eq!(session.answer(&ask["id"], sample(prompt)).await.status, 202);
    };
    let (first, second) = (stream.message().await, stream.message().await);
    answer(&second).await;
    answer(&first).await;
    answer(&stream.message().await).await;
    assert_eq!(said(&stream.message().await), "<one> <two> <three>");
}

async fn the_first_question_that_fails_fails_the_call(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "questions", json!({})).stream().await;
    let (_open, second) = (stream.message().await, stream.message().await);
    let no =
        json!({"jsonrpc": "2.0", "id": second["id"], "error": {"code": -1, "message": "I would rather not"}});
    assert_eq!(session.post(&no).send().await.status, 202);
    let answers = stream.messages().await;
    let why = answers.last().unwrap()["error"]["message"].as_str().unwrap();
    assert!(why.contains("I would rather not"), "{why}");
}

/// What a stateless call is answered with.
async fn call(host: &Host, client: Value, more: Value) -> Value {
    let mut params = json!({"name": "questions", "arguments": {}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": client,
    }});
    for (name, value) in more.as_object().into_iter().flatten() {
        params[name] = value.clone();
    }
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let request = Http::to(host).post(&message).header("MCP-Protocol-Version", "2026-07-28");
    let request = request.header("Mcp-Method", "tools/call").header("Mcp-Name", "questions");
    request.send().await.json()
}

async fn without_a_session_the_request_is_repeated_with_the_answers(backing: Backing) {
    let host = Host::plain(backing).await;
    let able = || json!({"sampling": {}});
    let first = call(&host, able(), json!({})).await;
    assert_eq!(first["result"]["resultType"], "input_required", "{first}");
    let asked = |answer: &Value| {
        answer["result"]["inputRequests"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(asked(&first), ["one", "two"]);
    let answers = json!({"one": sample("one"), "two": sample("two")});
    let state = &first["result"]["requestState"];
    let second = call(&host, able(), json!({"inputResponses": answers, "requestState": state})).await;
    assert_eq!(asked(&second), ["three"]);
    // Without its state it is the first round again.
    let forgetful = call(&host, able(), json!({"inputResponses": answers})).await;
    assert_eq!(asked(&forgetful), ["one", "two"]);
    let (answers, state) = (json!({"three": sample("three")}), &second["result"]["requestState"]);
    let third = call(&host, able(), json!({"inputResponses": answers, "requestState": state})).await;
    assert_eq!(said(&third), "<one> <two> <three>");
}

async fn a_client_that_cannot_answer_is_told_what_is_missing(backing: Backing) {
    let host = Host::plain(backing).await;
    let refused = call(&host, json!({"roots": {}}), json!({})).await;
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    assert_eq!(refused["error"]["data"], json!({"requiredCapabilities": {"sampling": {}}}));
}
