//! Whose session it is: to everybody else it does not exist, and they cannot tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use steadfast::{Denied, Identified, Identify, Principal};

use super::world::{open_as, principal};
use crate::on_every_store;
use crate::support::{Backing, Host, Http, Reply, Request};

/// Everything that can be done with a session and an event of it.
fn requests(host: &Host, session: &str, event: &str, token: &str) -> Vec<Request> {
    let http = Http::to(host);
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"});
    let notification =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    let answer = json!({"jsonrpc": "2.0", "id": "ask-0", "result": {}});
    [
        http.post(&call),
        http.post(&notification),
        http.post(&answer),
        http.post(&json!([call])),
        http.get(),
        http.get().header("Last-Event-ID", event),
        http.delete(),
    ]
    .into_iter()
    .map(|request| {
        request.header("Mcp-Session-Id", session).header("Authorization", &format!("Bearer {token}"))
    })
    .collect()
}

/// Status, headers and body, without the date.
fn whole(reply: Reply) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let headers = reply.headers.into_iter().filter(|(name, _)| name != "date").collect();
    (reply.status, headers, reply.body)
}

/// Byte for byte the answer of a session that never was.
async fn foreign_is_unknown(backing: Backing) {
    let host = Host::start(backing, |builder| builder.principal(principal)).await;
    let session = open_as(&host, "alice").await;
    let first = requests(&host, &session, "", "alice").remove(0).send().await;
    let event = first.frames()[0].id.clone().expect("an event id");
    let unknown = "A".repeat(32);
    let theirs = requests(&host, &session, &event, "bob");
    let unknowns = requests(&host, &unknown, &event, "bob");
    for (theirs, unknowns) in theirs.iter().zip(&unknowns) {
        let (theirs, unknowns) = (whole(theirs.send().await), whole(unknowns.send().await));
        assert_eq!(theirs.0, 404);
        assert_eq!(theirs, unknowns);
    }
    // And its owner has noticed nothing.
    for (request, status) in requests(&host, &session, &event, "alice").iter().zip([200, 202, 400, 400]) {
        assert_eq!(request.send().await.status, status);
    }
}

/// A session that this process has never seen is not even looked at for a stranger.
async fn strangers_restore_nothing() {
    let mut host = Host::start(Backing::Sqlite, |builder| builder.principal(principal)).await;
    let session = open_as(&host, "alice").await;
    host.restart().await;
    let restored = || format!("{:?}", host.heard).matches("Restored").count();
    for request in requests(&host, &session, "1-0-00000000", "bob") {
        assert_eq!(request.send().await.status, 404);
    }
    let opened = open_as(&host, "alice").await;
    assert_eq!(requests(&host, &session, "", "alice")[0].send().await.status, 200);
    // Events come in order: by the end of this session, everything before has been heard.
    assert_eq!(requests(&host, &opened, "", "alice")[6].send().await.status, 204);
    let closed = async {
        while !format!("{:?}", host.heard).contains("Closed") {
            tokio::task::yield_now().await;
        }
    };
    crate::support::within("the end of a session", closed).await;
    assert_eq!(restored(), 1);
}

#[tokio::test]
async fn strangers_restore_nothing_on_sqlite() {
    strangers_restore_nothing().await;
}

/// 401 comes with its challenge, before any look at the session or the body.
async fn credentials_come_first(backing: Backing) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let host = Host::start(backing, move |builder| {
        let count = Arc::clone(&count);
        builder.principal(move |parts| match parts.headers.get("authorization") {
            Some(value) if value == "Bearer bad" => {
                count.fetch_add(1, Ordering::SeqCst);
                let challenge = r#"Bearer resource_metadata="https://example.com/m""#.into();
                Err(Denied::Unauthenticated { challenge })
            }
            _ => Ok(Principal::anonymous()),
        })
    })
    .await;
    let session = open_as(&host, "alice").await;
    let known = requests(&host, &session, "1-0-00000000", "bad");
    let unknown = requests(&host, &"A".repeat(32), "1-0-00000000", "bad");
    let mut replies = Vec::new();
    for request in known.iter().chain(&unknown) {
        let reply = request.send().await;
        assert_eq!(reply.refusal(), (401, -32600));
        assert_eq!(
            reply.header("www-authenticate"),
            Some(r#"Bearer resource_metadata="https://example.com/m""#)
        );
        replies.push(whole(reply));
    }
    assert!(replies.windows(2).all(|pair| pair[0] == pair[1]), "the session makes no difference");
    assert_eq!(asked.load(Ordering::SeqCst), replies.len());
    // Neither does the body: it is not even read.
    let endless =
        Http::to(&host).post_bytes("{").header("Authorization", "Bearer bad").header("Content-Length", "999");
    assert_eq!(endless.send().await.status, 401);
    assert_eq!(requests(&host, &session, "", "good")[0].send().await.status, 200);
}

/// A client is told what would help: more scopes, or patience.
async fn refusals_say_what_helps(backing: Backing) {
    let patience = |ms: u64| {
        let retry_after = std::time::Duration::from_millis(ms);
        move |parts: &::http::request::Parts| match principal(parts) {
            Err(Denied::Unavailable { .. }) => Err(Denied::Unavailable { retry_after }),
            known => known,
        }
    };
    for (ms, seconds) in [(0, "1"), (1000, "1"), (1001, "2"), (5000, "5")] {
        let host = Host::start(backing, move |builder| builder.principal(patience(ms))).await;
        let session = open_as(&host, "alice").await;
        for request in requests(&host, &session, "", "early") {
            let reply = request.send().await;
            assert_eq!((reply.status, reply.header("retry-after")), (503, Some(seconds)));
        }
        for request in requests(&host, &session, "", "weak") {
            assert_eq!(request.send().await.header("www-authenticate"), Some(super::world::WEAK));
        }
    }
}

/// An `Identify` that waits for another service gives the same responses as one that knows the
/// principal at once.
async fn principals_may_come_late(backing: Backing) {
    struct Late;
    impl Identify for Late {
        fn identify(&self, parts: &::http::request::Parts) -> Identified {
            let known = principal(parts);
            Identified::Pending(Box::pin(async move {
                tokio::task::yield_now().await;
                known
            }))
        }
    }
    let host = Host::start(backing, |builder| builder.identify(Late)).await;
    let session = open_as(&host, "alice").await;
    assert_eq!(requests(&host, &session, "", "alice")[0].send().await.status, 200);
    assert_eq!(requests(&host, &session, "", "bob")[0].send().await.status, 404);
    assert_eq!(requests(&host, &session, "", "expired")[0].send().await.status, 401);
}

on_every_store!(
    foreign_is_unknown,
    credentials_come_first,
    refusals_say_what_helps,
    principals_may_come_late
);
