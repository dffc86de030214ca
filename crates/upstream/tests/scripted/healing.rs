//! A server that has lost a session: it is opened anew and told what it has to know, and the
//! client's session goes on.

use std::time::Duration;

use steadfast::SessionEventKind::FailedOver;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Http, Relay, Session, Value, json, within};

use super::forgetful::Forgetful;
use super::{call, calls, gateway, opened, reason};

const ODD_CAPABILITIES: &str = r#"{"sampling":{ },"roots":{"listChanged":true},"x":1.50,"x":"\u00e9"}"#;
const ODD_INFO: &str = r#"{"name":"é\u00e9", "version":"1.0","more":[ 1 ]}"#;

/// A session of a client that introduces itself in its own way.
async fn odd_session(host: &Host) -> Session {
    let params = format!(
        r#"{{"protocolVersion":"2025-11-25","capabilities":{ODD_CAPABILITIES},"clientInfo":{ODD_INFO}}}"#
    );
    let body = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{params}}}"#);
    let reply = Http::to(host).post_bytes(body).send().await;
    let id = reply.header("mcp-session-id").expect("a session").to_owned();
    Session { http: Http::to(host), id, revision: "2025-11-25".to_owned() }
}

/// What the server was sent in a session of its own, by method.
fn methods(server: &Server, session: &str) -> Vec<String> {
    let log = server.log();
    let sent = log.iter().filter(|r| r.verb == "POST" && r.header("mcp-session-id") == Some(session));
    sent.map(|request| request.method().to_owned()).collect()
}

fn count(messages: &[Value], method: &str) -> usize {
    messages.iter().filter(|message| message["method"] == method).count()
}

