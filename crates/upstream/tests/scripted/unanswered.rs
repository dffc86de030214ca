//! Responses that hold no answer: what the client is told, how often the server executes the call,
//! and that no text of a proxy reaches the client.

use std::time::Duration;

use crate::support::server::{Reply, Request, Server};
use crate::support::session::initialize;
use crate::support::{Backing, Host, Http, Value, json};

use super::{call, calls, opened, reason};

const JSON: &str = "content-type: application/json\r\n";
const HTML: &str = "content-type: text/html\r\n";

/// As nginx writes it.
const PAGE: &str = "<html>\r\n<head><title>504 Gateway Time-out</title></head>\r\n<body><hr><center>nginx</center></body></html>";

/// A row of the table: what every call is answered with.
#[derive(Clone, Copy, Debug)]
enum Response {
    /// The HTML page of a proxy.
    Page(u16),
    Plain(u16),
    Empty(u16),
    /// JSON with an `error` that is not JSON-RPC, as some API gateways write it.
    OtherJson(u16),
    /// A JSON-RPC error that names no request, as a server writes it that has not begun.
    ErrorWithoutId(u16),
    /// A JSON-RPC error that answers the call.
    ErrorOfCall(u16),
    Whitespace,
    AnswerToNoCall,
    Notification,
    EmptyStream,
    NotificationInStream,
}

impl Response {
    fn reply(self, request: &Request) -> Reply {
        let error =
            json!({"code": -32050, "message": "own words", "data": {"reason": "own", "retryable": true}});
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
        match self {
            Self::Page(status) => Reply::new(status, HTML, PAGE),
            Self::Plain(status) => Reply::new(status, "content-type: text/plain\r\n", "nginx says no"),
            Self::Empty(status) => Reply::status(status),
            Self::OtherJson(status) => {
                let body = json!({"error": {"code": status, "message": "nginx", "status": "UNAVAILABLE"}});
                Reply::json_with(status, "", &body)
            }
            Self::ErrorWithoutId(status) => {
                let body = json!({"jsonrpc": "2.0", "id": null, "error": error});
                Reply::json_with(status, "retry-after: 1\r\n", &body)
            }
            Self::ErrorOfCall(status) => Reply::error(request, status, &error),
            Self::Whitespace => Reply::new(200, JSON, " \n"),
            Self::AnswerToNoCall => Reply::json(&json!({"jsonrpc": "2.0", "id": 4711, "result": {}})),
            Self::Notification => Reply::json(&note),
            Self::EmptyStream => Reply::stream(),
            Self::NotificationInStream => Reply::stream().event(&note),
        }
    }
}

/// A server with a tool that may be repeated and one that may not. It gives this response to the
/// first calls.
async fn server(response: Response, failures: usize) -> Server {
    let left = std::sync::atomic::AtomicUsize::new(failures);
    Server::with_sessions(move |request| {
        use std::sync::atomic::Ordering::SeqCst;
        let tools = [("look", true), ("pay", false)].map(
            |(name, safe)| json!({"name": name, "inputSchema": {}, "annotations": {"readOnlyHint": safe}}),
        );
        match request.method() {
            "tools/list" => Some(Reply::result(request, &json!({"tools": tools}))),
            "tools/call" if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() => {
                Some(response.reply(request))
            }
            "tools/call" => Some(Reply::result(request, &json!({"done": true}))),
            _ => None,
        }
    })
    .await
}

/// Calls a tool of a server that always responds like this. Gives the answer and the number of
/// executions.
async fn outcome(response: Response, tool: &str) -> (Value, usize) {
    let server = server(response, usize::MAX).await;
    let (_host, session) = opened(&server).await;
    // What may be repeated is known before the call.
    session.request(0, "tools/list", json!({})).send().await.answer();
    let answer = call(&session, 1, tool).await;
    let text = answer.to_string();
    assert!(!text.contains('<') && !text.contains("nginx"), "{response:?} {tool}: {text}");
    (answer, calls(&server, tool))
}

/// Checks one row. `executions`: of the tool that may be repeated. The other one is executed once,
/// whatever happens.
async fn check(response: Response, expect: &str, executions: usize) {
    let (answer, count) = outcome(response, "look").await;
    assert_eq!((reason(&answer), count), ((expect.to_owned(), true), executions), "{response:?}: {answer}");
    let (answer, count) = outcome(response, "pay").await;
    // The server's own error says by itself whether to try again.
    let retryable = expect == "own";
    assert_eq!((reason(&answer), count), ((expect.to_owned(), retryable), 1), "{response:?}: {answer}");
}

