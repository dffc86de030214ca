//! Servers that do what no server should: each call gets one explicit error, and the next call
//! works.

use crate::support::server::{Reply, Request, Server};
use crate::support::{Value, json};

use super::{call, calls, opened, reason};

const SSE: &str = "content-type: text/event-stream\r\n";
const JSON: &str = "content-type: application/json\r\n";

/// What a call is answered with, by the name of its tool.
fn script(request: &Request) -> Option<Reply> {
    let id = &request.body["id"];
    let other = json!({"jsonrpc": "2.0", "id": 4711, "result": {}});
    let mine = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
    Some(match request.body["params"]["name"].as_str()? {
        "fine" => Reply::result(request, &json!({"fine": true})),
        "wrong id" => Reply::json(&other),
        "wrong id in a stream" => Reply::stream().event(&other),
        "the same digits" => Reply::json(&json!({"jsonrpc": "2.0", "id": id.to_string(), "result": {}})),
        "two answers" => Reply::new(
            200,
            SSE,
            &format!("data: {}\n\ndata: {}\n\n", mine(r#"{"no":1}"#), mine(r#"{"no":2}"#)),
        ),
        "garbage" => Reply::new(200, JSON, "{\"jsonrpc\":\"2.0\",\"id\":"),
        "garbage in a stream" => Reply::stream().send("data: {\"jsonrpc\": nonsense\n\n"),
        "no text" => Reply::new(200, JSON, "\u{0}\u{1}"),
        "a page" => Reply::new(200, "content-type: text/html\r\n", "<html>"),
        "nothing" => Reply::new(202, "", ""),
        "neither" => Reply::json(&json!({"jsonrpc": "2.0", "id": id})),
        "a batch" => Reply::json(&json!([{"jsonrpc": "2.0", "id": id, "result": {}}])),
        "an endless head" => {
            Reply::default().send("HTTP/1.1 200 x\r\n").send(&"x-more: 1234567890\r\n".repeat(20_000))
        }
        "a long header" => {
            Reply::default().send(&format!("HTTP/1.1 200 x\r\nx: {}\r\n\r\n", "y".repeat(500_000)))
        }
        "no head" => Reply::default().send("what?\r\n\r\n"),
        "half a body" => Reply::default()
            .send("HTTP/1.1 200 x\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{"),
        "hangs up" => Reply::default(),
        "moved" => Reply::new(307, "location: /elsewhere\r\n", ""),
        "moved for ever" => Reply::new(301, "location: /elsewhere\r\n", ""),
        status => Reply::new(status.parse().ok()?, "", "because"),
    })
}

async fn check(tool: &str, expect: (&str, bool)) -> Value {
    let server = Server::with_sessions(script).await;
    let (_host, session) = opened(&server).await;
    let answer = call(&session, 1, tool).await;
    assert_eq!(reason(&answer), (expect.0.to_owned(), expect.1), "{tool}: {answer}");
    assert_eq!(calls(&server, tool), 1, "{tool}");
    assert_eq!(call(&session, 2, "fine").await["result"], json!({"fine": true}), "after {tool}");
    answer["error"].clone()
}

#[tokio::test]
async fn what_is_no_answer_is_an_error() {
    for tool in ["garbage", "garbage in a stream", "no text", "a page", "neither"] {
        check(tool, ("bad_response", false)).await;
    }
}

#[tokio::test]
async fn what_breaks_off_has_an_unknown_outcome() {
    for tool in [
        "wrong id",
        "wrong id in a stream",
        "the same digits",
        "nothing",
        "an endless head",
        "a long header",
        "no head",
        "half a body",
        "hangs up",
    ] {
        check(tool, ("outcome_unknown", false)).await;
    }
}

#[tokio::test]
async fn refusals_are_told_with_their_status() {
    for (tool, retryable) in [
        ("400", false),
        ("401", false),
        ("403", false),
        ("405", false),
        ("429", true),
        ("500", false),
        ("501", false),
    ] {
        let reason = match tool {
            "401" | "403" => "credentials_refused",
            "500" | "501" => "outcome_unknown",
            _ => "upstream_refused",
        };
        let error = check(tool, (reason, retryable)).await;
        assert_eq!(error["data"]["status"].to_string(), tool);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(tool) && !message.contains("because"), "{error}");
    }
}

/// The revision has no batches, and there are servers that write them all the same.
#[tokio::test]
async fn an_answer_in_a_batch_is_an_answer() {
    let server = Server::with_sessions(script).await;
    let (_host, session) = opened(&server).await;
    assert_eq!(call(&session, 1, "a batch").await["result"], json!({}));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    for tool in ["moved", "moved for ever"] {
        check(tool, ("upstream_refused", false)).await;
    }
}

#[tokio::test]
async fn of_two_answers_the_first_counts() {
    let server = Server::with_sessions(script).await;
    let (_host, session) = opened(&server).await;
    assert_eq!(call(&session, 1, "two answers").await["result"], json!({"no": 1}));
    assert_eq!(call(&session, 2, "fine").await["result"], json!({"fine": true}));
}
