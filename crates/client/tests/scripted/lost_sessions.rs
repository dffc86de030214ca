//! Servers that do not answer 404 for a lost session, and servers that answer 400 for other
//! reasons.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_client::{Error, Event, StandaloneStream};

use crate::support::{Recorder, Reply, Request, Server, call, config, connect, json, value};

/// Errors for unknown sessions: samples of the TypeScript SDK, older releases of the Python SDK,
/// mcp-go.
const UNKNOWN: [&str; 3] = [
    r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#,
    r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: No valid session ID provided"}}"#,
    "Invalid session ID",
];

fn opened(server: &Server) -> usize {
    server.count(|request| request.method() == "initialize")
}

/// The sessions of all requests of a kind.
fn sessions(server: &Server, which: impl Fn(&Request) -> bool) -> Vec<String> {
    let log = server.log();
    let came = log.iter().filter(|request| which(request));
    came.map(|request| request.header("mcp-session-id").unwrap_or("-").to_owned()).collect()
}

fn refused() -> Error {
    Error::Refused { status: 400, error: None, challenge: None }
}

/// A server that responds with this text for its first session once that session is lost. Before
/// that, its standalone stream is open.
async fn losing_sessions(says: &'static str) -> (Server, Arc<AtomicBool>) {
    let lost = Arc::new(AtomicBool::new(false));
    let is_lost = Arc::clone(&lost);
    let server = Server::with_sessions(move |request| {
        let is_first = request.header("mcp-session-id") == Some("s1");
        match (request.verb.as_str(), request.method()) {
            _ if is_first && is_lost.load(Ordering::SeqCst) => Some(Reply::new(400, "", says)),
            ("GET", _) if is_first => {
                let is_prodded = |log: &[Request]| log.iter().any(|request| request.verb == "PROD");
                Some(Reply::stream().send("id: 1\ndata:\n\n").until(is_prodded))
            }
            ("GET", _) => Some(Reply::stream().hang()),
            (_, "tools/call" | "ping") => Some(Reply::result(request, &json!({}))),
            _ => None,
        }
    })
    .await;
    (server, lost)
}

#[tokio::test]
async fn a_session_refused_with_400_is_replaced() {
    for says in UNKNOWN {
        let (server, lost) = losing_sessions(says).await;
        let handler = Recorder::default();
        let client = connect(config(&server), handler.clone()).await;
        lost.store(true, Ordering::SeqCst);
        assert_eq!(value(call(&client, "t").await), json!({}), "{says}");
        assert_eq!(sessions(&server, |request| request.calls("t")), ["s1", "s2"], "{says}");
        assert_eq!((opened(&server), handler.events()), (2, vec![Event::SessionRenewed]), "{says}");
    }
}

#[tokio::test]
async fn a_notification_moves_to_the_new_session_too() {
    let (server, lost) = losing_sessions(UNKNOWN[0]).await;
    let client = connect(config(&server), ()).await;
    lost.store(true, Ordering::SeqCst);
    client.notify("notifications/x", None).await.unwrap();
    assert_eq!(sessions(&server, |request| request.method() == "notifications/x"), ["s1", "s2"]);
}

/// No call is made: only the standalone stream shows that the session is lost.
#[tokio::test]
async fn a_lost_session_is_replaced_without_a_call() {
    let (server, lost) = losing_sessions(UNKNOWN[0]).await;
    let handler = Recorder::default();
    let mut config = config(&server);
    config.standalone_stream = StandaloneStream::Open;
    let _client = connect(config, handler.clone()).await;
    handler.until("the stream", |handler| handler.events() == [Event::StandaloneOpen]).await;
    lost.store(true, Ordering::SeqCst);
    server.prod();
    let expect = [Event::StandaloneOpen, Event::SessionRenewed, Event::StandaloneOpen];
    handler.until("the next stream", |handler| handler.events() == expect).await;
    assert_eq!(opened(&server), 2);
}

/// Only an error about the session itself justifies a new session. An error about the request does
/// not.
#[tokio::test]
async fn a_request_refused_with_400_keeps_its_session() {
    let unknown = json!({"code": -32601, "message": "no such method"});
    let odd = json!({"code": -32000, "message": "not now"});
    for ping in [(200, None), (400, Some(unknown)), (400, Some(odd)), (500, None)] {
        let server = Server::with_sessions(move |request| match (request.verb.as_str(), request.method()) {
            ("GET", _) | (_, "tools/call" | "notifications/x") => Some(Reply::new(400, "", "no")),
            (_, "ping") => Some(match &ping {
                (200, _) => Reply::result(request, &json!({})),
                (status, Some(error)) => Reply::error(request, *status, error),
                (status, None) => Reply::status(*status),
            }),
            _ => None,
        })
        .await;
        let handler = Recorder::default();
        let mut config = config(&server);
        config.standalone_stream = StandaloneStream::Open;
        let client = connect(config, handler.clone()).await;
        assert_eq!(call(&client, "t").await, Err(refused()));
        assert_eq!(client.notify("notifications/x", None).await, Err(refused()));
        handler.until("the loss", |handler| handler.events() == [Event::StandaloneLost(refused())]).await;
        assert_eq!((opened(&server), client.session_id().as_deref()), (1, Some("s1")));
    }
}

/// The protocol requires answers to pings. If a server refuses a ping in a new session, the client
/// stops using pings, instead of opening a session for every refused call.
#[tokio::test]
async fn a_server_that_refuses_pings_loses_one_session_at_most() {
    let server = Server::with_sessions(|request| {
        matches!(request.method(), "tools/call" | "ping").then(|| Reply::new(400, "", "no"))
    })
    .await;
    let client = connect(config(&server), ()).await;
    for _ in 0..3 {
        assert_eq!(call(&client, "t").await, Err(refused()));
    }
    assert_eq!((opened(&server), sessions(&server, |request| request.calls("t")).len()), (2, 4));
}
