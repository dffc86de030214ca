//! What a server sends that belongs to no call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::SessionEventKind::FailedOver;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Relay, Session, Value, json, within};

use super::forgetful::Forgetful;
use super::{call, opened};

fn changed(kind: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": format!("notifications/{kind}/list_changed")})
}

fn updated(uri: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}})
}

fn gets(log: &[Request]) -> usize {
    log.iter().filter(|request| request.verb == "GET").count()
}

fn echo(request: &Request) -> Option<Reply> {
    (request.method() == "tools/call").then(|| Reply::result(request, &json!({})))
}

#[tokio::test]
async fn notifications_and_asks_come_out_on_the_standalone_stream() {
    let server_request = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
    let server = Server::with_sessions({
        let server_request = server_request.clone();
        move |request| {
            let all = [updated("test:é"), server_request.clone(), changed("tools")];
            (request.verb == "GET")
                .then(|| all.iter().fold(Reply::stream(), |reply, one| reply.event(one)).hang())
        }
    })
    .await;
    let (_host, session) = opened(&server).await;
    let mut stream = session.listen().stream().await;
    assert_eq!(stream.message().await, updated("test:é"));
    let asked = stream.message().await;
    assert_eq!((&asked["method"], &asked["params"]), (&json!("roots/list"), &Value::Null));
    assert_eq!(stream.message().await, changed("tools"));
    let roots = json!({"roots": [{"uri": "file:///é"}]});
    assert_eq!(session.answer(&asked["id"], roots.clone()).await.status, 202);
    server.until("the answer", |log| log.iter().any(Request::is_answer)).await;
    let answer = server.log().into_iter().find(Request::is_answer).unwrap();
    assert_eq!(answer.body, json!({"jsonrpc": "2.0", "id": "q", "result": roots}));
    assert_eq!(answer.header("mcp-session-id"), Some("s1"));
}

/// An ask that belongs to no call is shown where the client reads, but does not end with a call
/// that it has nothing to do with.
#[tokio::test]
async fn an_ask_of_no_call_outlives_the_call_on_whose_stream_it_was_shown() {
    let is =
        |method: &'static str| move |log: &[Request]| log.iter().any(|request| request.method() == method);
    let server = Server::with_sessions(move |request| match request.verb.as_str() {
        "GET" => {
            let server_request = json!({"jsonrpc": "2.0", "id": 1, "method": "roots/list"});
            Some(Reply::stream().until(is("tools/call")).event(&server_request).hang())
        }
        "POST" if request.calls("t") => {
            Some(Reply::stream().until(is("notifications/go")).answer(request, &json!({})))
        }
        _ => None,
    })
    .await;
    let (_host, session) = opened(&server).await;
    let mut post = session.tool(1, "t", json!({})).stream().await;
    let first = post.message().await;
    assert_eq!(first["method"], "roots/list", "the client may have no other stream: {first}");
    session.notify("notifications/go", json!({})).await;
    let rest = post.messages().await;
    assert_eq!(rest.last().unwrap()["result"], json!({}));
    let mut listener = session.listen().stream().await;
    let again = listener.message().await;
    assert_eq!(again["method"], "roots/list");
    assert_eq!(server.count(Request::is_answer), 0, "it has not been given up");
    assert_eq!(session.answer(&again["id"], json!({"roots": []})).await.status, 202);
    server.until("the answer", |log| log.iter().any(Request::is_answer)).await;
    let answer = server.log().into_iter().find(Request::is_answer).unwrap();
    assert_eq!(answer.body["result"], json!({"roots": []}));
}

#[tokio::test]
async fn a_server_without_such_a_stream_is_fine() {
    let server = Server::with_sessions(echo).await;
    let (_host, session) = opened(&server).await;
    server.until("a GET", |log| gets(log) == 1).await;
    for id in 0..3 {
        call(&session, id, "t").await;
    }
    assert_eq!(gets(&server.log()), 1, "it has said no");
}

/// The stream ends after each event, and is asked for from there on.
#[tokio::test]
async fn the_stream_is_resumed_from_where_it_stopped() {
    let server = Server::with_sessions(|request| {
        if request.verb != "GET" {
            return None;
        }
        let last: usize = request.header("last-event-id").map_or(0, |id| id.parse().unwrap());
        let event = format!("id: {}\nretry: 10\ndata: {}\n\n", last + 1, updated(&format!("test:{last}")));
        Some(if last < 5 { Reply::stream().send(&event) } else { Reply::stream().hang() })
    })
    .await;
    let (_host, session) = opened(&server).await;
    let mut stream = session.listen().stream().await;
    for no in 0..5 {
        assert_eq!(stream.message().await, updated(&format!("test:{no}")));
    }
    server.until("the last GET", |log| gets(log) == 6).await;
    assert!(
        server.log().iter().filter(|r| r.verb == "GET").all(|r| r.header("mcp-session-id") == Some("s1"))
    );
}

/// A server, or a balancer before it, that ends the stream again and again without a word: what it
/// says after the twentieth time is heard as after the first.
#[tokio::test]
async fn a_stream_that_is_dropped_again_and_again_is_opened_again() {
    let count = Arc::new(AtomicUsize::new(0));
    let server = Server::with_sessions({
        let count = Arc::clone(&count);
        move |request| {
            if request.verb != "GET" {
                return None;
            }
            Some(match count.fetch_add(1, Ordering::SeqCst) {
                0..20 => Reply::stream().send("retry: 5\n\n"),
                20 => Reply::stream().event(&updated("test:late")),
                _ => Reply::stream().hang(),
            })
        }
    })
    .await;
    let (_host, session) = opened(&server).await;
    assert_eq!(session.listen().stream().await.message().await, updated("test:late"));
}

