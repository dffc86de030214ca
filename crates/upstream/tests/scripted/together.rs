//! Gateways that share a session whose server loses it: one gateway opens a new upstream session,
//! all of them use that one afterwards, and no unused upstream session remains at the server.

use std::time::Duration;

use crate::support::server::{Reply, Request};
use crate::support::{Backing, Host, Relay, Session, json};

use super::call;
use super::forgetful::Forgetful;

/// Says in which session of the server's a call is, and has one that takes until the server is
/// prodded and then breaks.
fn script(request: &Request) -> Option<Reply> {
    let tools = ["where", "slow"]
        .map(|name| json!({"name": name, "inputSchema": {}, "annotations": {"readOnlyHint": true}}));
    let id = request.header("mcp-session-id")?;
    match request.method() {
        "tools/list" => Some(Reply::result(request, &json!({"tools": tools}))),
        "tools/call" if request.calls("slow") && id.starts_with('a') => {
            Some(Reply::stream().until(|log| log.iter().any(|request| request.verb == "PROD")))
        }
        "tools/call" => Some(Reply::result(request, &json!({"at": id}))),
        _ => None,
    }
}

/// Opening a session takes until so many are being opened.
fn slow_until(opened: usize) -> impl Fn(&Request) -> Option<Reply> + Send + Sync {
    move |request| {
        let is_first = request.header("mcp-session-id") == Some("a1");
        if request.method() != "notifications/initialized" || is_first {
            return script(request);
        }
        let is_rivalled = move |log: &[Request]| {
            log.iter().filter(|request| request.method() == "initialize").count() >= opened
        };
        let accepted = "HTTP/1.1 202 x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        Some(Reply::default().until(is_rivalled).send(accepted))
    }
}

/// Two replicas, of which the first has the session, and two gateways that have it there.
struct Quartet {
    a: Forgetful,
    b: Forgetful,
    at_a: Relay,
    here: Host,
    there: Host,
    session: Session,
}

impl Quartet {
    async fn start(at_b: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let (a, b) = (Forgetful::start("a", script).await, Forgetful::start("b", at_b).await);
        let at_a = Relay::before(&a.server.url()).await;
        let here = Host::before(Backing::shared(), [at_a.url(), b.server.url()], |builder| {
            builder.patience(Duration::from_secs(5))
        })
        .await;
        let there = here.beside().await;
        let session = Session::open(&here).await;
        Self { a, b, at_a, here, there, session }
    }

    /// Where a call through this gateway ends up.
    async fn from(&self, host: &Host, id: u64) -> String {
        at(&self.session.via(host), id).await
    }
}

async fn at(session: &Session, id: u64) -> String {
    let answer = call(session, id, "where").await;
    answer["result"]["at"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Waits until all sessions of the server's are ended but one.
async fn until_one_is_left(server: &Forgetful, left: &str) {
    let deleted = |log: &[Request]| log.iter().filter(|request| request.verb == "DELETE").count();
    server.server.until("the end of the others", |log| deleted(log) + 1 == server.opened()).await;
    let log = server.server.log();
    let mut ended = log.iter().filter(|request| request.verb == "DELETE");
    assert!(ended.all(|request| request.header("mcp-session-id") != Some(left)), "{left} is in use");
}

#[tokio::test]
async fn gateways_that_move_at_once_move_to_the_same_session() {
    let all = Quartet::start(slow_until(2)).await;
    assert_eq!((all.from(&all.here, 1).await, all.from(&all.there, 2).await), ("a1".into(), "a1".into()));
    all.at_a.kill().await;
    let (here, there) = tokio::join!(all.from(&all.here, 3), all.from(&all.there, 4));
    assert_eq!(here, there);
    assert_eq!(all.b.opened(), 2, "both have tried");
    for id in [5, 7] {
        assert_eq!(
            (all.from(&all.here, id).await, all.from(&all.there, id + 1).await),
            (here.clone(), here.clone())
        );
    }
    until_one_is_left(&all.b, &here).await;
    assert_eq!(all.here.upstream().failovers() + all.there.upstream().failovers(), 1, "it was lost once");
}

/// The replica still works on what it has, for the one gateway that has a connection to it.
#[tokio::test]
async fn a_gateway_leaves_a_seat_that_others_have_left() {
    let all = Quartet::start(script).await;
    assert_eq!(all.from(&all.here, 1).await, "a1");
    all.at_a.shut().await;
    assert_eq!(all.from(&all.there, 2).await, "b1");
    assert_eq!(all.from(&all.here, 3).await, "b1");
    assert_eq!(all.from(&all.there, 4).await, "b1");
    assert_eq!((all.a.opened(), all.b.opened()), (1, 1));
}

#[tokio::test]
async fn a_call_that_was_at_a_replica_when_it_went_goes_where_others_are() {
    let all = Quartet::start(script).await;
    all.session.request(0, "tools/list", json!({})).send().await.answer();
    let slow = tokio::spawn({
        let session = all.session.clone();
        async move { call(&session, 1, "slow").await }
    });
    all.a.server.until("the call", |log| log.iter().any(|request| request.calls("slow"))).await;
    all.at_a.shut().await;
    assert_eq!(all.from(&all.there, 2).await, "b1");
    all.a.server.prod();
    assert_eq!(slow.await.unwrap()["result"], json!({"at": "b1"}));
    assert_eq!(all.b.opened(), 1);
}

/// Notifications are sent without a look at what is written down: the server says that the seat is
/// lost.
#[tokio::test]
async fn a_gateway_that_is_told_of_a_loss_late_goes_where_others_are() {
    let all = Quartet::start(script).await;
    assert_eq!((all.from(&all.here, 1).await, all.from(&all.there, 2).await), ("a1".into(), "a1".into()));
    all.at_a.kill().await;
    assert_eq!(all.from(&all.here, 3).await, "b1");
    all.a.forget();
    all.at_a.revive();
    all.session.via(&all.there).notify("notifications/roots/list_changed", json!({})).await;
    let is_told = |log: &[Request]| {
        let mut told = log.iter().filter(|request| request.method() == "notifications/roots/list_changed");
        told.any(|request| request.header("mcp-session-id") == Some("b1"))
    };
    all.b.server.until("the notification", is_told).await;
    assert_eq!((all.from(&all.there, 4).await, all.from(&all.here, 5).await), ("b1".into(), "b1".into()));
    assert_eq!((all.a.opened(), all.b.opened()), (1, 1));
}

#[tokio::test]
async fn gateways_that_are_told_of_a_loss_at_once_open_one_session() {
    let server = Forgetful::start("a", slow_until(3)).await;
    let here = Host::before(Backing::shared(), [server.server.url()], |builder| builder).await;
    let there = here.beside().await;
    let near = Session::open(&here).await;
    let far = near.via(&there);
    assert_eq!((at(&near, 1).await, at(&far, 2).await), ("a1".into(), "a1".into()));
    server.forget();
    let (one, other) = tokio::join!(at(&near, 3), at(&far, 4));
    assert_eq!(one, other);
    assert_eq!(server.opened(), 3, "both have tried");
    for id in [5, 7] {
        assert_eq!((at(&near, id).await, at(&far, id + 1).await), (one.clone(), one.clone()));
    }
    // The first was forgotten.
    let is_ended = |log: &[Request]| log.iter().filter(|request| request.verb == "DELETE").count() == 1;
    server.server.until("the end of the other", is_ended).await;
    let ended = server.server.log().into_iter().find(|request| request.verb == "DELETE").unwrap();
    assert_ne!(ended.header("mcp-session-id"), Some(one.as_str()));
}
