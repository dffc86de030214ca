//! Sessions: what their requests carry, and what happens when the server loses them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use steadfast_client::{
    BoxFuture, Client, ClientHandler, Effect, Error, Event, LostSessionAction, OpenSession, Revision,
};

use crate::support::{Recorder, Reply, Request, Server, call, config, connect, json, value, within};

#[tokio::test]
async fn everything_after_initialize_carries_session_and_revision() {
    for revision in Revision::LEGACY {
        let server =
            Server::with_sessions(|request| request.calls("t").then(|| Reply::result(request, &json!({}))))
                .await;
        let mut config = config(&server);
        config.era = steadfast_client::Era::Session(revision);
        config.capabilities = r#"{"roots":{}}"#.to_owned();
        config.headers.insert("authorization", "Bearer x".parse().unwrap());
        let client = connect(config, ()).await;
        assert_eq!((client.revision(), client.session_id().as_deref()), (revision, Some("s1")));
        value(call(&client, "t").await);
        client.notify("notifications/roots/list_changed", None).await.unwrap();
        client.close().await.unwrap();
        let log = server.log();
        let verbs: Vec<_> = log.iter().map(|one| format!("{} {}", one.verb, one.method())).collect();
        assert_eq!(
            verbs,
            [
                "POST initialize",
                "POST notifications/initialized",
                "POST tools/call",
                "POST notifications/roots/list_changed",
                "DELETE "
            ]
        );
        let params = json!({
            "protocolVersion": revision.as_str(),
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "steadfast", "version": env!("CARGO_PKG_VERSION")},
        });
        assert_eq!(log[0].body, json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
        for (i, one) in log.iter().enumerate() {
            let expect = if i == 0 { (None, None) } else { (Some("s1"), Some(revision.as_str())) };
            assert_eq!((one.header("mcp-session-id"), one.header("mcp-protocol-version")), expect);
            assert_eq!(one.header("authorization"), Some("Bearer x"));
            if one.verb == "POST" {
                assert_eq!(one.header("accept"), Some("application/json, text/event-stream"));
                assert_eq!(one.header("content-type"), Some("application/json"));
            }
        }
    }
}

/// Whether a second session can be opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reopening {
    Works,
    Fails,
}

/// A server that loses its first session when the flag is set.
async fn losing_sessions(reopening: Reopening) -> (Server, Arc<AtomicBool>) {
    let lost = Arc::new(AtomicBool::new(false));
    let is_lost = Arc::clone(&lost);
    let server = Server::with_sessions(move |request: &Request| {
        let is_gone = is_lost.load(Ordering::SeqCst) && request.header("mcp-session-id") == Some("s1");
        match request.method() {
            "initialize" if reopening == Reopening::Fails && is_lost.load(Ordering::SeqCst) => {
                Some(Reply::status(500))
            }
            "initialize" => None,
            _ if is_gone => Some(Reply::new(404, "", "Session not found")),
            "tools/call" => Some(Reply::result(request, &json!({"ok": true}))),
            _ => None,
        }
    })
    .await;
    (server, lost)
}

