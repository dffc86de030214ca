//! A store that is full makes room: whose session is evicted, and what the others notice.

use std::time::Duration;

use steadfast::SessionEventKind::Closed;
use steadfast::{CloseReason, Limits, Principal};

use crate::support::session::{REVISION, initialize};
use crate::support::{Backing, Host, Http, Reply, Session, json};

crate::on_every_store!(
    a_session_that_was_idle_for_a_weekend_still_works,
    a_flood_evicts_its_own_sessions,
    a_principal_at_its_limit_evicts_its_own_sessions,
    without_authentication_the_least_recently_used_session_goes,
    a_session_in_use_is_not_evicted,
    nodes_evict_at_the_same_time,
);

const HOUR: Duration = Duration::from_secs(3600);

/// A host whose clients say who they are.
async fn host(backing: Backing, limits: Limits) -> Host {
    let principal = |parts: &http::request::Parts| {
        let name = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
        Ok(name.map_or_else(Principal::anonymous, Principal::new))
    };
    Host::start(backing, move |builder| builder.limits(limits.clone()).principal(principal)).await
}

fn sessions(sessions: u64) -> Limits {
    Limits { sessions, ..Limits::default() }
}

/// Opens a session as a principal.
async fn open(host: &Host, name: &str) -> Session {
    let http = Http::to(host);
    let reply = http.post(&initialize(REVISION)).header("Authorization", name).send().await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let id = reply.header("mcp-session-id").expect("a session id").to_owned();
    Session { http, id, revision: REVISION.to_owned() }
}

async fn call(session: &Session, name: &str) -> Reply {
    session.tool(1, "echo", json!({"text": "here"})).header("Authorization", name).send().await
}

/// Opens a session and makes a call in it.
async fn used(host: &Host, name: &str) -> Session {
    let session = open(host, name).await;
    assert_eq!(call(&session, name).await.status, 200);
    session
}

async fn a_session_that_was_idle_for_a_weekend_still_works(backing: Backing) {
    let mut host = Host::plain(backing).await;
    let (used, unused) = (Session::open(&host).await, Session::open(&host).await);
    assert_eq!(used.say(1, "echo", json!({"text": "friday"})).await, "friday");
    for _ in 0..64 {
        host.sweep_after(HOUR).await;
    }
    if backing.keeps() {
        host.restart().await;
        host.sweep_after(HOUR).await;
    }
    for session in [used.via(&host), unused.via(&host)] {
        assert_eq!(session.say(2, "echo", json!({"text": "monday"})).await, "monday");
    }
}

async fn a_flood_evicts_its_own_sessions(backing: Backing) {
    let host = host(backing, sessions(8)).await;
    let mut others = vec![used(&host, "ann").await, used(&host, "ann").await, used(&host, "ben").await];
    // One that is about to make its first call.
    others.push(open(&host, "ben").await);
    for _ in 0..20 {
        host.clock.advance(HOUR);
        let session = open(&host, "flood").await;
        // The newest of its sessions works.
        assert_eq!(call(&session, "flood").await.status, 200);
        open(&host, "flood").await;
    }
    for (session, name) in others.iter().zip(["ann", "ann", "ben", "ben"]) {
        assert_eq!(call(session, name).await.status, 200, "{name}");
    }
}

async fn a_principal_at_its_limit_evicts_its_own_sessions(backing: Backing) {
    let host = host(backing, Limits { sessions_per_principal: 2, ..Limits::default() }).await;
    let other = open(&host, "ann").await;
    let (first, second) = (used(&host, "ben").await, open(&host, "ben").await);
    host.clock.advance(HOUR);
    let third = open(&host, "ben").await;
    host.heard.once(&second, Closed(CloseReason::Evicted)).await;
    assert_eq!(call(&second, "ben").await.status, 404);
    for (session, name) in [(&other, "ann"), (&first, "ben"), (&third, "ben")] {
        assert_eq!(call(session, name).await.status, 200);
    }
}

async fn without_authentication_the_least_recently_used_session_goes(backing: Backing) {
    let host = Host::start(backing, |builder| builder.limits(sessions(3))).await;
    let mut all = Vec::new();
    for _ in 0..3 {
        host.clock.advance(HOUR);
        all.push(Session::open(&host).await);
        assert_eq!(all[all.len() - 1].say(1, "echo", json!({"text": "x"})).await, "x");
    }
    host.clock.advance(HOUR);
    // The oldest one is used again, so the second one goes.
    assert_eq!(all[0].say(2, "echo", json!({"text": "x"})).await, "x");
    let unused = Session::open(&host).await;
    let gone =
        |session: Session| async move { session.tool(3, "echo", json!({})).send().await.status == 404 };
    assert!(gone(all[1].clone()).await);
    // A new one takes the place of the one that made no call.
    host.clock.advance(HOUR);
    let newest = Session::open(&host).await;
    assert!(gone(unused).await);
    for session in [&all[0], &all[2], &newest] {
        assert_eq!(session.say(4, "echo", json!({"text": "here"})).await, "here");
    }
}

async fn a_session_in_use_is_not_evicted(backing: Backing) {
    let host = Host::start(backing, |builder| builder.limits(sessions(3))).await;
    let calling = Session::open(&host).await;
    let mut answer = calling.tool(1, "gate", json!({"name": "gate"})).stream().await;
    let listening = Session::open(&host).await;
    let _stream = listening.listen().stream().await;
    host.clock.advance(HOUR);
    let mut last = Session::open(&host).await;
    for _ in 0..4 {
        let next = Session::open(&host).await;
        host.heard.once(&last, Closed(CloseReason::Evicted)).await;
        last = next;
    }
    host.gates.open("gate");
    assert!(answer.message().await["result"].is_object());
    assert_eq!(listening.say(2, "echo", json!({"text": "here"})).await, "here");
}

/// Two nodes that choose from the same sessions keep the limit and refuse no client.
async fn nodes_evict_at_the_same_time(backing: Backing) {
    if !backing.keeps() {
        return;
    }
    let host = Host::start(backing, |builder| builder.limits(sessions(6))).await;
    let beside = host.beside().await;
    for _ in 0..6 {
        host.clock.advance(HOUR);
        tokio::join!(Session::open(&host), Session::open(&beside));
    }
    let usage = host.server().service().engine().store().usage().await.expect("the store works");
    assert!(usage.sessions <= 6, "{usage:?}");
}