#[tokio::test]
async fn a_lost_session_is_opened_anew_once_however_many_notice() {
    let forgetful = Forgetful::start("s", |_| None).await;
    let server = &forgetful.server;
    let host = gateway(server).await;
    let session = odd_session(&host).await;
    for (id, method, params) in [
        (1, "logging/setLevel", json!({"level": "info"})),
        (2, "resources/subscribe", json!({"uri": "test:é/1"})),
        (3, "resources/subscribe", json!({"uri": "test:2"})),
        (4, "resources/unsubscribe", json!({"uri": "test:2"})),
    ] {
        assert_eq!(session.request(id, method, params).send().await.answer()["result"], json!({}));
    }
    forgetful.forget();
    let work: Vec<_> = (100..150)
        .map(|id| {
            let session = session.clone();
            tokio::spawn(async move { session.tool(id, "t", json!({})).send().await.messages() })
        })
        .collect();
    let mut heard = Vec::new();
    for work in work {
        let messages = work.await.unwrap();
        assert_eq!(messages.last().unwrap()["result"], json!({}), "{messages:?}");
        heard.extend(messages);
    }
    // What the client was told, on whatever stream.
    for kind in ["tools", "prompts", "resources"] {
        assert_eq!(count(&heard, &format!("notifications/{kind}/list_changed")), 1, "{kind}");
    }
    let of = |method: &str| heard.iter().find(|m| m["method"] == method).map(|m| m["params"].clone());
    assert_eq!(count(&heard, "notifications/resources/updated"), 1);
    assert_eq!(of("notifications/resources/updated"), Some(json!({"uri": "test:é/1"})));
    assert_eq!(count(&heard, "notifications/message"), 1);
    let warning = of("notifications/message").unwrap();
    assert_eq!((&warning["level"], &warning["data"]["event"]), (&json!("warning"), &json!("session_healed")));
    host.heard.once(&session, FailedOver).await;
    assert_eq!(host.heard.of(&session).iter().filter(|kind| **kind == FailedOver).count(), 1);
    assert_eq!(host.upstream().failovers(), 1);
    // What the server was told, and that it was told before the first call.
    assert_eq!(forgetful.opened(), 2);
    let introduced: Vec<_> = server.log().into_iter().filter(|r| r.method() == "initialize").collect();
    for request in &introduced {
        let expect = format!(r#""capabilities":{ODD_CAPABILITIES},"clientInfo":{ODD_INFO}}}}}"#);
        assert!(request.text.ends_with(&expect), "{}", request.text);
        assert_eq!(request.header("mcp-session-id"), None);
    }
    let told = methods(server, "s2");
    assert_eq!(
        told[..3],
        ["notifications/initialized", "logging/setLevel", "resources/subscribe"].map(str::to_owned)
    );
    assert_eq!((told.len(), told[3..].iter().filter(|method| *method == "tools/call").count()), (53, 50));
    let subscribed = server.log().into_iter().rfind(|r| r.method() == "resources/subscribe").unwrap();
    assert_eq!(subscribed.body["params"], json!({"uri": "test:é/1"}));
}

/// A client that wants to hear of errors only is not warned, and a second loss is told like the
/// first.
#[tokio::test]
async fn a_client_that_wants_no_warnings_gets_none() {
    let forgetful = Forgetful::start("s", |_| None).await;
    let (_host, session) = opened(&forgetful.server).await;
    session.request(1, "logging/setLevel", json!({"level": "error"})).send().await.answer();
    for round in 1..=3 {
        forgetful.forget();
        let heard = session.tool(round, "t", json!({})).send().await.messages();
        assert_eq!(count(&heard, "notifications/message"), 0);
        assert_eq!(count(&heard, "notifications/tools/list_changed"), 1, "round {round}");
        assert_eq!(forgetful.opened() as u64, 1 + round);
        let last = format!("s{}", round + 1);
        assert_eq!(methods(&forgetful.server, &last)[1], "logging/setLevel");
    }
}

/// 404, a new session, and 404 again: that is an error, not a loop.
#[tokio::test]
async fn a_server_that_forgets_at_once_is_not_asked_for_ever() {
    let forgetful =
        Forgetful::start("s", |request| (request.method() == "tools/call").then(|| Reply::status(404))).await;
    let (_host, session) = opened(&forgetful.server).await;
    assert_eq!(reason(&call(&session, 1, "t").await), ("upstream_unavailable".to_owned(), true));
    assert_eq!((forgetful.opened(), calls(&forgetful.server, "t")), (2, 2));
    // The session is not broken by it.
    let answer = session.request(2, "ping", json!({})).send().await.answer();
    assert_eq!(answer["result"], json!({}));
}

/// As the samples of the TypeScript SDK do it. The same status for a call alone is that call's
/// affair.
#[tokio::test]
async fn a_server_that_says_400_of_a_lost_session_is_healed() {
    let error = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
    let unknown = Reply::json_with(400, "", &json!({"jsonrpc": "2.0", "error": error, "id": null}));
    let forgetful = Forgetful::start_saying(unknown, "s", |request| {
        request.calls("bad").then(|| Reply::new(400, "", "not like this"))
    })
    .await;
    let (host, session) = opened(&forgetful.server).await;
    forgetful.forget();
    assert_eq!(call(&session, 1, "t").await["result"], json!({}));
    assert_eq!((forgetful.opened(), calls(&forgetful.server, "t"), host.upstream().failovers()), (2, 2, 1));
    host.heard.once(&session, FailedOver).await;
    assert_eq!(reason(&call(&session, 2, "bad").await), ("upstream_refused".to_owned(), false));
    assert_eq!((forgetful.opened(), calls(&forgetful.server, "bad"), host.upstream().failovers()), (2, 1, 1));
}

/// 404 with an answer to the call in it is that answer: some servers say so of a tool, or of a
/// method.
#[tokio::test]
async fn a_404_that_answers_the_call_is_no_loss() {
    let forgetful = Forgetful::start("s", |request| {
        let error = json!({"code": -32601, "message": "no such method"});
        (request.method() == "made/up").then(|| Reply::error(request, 404, &error))
    })
    .await;
    let (_host, session) = opened(&forgetful.server).await;
    let answer = session.request(1, "made/up", json!({})).send().await.answer();
    assert_eq!(answer["error"], json!({"code": -32601, "message": "no such method"}));
    assert_eq!(forgetful.opened(), 1);
}

#[tokio::test]
async fn a_notification_that_meets_the_loss_is_sent_again() {
    let forgetful = Forgetful::start("s", |_| None).await;
    let (host, session) = opened(&forgetful.server).await;
    forgetful.forget();
    assert_eq!(session.notify("notifications/roots/list_changed", json!({})).await.status, 202);
    host.heard.once(&session, FailedOver).await;
    let arrived = |log: &[Request]| {
        log.iter().any(|r| {
            r.method() == "notifications/roots/list_changed" && r.header("mcp-session-id") == Some("s2")
        })
    };
    forgetful.server.until("the notification", arrived).await;
}

/// A client that only listens is served, too: the loss shows on the server's own stream.
#[tokio::test]
async fn the_servers_own_stream_shows_the_loss() {
    let updated =
        json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "test:new"}});
    let forgetful = Forgetful::start("s", {
        let updated = updated.clone();
        move |request| match (request.verb.as_str(), request.header("mcp-session-id")) {
            ("GET", Some("s1")) => {
                Some(Reply::stream().until(|log| log.iter().any(|r| r.method() == "notifications/forget")))
            }
            ("GET", _) => Some(Reply::stream().event(&updated).hang()),
            _ => None,
        }
    })
    .await;
    let (host, session) = opened(&forgetful.server).await;
    let mut listener = session.listen().stream().await;
    forgetful.server.until("a GET", |log| log.iter().any(|request| request.verb == "GET")).await;
    let end = session.notify("notifications/forget", json!({}));
    forgetful.forget();
    end.await;
    host.heard.once(&session, FailedOver).await;
    let heard = async { while listener.message().await != updated {} };
    within("what the server says in its new session", heard).await;
}

