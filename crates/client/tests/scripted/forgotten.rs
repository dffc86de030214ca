//! Servers that do not say 404 of a session that they have forgotten, and those that say 400 of something else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_client::{Error, Event, Standalone};

use crate::support::{Recorder, Reply, Request, Server, call, config, connect, json, value};

/// What servers say of sessions that they do not know: the samples of the TypeScript SDK, older releases of the Python SDK, mcp-go.
const UNKNOWN: [&str; 3] = [
    r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#,
    r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: No valid session ID provided"}}"#,
    "Invalid session ID",
];

fn opened(server: &Server) -> usize {
    server.count(|request| request.method() == "initialize")
}

/// The sessions in which requests of a kind came.
fn sessions(server: &Server, which: impl Fn(&Request) -> bool) -> Vec<String> {
    let log = server.log();
    let came = log.iter().filter(|request| which(request));
    came.map(|request| request.header("mcp-session-id").unwrap_or("-").to_owned()).collect()
}

fn refused() -> Error {
    Error::Refused { status: 400, error: None, challenge: None }
}

/// A server that says this of its first session once that is forgotten. Before, its standalone stream is open.
async fn forgetful(says: &'static str) -> (Server, Arc<AtomicBool>) {
    let forgotten = Arc::new(AtomicBool::new(false));
    let is_forgotten = Arc::clone(&forgotten);
    let server = Server::with_sessions(move |request| {
        let is_first = request.header("mcp-session-id") == Some("s1");
        match (request.verb.as_str(), request.method()) {
            _ if is_first && is_forgotten.load(Ordering::SeqCst) => Some(Reply::new(400, "", says)),
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
    (server, forgotten)
}

#[tokio::test]
async fn a_session_that_is_refused_with_400_is_opened_again() {
    for says in UNKNOWN {
        let (server, forgotten) = forgetful(says).await;
        let owner = Recorder::default();
        let client = connect(config(&server), owner.clone()).await;
        forgotten.store(true, Ordering::SeqCst);
        assert_eq!(value(call(&client, "t").await), json!({}), "{says}");
        assert_eq!(sessions(&server, |request| request.calls("t")), ["s1", "s2"], "{says}");
        assert_eq!((opened(&server), owner.events()), (2, vec![Event::SessionRenewed]), "{says}");
    }
}

#[tokio::test]
async fn a_notification_moves_to_the_new_session_too() {
    let (server, forgotten) = forgetful(UNKNOWN[0]).await;
    let client = connect(config(&server), ()).await;
    forgotten.store(true, Ordering::SeqCst);
    client.notify("notifications/x", None).await.unwrap();
    assert_eq!(sessions(&server, |request| request.method() == "notifications/x"), ["s1", "s2"]);
}

/// Nobody calls: the loss shows on the stream alone.
#[tokio::test]
async fn whoever_only_listens_gets_another_session() {
    let (server, forgotten) = forgetful(UNKNOWN[0]).await;
    let owner = Recorder::default();
    let mut config = config(&server);
    config.standalone = Standalone::Held;
    let _client = connect(config, owner.clone()).await;
    owner.until("the stream", |owner| owner.events() == [Event::StandaloneOpen]).await;
    forgotten.store(true, Ordering::SeqCst);
    server.prod();
    let expect = [Event::StandaloneOpen, Event::SessionRenewed, Event::StandaloneOpen];
    owner.until("the next stream", |owner| owner.events() == expect).await;
    assert_eq!(opened(&server), 2);
}

/// Only what a server says of its own session is a reason for another one: that it has none of what was asked for is not.
#[tokio::test]
async fn a_request_alone_that_is_refused_with_400_costs_no_session() {
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
        let owner = Recorder::default();
        let mut config = config(&server);
        config.standalone = Standalone::Held;
        let client = connect(config, owner.clone()).await;
        assert_eq!(call(&client, "t").await, Err(refused()));
        assert_eq!(client.notify("notifications/x", None).await, Err(refused()));
        owner.until("the loss", |owner| owner.events() == [Event::StandaloneLost(refused())]).await;
        assert_eq!((opened(&server), client.session_id().as_deref()), (1, Some("s1")));
    }
}

/// The protocol wants pings answered. One who does not is believed once, and not for every call that it refuses.
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
