//! How sessions begin and end at the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::{Limits, Timing};
use steadfast_client::Revision;
use steadfast_engine::{Engine, IncomingMessage, OpenError, Principal, Refusal};

use crate::support::server::{Reply, Request, Server};
use crate::support::session::initialize;
use crate::support::{Backing, Host, Http, Session, json, within};

use super::{gateway, opened, reason};

fn is_delete(request: &Request) -> bool {
    request.verb == "DELETE"
}

async fn deleted(server: &Server, session: &str) {
    let is_it = |r: &Request| is_delete(r) && r.header("mcp-session-id") == Some(session);
    server.until("the DELETE", |log| log.iter().any(is_it)).await;
    assert_eq!(server.count(is_delete), 1, "once is enough");
}

/// Waits until the gateway has so many sessions at the server.
async fn sessions(host: &Host, count: usize) {
    let reached = async {
        while host.upstream().replicas()[0].sessions != count {
            tokio::task::yield_now().await;
        }
    };
    within("the sessions at the server", reached).await;
}

#[tokio::test]
async fn a_deleted_session_is_deleted_at_the_server() {
    let server = Server::with_sessions(|_| None).await;
    let (_host, session) = opened(&server).await;
    assert_eq!(session.delete().send().await.status, 204);
    deleted(&server, "s1").await;
    assert_eq!(session.delete().send().await.status, 404);
}

/// One gateway ends it, and another one, which has served it, hears nothing of that.
#[tokio::test]
async fn a_session_that_ends_at_another_gateway_is_forgotten() {
    let server = Server::with_sessions(|_| None).await;
    let here = Host::before(Backing::shared(), [server.url()], |builder| builder).await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    assert_eq!(super::call(&session.via(&there), 1, "echo").await["id"], 1);
    sessions(&there, 1).await;
    there.sweep_after(Duration::ZERO).await;
    assert_eq!(session.delete().send().await.status, 204);
    sessions(&here, 0).await;
    there.sweep_after(Duration::from_secs(10 * 60)).await;
    sessions(&there, 0).await;
}

#[tokio::test]
async fn an_expired_session_is_deleted_at_the_server() {
    let server = Server::with_sessions(|_| None).await;
    let (host, _session) = opened(&server).await;
    host.sweep_after(Timing::default().idle * 2).await;
    deleted(&server, "s1").await;
}

#[tokio::test]
async fn an_evicted_session_is_deleted_at_the_server() {
    let server = Server::with_sessions(|_| None).await;
    let limits = Limits { sessions_per_principal: 1, ..Limits::default() };
    let host =
        Host::before(Backing::Memory, [server.url()], move |builder| builder.limits(limits.clone())).await;
    let first = Session::open(&host).await;
    let second = Session::open(&host).await;
    deleted(&server, "s1").await;
    assert_eq!(first.delete().send().await.status, 404);
    assert_eq!(super::call(&second, 1, "echo").await["id"], 1);
}

/// The process that opened the session is gone, and no client has used the session at this one: the
/// gateway finds the upstream session in the stored record.
#[tokio::test]
async fn a_session_that_expires_after_a_restart_is_deleted_at_the_server() {
    let server = Server::with_sessions(|_| None).await;
    let mut host = Host::before(Backing::shared(), [server.url()], |builder| builder).await;
    let _session = Session::open(&host).await;
    host.restart().await;
    host.sweep_after(Timing::default().idle * 2).await;
    deleted(&server, "s1").await;
    sessions(&host, 0).await;
}

/// Calls in flight when the session ends get one error, and the server is told to forget.
#[tokio::test]
async fn calls_in_flight_end_with_their_session() {
    let server =
        Server::with_sessions(|r| (r.method() == "tools/call").then(|| Reply::stream().hang())).await;
    let (_host, session) = opened(&server).await;
    let mut stream = session.tool(1, "t", json!({})).stream().await;
    server.until("the call", |log| log.iter().any(|request| request.calls("t"))).await;
    assert_eq!(session.delete().send().await.status, 204);
    let told = stream.messages().await;
    assert_eq!(told.len(), 1);
    assert_eq!(reason(&told[0]), ("session_closed".to_owned(), false));
    deleted(&server, "s1").await;
    server.until("the end of the call", |log| log.iter().any(|request| request.verb == "CLOSED")).await;
}