/// The server was away for so long that the gateway has stopped trying to open its stream: the
/// gateway opens the stream when the server is back.
#[tokio::test]
async fn a_stream_that_was_given_up_is_opened_when_the_server_is_back() {
    let is_back = Arc::new(AtomicUsize::new(0));
    let server = Server::with_sessions({
        let is_back = Arc::clone(&is_back);
        move |request| match request.verb.as_str() {
            "GET" if is_back.load(Ordering::SeqCst) == 0 => Some(Reply::status(503)),
            "GET" => Some(Reply::stream().event(&updated("test:back")).hang()),
            _ => echo(request),
        }
    })
    .await;
    let (_host, session) = opened(&server).await;
    server.until("as many as are tried", |log| gets(log) == 4).await;
    is_back.store(1, Ordering::SeqCst);
    let mut listener = session.listen().stream().await;
    call(&session, 1, "t").await;
    assert_eq!(listener.message().await, updated("test:back"));
}

/// The gateway also opens the stream of a session in which the client makes no calls, at a server
/// that has forgotten the session meanwhile.
#[tokio::test]
async fn a_session_that_only_listens_is_healed_when_the_server_is_back() {
    let forgetful = Forgetful::start("s", |request| {
        let is_first = request.header("mcp-session-id") == Some("s1");
        let stream = if is_first { Reply::stream() } else { Reply::stream().event(&updated("test:back")) };
        (request.verb == "GET").then(|| stream.hang())
    })
    .await;
    let relay = Relay::before(&forgetful.server.url()).await;
    let host = Host::before(Backing::Memory, [relay.url()], |builder| {
        builder.upstream(|config| config.backoff.standalone_retry = Duration::from_millis(20))
    })
    .await;
    let session = Session::open(&host).await;
    let mut listener = session.listen().stream().await;
    forgetful.server.until("a GET", |log| gets(log) == 1).await;
    relay.kill().await;
    // Longer than all attempts of the beginning take.
    tokio::time::sleep(Duration::from_millis(200)).await;
    forgetful.forget();
    relay.revive();
    host.heard.once(&session, FailedOver).await;
    let heard = async { while listener.message().await != updated("test:back") {} };
    within("what the server says in its new session", heard).await;
    assert_eq!(forgetful.opened(), 2);
}

#[tokio::test]
async fn a_session_that_only_listens_leaves_a_dead_replica() {
    let at_b =
        |request: &Request| (request.verb == "GET").then(|| Reply::stream().event(&updated("test:b")).hang());
    let a = Forgetful::start("a", |request| (request.verb == "GET").then(|| Reply::stream().hang())).await;
    let b = Forgetful::start("b", at_b).await;
    let at_a = Relay::before(&a.server.url()).await;
    let host = Host::before(Backing::Memory, [at_a.url(), b.server.url()], |builder| builder).await;
    let session = Session::open(&host).await;
    session.request(1, "resources/subscribe", json!({"uri": "test:b"})).send().await.answer();
    let mut listener = session.listen().stream().await;
    a.server.until("a GET", |log| gets(log) == 1).await;
    at_a.kill().await;
    host.heard.once(&session, FailedOver).await;
    b.server.until("a GET", |log| gets(log) == 1).await;
    // Once because it was opened anew, and once because the server says so.
    let heard = async {
        let mut times = 0;
        while times < 2 {
            times += usize::from(listener.message().await == updated("test:b"));
        }
    };
    within("what the server says elsewhere", heard).await;
    let is_watched = |log: &[Request]| log.iter().any(|request| request.method() == "resources/subscribe");
    b.server.until("the subscription", is_watched).await;
    assert_eq!((a.opened(), b.opened(), host.upstream().failovers()), (1, 1, 1));
}

/// A server whose routes are those of POST alone has not lost a session because it says 404 to a
/// GET.
#[tokio::test]
async fn a_server_that_knows_no_get_keeps_its_session() {
    let server = Server::with_sessions(|request| match (request.verb.as_str(), request.method()) {
        ("GET", _) => Some(Reply::status(404)),
        (_, "ping") => Some(Reply::result(request, &json!({}))),
        _ => echo(request),
    })
    .await;
    let (host, session) = opened(&server).await;
    server.until("a look", |log| log.iter().any(|request| request.method() == "ping")).await;
    for id in 0..5 {
        assert_eq!(call(&session, id, "t").await["result"], json!({}));
    }
    let log = server.log();
    assert_eq!(log.iter().filter(|request| request.method() == "initialize").count(), 1);
    assert_eq!((gets(&log), host.upstream().failovers()), (1, 0));
}

/// What the server says before the client has heard of its session waits for it.
#[tokio::test]
async fn a_server_may_speak_before_the_client_knows_its_session() {
    let server = Server::with_sessions(|request| {
        let server_request = json!({"jsonrpc": "2.0", "id": 5, "method": "roots/list"});
        (request.verb == "GET")
            .then(|| Reply::stream().event(&server_request).event(&changed("prompts")).hang())
    })
    .await;
    let (_host, session) = opened(&server).await;
    server.until("a GET", |log| gets(log) == 1).await;
    let mut stream = session.listen().stream().await;
    assert_eq!(stream.message().await["method"], "roots/list");
    assert_eq!(stream.message().await, changed("prompts"));
}