#[tokio::test]
async fn a_server_that_is_away_for_a_moment_is_waited_for() {
    let forgetful = Forgetful::start("s", |_| None).await;
    let relay = Relay::before(&forgetful.server.url()).await;
    let patience = Duration::from_secs(5);
    let host = Host::before(Backing::Memory, [relay.url()], move |builder| builder.patience(patience)).await;
    let session = Session::open(&host).await;
    relay.kill().await;
    let work: Vec<_> = (0..5)
        .map(|id| {
            let session = session.clone();
            tokio::spawn(async move { call(&session, id, "t").await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(150)).await;
    relay.revive();
    for work in work {
        assert_eq!(work.await.unwrap()["result"], json!({}));
    }
    assert_eq!((forgetful.opened(), calls(&forgetful.server, "t")), (1, 5), "it had forgotten nothing");
}

/// Patience is for each call, not for one after the other.
#[tokio::test]
async fn patience_ends_for_all_at_once() {
    const CALLS: u32 = 50;
    let forgetful = Forgetful::start("s", |_| None).await;
    let relay = Relay::before(&forgetful.server.url()).await;
    let patience = Duration::from_millis(300);
    let host = Host::before(Backing::Memory, [relay.url()], move |builder| builder.patience(patience)).await;
    let session = Session::open(&host).await;
    relay.kill().await;
    let begun = tokio::time::Instant::now();
    let work: Vec<_> = (0..CALLS)
        .map(|id| {
            let session = session.clone();
            tokio::spawn(async move { call(&session, u64::from(id), "t").await })
        })
        .collect();
    for work in work {
        assert_eq!(reason(&work.await.unwrap()), ("upstream_unavailable".to_owned(), true));
    }
    let took = begun.elapsed();
    // One after the other would take 15 seconds.
    assert!((patience..patience * CALLS).contains(&took), "{took:?}");
    // A new session is told as well.
    let reply = Http::to(&host).post(&crate::support::session::initialize("2025-11-25")).send().await;
    assert_eq!(reason(&reply.json()), ("upstream_unavailable".to_owned(), true));
    relay.revive();
    assert_eq!(call(&session, 99, "t").await["result"], json!({}));
}

/// A client cancels its call while the gateway tries to reach the server: the gateway does not send
/// the call when the server is back.
#[tokio::test]
async fn a_call_that_is_cancelled_meanwhile_is_not_sent() {
    let forgetful = Forgetful::start("s", |_| None).await;
    let relay = Relay::before(&forgetful.server.url()).await;
    let host = Host::before(Backing::Memory, [relay.url()], |builder| builder).await;
    let session = Session::open(&host).await;
    relay.kill().await;
    let mut stream = session.tool(1, "t", json!({})).stream().await;
    assert_eq!(session.cancel(1).await.status, 202);
    assert_eq!(stream.messages().await, Vec::<Value>::new());
    relay.revive();
    assert_eq!(call(&session, 2, "other").await["result"], json!({}));
    assert_eq!(calls(&forgetful.server, "t"), 0);
}

/// A server that comes back may be another version, whose tools are not what they were: nothing is
/// done twice on an old word.
#[tokio::test]
async fn what_the_server_said_of_its_tools_is_forgotten_with_its_session() {
    let forgetful = Forgetful::start("s", |request| {
        let is_old = request.header("mcp-session-id") == Some("s1");
        let annotations = if is_old { json!({"idempotentHint": true}) } else { json!({}) };
        let tools = json!([{"name": "set", "inputSchema": {}, "annotations": annotations}]);
        match request.method() {
            "tools/list" => Some(Reply::result(request, &json!({"tools": tools}))),
            "tools/call" if !is_old => Some(Reply::default()),
            _ => None,
        }
    })
    .await;
    let (_host, session) = opened(&forgetful.server).await;
    session.request(1, "tools/list", json!({})).send().await.answer();
    forgetful.forget();
    assert_eq!(reason(&call(&session, 2, "set").await), ("outcome_unknown".to_owned(), false));
    let sent = forgetful.server.log().into_iter().filter(|r| r.header("mcp-session-id") == Some("s2"));
    assert_eq!(sent.filter(|request| request.calls("set")).count(), 1, "by the new version's word");
}