/// What the server says to `initialize`, and what the client hears.
#[tokio::test]
async fn a_server_that_refuses_the_session_is_quoted_and_nothing_is_left() {
    let error = json!({"code": -32602, "message": "not you", "data": {"n": 1}});
    for way in ["an error", "a status", "an error with a status", "another version", "no version", "rubbish"]
    {
        let server = Server::with_sessions({
            let error = error.clone();
            move |request| {
                let result = |version: &str| {
                    let result = json!({"protocolVersion": version, "capabilities": {}});
                    Reply::result(request, &result)
                };
                (request.method() == "initialize").then(|| match way {
                    "an error" => Reply::error(request, 200, &error),
                    "an error with a status" => Reply::error(request, 400, &error),
                    "a status" => Reply::new(403, "", "not you"),
                    "another version" => result("1999-12-31"),
                    "no version" => Reply::result(request, &json!({})),
                    _ => Reply::new(200, "content-type: application/json\r\n", "rubbish"),
                })
            }
        })
        .await;
        let host = gateway(&server).await;
        let reply = Http::to(&host).post(&initialize("2025-11-25")).send().await;
        assert_eq!(reply.header("mcp-session-id"), None, "{way}");
        let told = reply.json();
        match way {
            "an error" | "an error with a status" => assert_eq!(told["error"], error, "{way}"),
            "a status" => assert_eq!(reason(&told), ("credentials_refused".to_owned(), false)),
            "another version" => {
                assert_eq!(told["error"]["code"], -32602, "{told}");
                assert_eq!(told["error"]["data"], json!({"supported": ["1999-12-31"]}));
            }
            _ => assert_eq!(reason(&told), ("bad_response".to_owned(), false), "{way}"),
        }
        assert!(host.heard.is_silent(), "{way}");
        sessions(&host, 0).await;
    }
}

/// A server that opens a session and then refuses to hear that its client is ready keeps none.
#[tokio::test]
async fn a_session_that_came_to_nothing_is_deleted_at_the_server() {
    let server = Server::with_sessions(|request| {
        (request.method() == "notifications/initialized").then(|| Reply::new(400, "", "no"))
    })
    .await;
    let host = gateway(&server).await;
    let reply = Http::to(&host).post(&initialize("2025-11-25")).send().await;
    assert_eq!(reason(&reply.json()), ("upstream_refused".to_owned(), false));
    deleted(&server, "s1").await;
}

async fn with_room_for_one(server: &Server) -> Host {
    Host::before(Backing::Memory, [server.url()], |builder| {
        builder.limits(Limits { sessions: 1, ..Limits::default() })
    })
    .await
}

#[tokio::test]
async fn a_server_is_not_asked_for_a_session_that_the_store_has_no_room_for() {
    let server = Server::with_sessions(|_| None).await;
    let host = with_room_for_one(&server).await;
    let session = Session::open(&host).await;
    let in_use = session.listen().stream().await;
    let reply = Http::to(&host).post(&initialize("2025-11-25")).send().await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert_eq!(server.count(|request| request.method() == "initialize"), 1);
    sessions(&host, 1).await;
    assert_eq!(session.delete().send().await.status, 204);
    drop(in_use);
    sessions(&host, 0).await;
    Session::open(&host).await;
}

/// There was room for either when the server was asked for both. The second one evicts the first.
#[tokio::test]
async fn a_session_without_room_when_it_is_open_evicts_another() {
    let asked = Arc::new(AtomicUsize::new(0));
    let server = Server::with_sessions(move |request| {
        let both = |log: &[Request]| log.iter().filter(|r| r.method() == "initialize").count() == 2;
        (request.method() == "initialize").then(|| {
            let id = format!("200 x\r\nmcp-session-id: s{}", asked.fetch_add(1, Ordering::SeqCst));
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}});
            Reply::stream().replace("200 x", &id).until(both).answer(request, &result)
        })
    })
    .await;
    let host = with_room_for_one(&server).await;
    let open = || async { Http::to(&host).post(&initialize("2025-11-25")).send().await.status };
    let (one, other) = tokio::join!(open(), open());
    assert_eq!([one, other], [200, 200]);
    server.until("the DELETE", |log| log.iter().any(is_delete)).await;
    assert_eq!(server.count(is_delete), 1, "the other one is in use");
    sessions(&host, 1).await;
}

/// Opens no session before it is prodded.
async fn slow_to_open() -> Server {
    Server::with_sessions(|request| {
        let go = |log: &[Request]| log.iter().any(|request| request.verb == "PROD");
        (request.method() == "initialize").then(|| {
            let with_id = Reply::stream().replace("200 x", "200 x\r\nmcp-session-id: s1");
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}});
            with_id.until(go).answer(request, &result)
        })
    })
    .await
}

/// What the endpoint does for a client that opens a session.
async fn open(engine: Arc<Engine>) -> Result<(), OpenError> {
    let (parts, ()) = http::Request::new(()).into_parts();
    let params = initialize("2025-11-25")["params"].to_string();
    let request = IncomingMessage {
        method: "initialize".to_owned(),
        params: Some(params.into()),
        http: Arc::new(parts),
    };
    engine.open(Principal::anonymous(), Revision::V2025_11_25, request).await.map(drop)
}