async fn fifty(client: &Client) -> Vec<Result<steadfast_client::Answer, Error>> {
    let calls: Vec<_> =
        (0..50).map(|_| client.call("tools/call", Some(r#"{"name":"t"}"#)).expect("there is room")).collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(within("an answer", call.answer()).await);
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_session_is_replaced_once_for_all_calls() {
    let (server, lost) = losing_sessions(Reopening::Works).await;
    let handler = Recorder::default();
    let client = connect(config(&server), handler.clone()).await;
    lost.store(true, Ordering::SeqCst);
    for answer in fifty(&client).await {
        assert_eq!(value(answer), json!({"ok": true}));
    }
    client.notify("notifications/x", None).await.unwrap();
    assert_eq!(server.count(|one| one.method() == "initialize"), 2);
    assert_eq!(server.count(|one| one.method() == "notifications/initialized"), 2);
    assert_eq!(handler.events(), [Event::SessionRenewed]);
    assert_eq!(client.session_id().as_deref(), Some("s2"));
    // The client opens the new session without the old session id.
    let log = server.log();
    let second = log.iter().filter(|one| one.method() == "initialize").nth(1).unwrap();
    assert_eq!(second.header("mcp-session-id"), None);
    // Each call was sent in each session at most once.
    let mut sent: Vec<_> = log
        .iter()
        .filter(|one| one.calls("t"))
        .map(|one| (one.header("mcp-session-id"), one.body["id"].as_i64()))
        .collect();
    let total = sent.len();
    sent.sort();
    sent.dedup();
    assert_eq!(sent.len(), total);
}

#[tokio::test]
async fn a_notification_moves_to_the_new_session_too() {
    let (server, lost) = losing_sessions(Reopening::Works).await;
    let client = connect(config(&server), ()).await;
    lost.store(true, Ordering::SeqCst);
    client.notify("notifications/x", None).await.unwrap();
    let log = server.log();
    let sent: Vec<_> = log.iter().filter(|one| one.method() == "notifications/x").collect();
    assert_eq!(
        sent.iter().map(|one| one.header("mcp-session-id")).collect::<Vec<_>>(),
        [Some("s1"), Some("s2")]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_replacement_fails_all_waiting_calls() {
    let (server, lost) = losing_sessions(Reopening::Fails).await;
    let client = connect(config(&server), ()).await;
    lost.store(true, Ordering::SeqCst);
    for answer in fifty(&client).await {
        assert_eq!(answer, Err(Error::Refused { status: 500, error: None, challenge: None }));
    }
    // Calls that wait for one attempt share its error. Some calls may notice the loss after that
    // attempt.
    let attempts = server.count(|one| one.method() == "initialize") - 1;
    assert!((1..50).contains(&attempts), "{attempts}");
}

#[tokio::test]
async fn the_client_gives_up_if_every_session_is_lost() {
    let server = Server::with_sessions(|request| request.calls("t").then(|| Reply::status(404))).await;
    let client = connect(config(&server), ()).await;
    let error = call(&client, "t").await.unwrap_err();
    assert_eq!((error.effect(), error), (Effect::None, Error::SessionLost));
    assert_eq!(server.count(|one| one.method() == "initialize"), 2);
}

/// Decides this for every lost session.
struct Decides(LostSessionAction);

impl ClientHandler for Decides {
    fn on_session_lost(&self, _session: OpenSession) -> BoxFuture<'_, LostSessionAction> {
        Box::pin(async { self.0.clone() })
    }
}

#[tokio::test]
async fn the_handler_may_refuse_a_replacement() {
    for (lost_session_action, expect) in [
        (LostSessionAction::Moved, (Error::SessionLost, Effect::None)),
        (LostSessionAction::End, (Error::Closed, Effect::Unknown)),
    ] {
        let (server, lost) = losing_sessions(Reopening::Works).await;
        let client = connect(config(&server), Decides(lost_session_action)).await;
        lost.store(true, Ordering::SeqCst);
        let error = call(&client, "t").await.unwrap_err();
        assert_eq!((error.clone(), error.effect()), expect);
        assert_eq!(server.count(|one| one.method() == "initialize"), 1);
    }
}

#[tokio::test]
async fn a_server_may_assign_no_session_id() {
    let calls = AtomicUsize::new(0);
    let server = Server::with_sessions(move |request| match request.method() {
        "initialize" => Some(Reply::result(request, &json!({"protocolVersion": "2025-06-18"}))),
        // Without a session id, a 404 does not mean that a session is lost.
        "tools/call" if calls.fetch_add(1, Ordering::SeqCst) > 0 => Some(Reply::status(404)),
        "tools/call" => Some(Reply::result(request, &json!({}))),
        _ => None,
    })
    .await;
    let client = connect(config(&server), ()).await;
    assert_eq!((client.revision(), client.session_id()), (Revision::V2025_06_18, None));
    value(call(&client, "t").await);
    assert_eq!(call(&client, "t").await, Err(Error::Refused { status: 404, error: None, challenge: None }));
    client.close().await.unwrap();
    assert_eq!(server.count(|one| one.method() == "initialize"), 1);
    assert_eq!(server.count(|one| one.verb == "DELETE"), 0);
}