#[tokio::test]
async fn a_status_of_a_proxy_leaves_the_outcome_unknown() {
    for status in [502, 503, 504] {
        check(Response::Page(status), "outcome_unknown", 2).await;
    }
    check(Response::Plain(502), "outcome_unknown", 2).await;
    check(Response::Empty(503), "outcome_unknown", 2).await;
    check(Response::OtherJson(503), "outcome_unknown", 2).await;
    check(Response::OtherJson(504), "outcome_unknown", 2).await;
}

/// A server that fails has begun, too. It is there, so the gateway does not try again.
#[tokio::test]
async fn a_status_of_a_server_that_fails_leaves_the_outcome_unknown() {
    for response in [Response::Page(500), Response::Empty(501), Response::Plain(520)] {
        check(response, "outcome_unknown", 1).await;
    }
}

/// The server itself has spoken, whatever the status: its words are the outcome.
#[tokio::test]
async fn a_json_rpc_error_is_the_word_of_the_server() {
    for status in [502, 503, 504] {
        check(Response::ErrorWithoutId(status), "own", 2).await;
        check(Response::ErrorOfCall(status), "own", 1).await;
    }
    check(Response::ErrorWithoutId(500), "own", 1).await;
}

#[tokio::test]
async fn a_response_without_an_answer_leaves_the_outcome_unknown() {
    for response in [
        Response::Empty(200),
        Response::Empty(202),
        Response::Empty(204),
        Response::Whitespace,
        Response::AnswerToNoCall,
        Response::Notification,
        Response::EmptyStream,
        Response::NotificationInStream,
    ] {
        check(response, "outcome_unknown", 2).await;
    }
}

#[tokio::test]
async fn a_call_that_may_be_repeated_gets_the_second_answer() {
    for response in [Response::Page(504), Response::Empty(202), Response::EmptyStream] {
        let server = server(response, 1).await;
        let (_host, session) = opened(&server).await;
        let answer = call(&session, 1, "look").await;
        assert_eq!((&answer["result"], calls(&server, "look")), (&json!({"done": true}), 2), "{response:?}");
    }
}

/// Nothing is at stake when a session is opened: its client may try again.
#[tokio::test]
async fn opening_a_session_may_always_be_tried_again() {
    for status in [502, 503, 504] {
        let server = Server::with_sessions(move |request| {
            (request.method() == "initialize").then(|| Reply::new(status, HTML, PAGE))
        })
        .await;
        let host = Host::before(Backing::Memory, [server.url()], |builder| {
            builder.patience(Duration::from_millis(200))
        })
        .await;
        let told = Http::to(&host).post(&initialize("2025-11-25")).send().await.json();
        assert_eq!(reason(&told), ("upstream_refused".to_owned(), true), "{told}");
        assert_eq!(told["error"]["data"]["status"], status);
        assert!(!told.to_string().contains("nginx"), "{told}");
    }
}

/// The gateway reports a refused request or refused credentials without the body of the refusal,
/// unless that body is JSON-RPC.
#[tokio::test]
async fn a_refusal_is_told_without_the_page_that_came_with_it() {
    for (status, expect) in [
        (301, "upstream_refused"),
        (401, "credentials_refused"),
        (403, "credentials_refused"),
        (405, "upstream_refused"),
        (413, "upstream_refused"),
    ] {
        let (answer, count) = outcome(Response::Page(status), "pay").await;
        assert_eq!((reason(&answer), count), ((expect.to_owned(), false), 1), "{answer}");
        assert_eq!(answer["error"]["data"]["status"], status);
        assert!(answer["error"]["message"].as_str().unwrap().contains(&status.to_string()), "{answer}");
    }
    let (answer, _) = outcome(Response::ErrorWithoutId(401), "pay").await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("own words"), "{answer}");
}

/// The session goes on after each of these.
#[tokio::test]
async fn the_next_call_is_served() {
    for response in [Response::Page(504), Response::Empty(202), Response::AnswerToNoCall] {
        let server = server(response, 1).await;
        let (_host, session) = opened(&server).await;
        assert_eq!(reason(&call(&session, 1, "pay").await).0, "outcome_unknown");
        assert_eq!(call(&session, 2, "pay").await["result"], json!({"done": true}));
    }
}