#[tokio::test]
async fn a_session_whose_client_has_gone_before_it_was_open_is_deleted_at_the_server() {
    let server = slow_to_open().await;
    let host = gateway(&server).await;
    let engine = Arc::clone(&host.server().0);
    let opening = tokio::spawn(open(engine));
    server.until("the beginning", |log| log.iter().any(|one| one.method() == "initialize")).await;
    opening.abort();
    assert!(opening.await.is_err_and(|error| error.is_cancelled()));
    server.prod();
    deleted(&server, "s1").await;
    sessions(&host, 0).await;
}

#[tokio::test]
async fn a_gateway_that_drains_waits_for_a_session_that_is_being_opened() {
    let server = slow_to_open().await;
    let host = gateway(&server).await;
    let engine = Arc::clone(&host.server().0);
    let opening = tokio::spawn(open(Arc::clone(&engine)));
    server.until("the beginning", |log| log.iter().any(|one| one.method() == "initialize")).await;
    let draining = Arc::clone(&engine);
    let mut drained = tokio::spawn(async move { draining.drain(Duration::ZERO).await });
    within("the drain to begin", async {
        while !engine.is_draining() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(open(engine).await, Err(OpenError::Refused(Refusal::Draining)));
    let waits = tokio::time::timeout(Duration::from_millis(200), &mut drained).await;
    assert!(waits.is_err(), "the drain waits for the session that is being opened");
    server.prod();
    // What comes of it is not certain: a process that leaves takes no lease.
    let _ = within("the end of the opening", opening).await.unwrap();
    within("the drain", drained).await.unwrap();
}

/// The session that the client's own opens at the server is of the client's revision.
#[tokio::test]
async fn every_revision_is_spoken_to_the_server_as_to_the_client() {
    let server =
        Server::with_sessions(|r| (r.method() == "tools/call").then(|| Reply::result(r, &json!({})))).await;
    let host = gateway(&server).await;
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = Session::at(&host, revision).await;
        super::call(&session, 1, revision).await;
        let sent = server.log().into_iter().find(|request| request.calls(revision)).unwrap();
        assert_eq!(sent.header("mcp-protocol-version"), Some(revision));
    }
}

/// A server that settles for an older revision is followed.
#[tokio::test]
async fn a_server_may_settle_for_an_older_revision() {
    let server = Server::with_sessions(|request| match request.method() {
        "initialize" => {
            let result = json!({"protocolVersion": "2025-03-26", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}});
            let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
            Some(Reply::json_with(200, "mcp-session-id: s1\r\n", &body))
        }
        "tools/call" => Some(Reply::result(request, &json!({}))),
        _ => None,
    })
    .await;
    let host = gateway(&server).await;
    let reply = Http::to(&host).post(&initialize("2025-11-25")).send().await;
    assert_eq!(reply.json()["result"]["protocolVersion"], "2025-03-26");
    let id = reply.header("mcp-session-id").unwrap().to_owned();
    let session = Session { http: Http::to(&host), id, revision: "2025-03-26".to_owned() };
    assert_eq!(super::call(&session, 1, "t").await["result"], json!({}));
    let sent = server.log().into_iter().find(|request| request.calls("t")).unwrap();
    assert_eq!(sent.header("mcp-protocol-version"), Some("2025-03-26"));
}

/// A server that gives its sessions no name has them all the same.
#[tokio::test]
async fn a_server_without_session_ids_is_served() {
    let deletes = Arc::new(AtomicUsize::new(0));
    let server = Server::with_sessions({
        let deletes = Arc::clone(&deletes);
        move |request| match (request.verb.as_str(), request.method()) {
            ("POST", "initialize") => {
                let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}});
                Some(Reply::result(request, &result))
            }
            ("POST", "tools/call") => Some(Reply::result(request, &json!({}))),
            ("POST", "made/up") => Some(Reply::status(404)),
            ("DELETE", _) => {
                deletes.fetch_add(1, Ordering::SeqCst);
                None
            }
            _ => None,
        }
    })
    .await;
    let (_host, session) = opened(&server).await;
    assert_eq!(super::call(&session, 1, "t").await["result"], json!({}));
    // There is nothing that it could have forgotten.
    let answer = session.request(2, "made/up", json!({})).send().await.answer();
    assert_eq!(reason(&answer), ("upstream_refused".to_owned(), false));
    assert_eq!(server.count(|request| request.method() == "initialize"), 1);
    assert_eq!(session.delete().send().await.status, 204);
    assert_eq!(deletes.load(Ordering::SeqCst), 0);
}
