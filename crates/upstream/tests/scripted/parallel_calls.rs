//! `concurrency = "auto"`: servers that lose parallel calls get one at a time, and the others get
//! all of them.

use std::collections::BTreeSet;

use steadfast_upstream::{Concurrency, Credential, SerialReason, Verdict};

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Session, Value, json, within};

use super::blob_server::{Blobs, PINGS, blob_server};
use super::turns::begin;
use super::{call, calls};

/// How many pings a server gets that answers all of them.
const ALL_PINGS: usize = 3 * PINGS;

pub(super) async fn gateway(backing: Backing, server: &Server) -> Host {
    Host::before(backing, [server.url()], |builder| {
        builder.upstream(|config| config.calls.concurrency = Concurrency::Auto)
    })
    .await
}

/// Calls `count` this many times at the same time and returns the answers.
pub(super) async fn count_in_parallel(sessions: &[&Session], first: u64, calls: u64) -> Vec<Value> {
    let tasks: Vec<_> = (first..first + calls)
        .zip(sessions.iter().cycle())
        .map(|(id, session)| {
            let session = Session::clone(session);
            tokio::spawn(async move { call(&session, id, "count").await })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(within("an answer", task).await.unwrap());
    }
    answers
}

/// Makes 20 parallel calls five times. Each has its own answer, and the server's session has
/// counted all of them.
pub(super) async fn assert_nothing_is_lost(sessions: &[&Session], blobs: &Blobs) {
    let mut counted = BTreeSet::new();
    for round in 0..5 {
        for answer in count_in_parallel(sessions, round * 20, 20).await {
            counted.insert(answer["result"]["count"].as_u64().unwrap_or_else(|| panic!("{answer}")));
        }
    }
    assert_eq!(counted, (1..=100).collect(), "a step of the counter is lost or was made twice");
    assert_eq!(blobs.peak(), 1);
}

pub(super) fn verdict(host: &Host) -> Option<Verdict> {
    host.upstream().replicas()[0].verdict
}

pub(super) fn pings(server: &Server) -> usize {
    server.count(|request| request.method() == "ping")
}

fn initializes(server: &Server) -> usize {
    server.count(|request| request.method() == "initialize")
}

/// The verdict comes after the last ping was answered.
async fn until_known(host: &Host, expected: Verdict) {
    within("the verdict", async {
        while verdict(host) != Some(expected) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_loses_parallel_calls_works_without_a_setting() {
    for backing in [Backing::Memory, Backing::Sqlite] {
        let (server, blobs) = blob_server(|_| None).await;
        let host = gateway(backing, &server).await;
        let session = Session::open(&host).await;
        assert_nothing_is_lost(&[&session], &blobs).await;
        assert_eq!(verdict(&host), Some(Verdict::Serial(SerialReason::Check)));
        assert_eq!((pings(&server), initializes(&server)), (PINGS, 2), "the first round shows the fault");
        // The session of the check is deleted.
        let is_deleted = |r: &Request| r.verb == "DELETE" && r.header("mcp-session-id") == Some("s2");
        server.until("the end of the check", |log| log.iter().any(is_deleted)).await;
        // Another session needs no check.
        count_in_parallel(&[&Session::open(&host).await], 0, 2).await;
        assert_eq!((pings(&server), blobs.peak()), (PINGS, 1));
    }
}

#[tokio::test]
async fn answers_to_server_requests_and_cancellations_pass_waiting_calls() {
    let (server, _) = blob_server(|_| None).await;
    let host = gateway(Backing::Memory, &server).await;
    let session = Session::open(&host).await;
    count_in_parallel(&[&session], 0, 2).await;
    let mut asking = begin(&session, 10, "ask").await;
    let asked = asking.message().await;
    assert_eq!(asked["method"], "elicitation/create");
    let mut first = begin(&session, 11, "count").await;
    let mut second = begin(&session, 12, "count").await;
    within("two calls to wait", async {
        while host.upstream().queued_calls() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(session.cancel(12).await.status, 202);
    assert!(second.messages().await.is_empty());
    assert_eq!(session.answer(&asked["id"], json!({"action": "accept"})).await.status, 202);
    assert_eq!(asking.message().await["result"], json!({"asked": true}));
    assert_eq!(first.message().await["result"], json!({"count": 3}));
}

/// A server whose calls end when all of them have arrived.
async fn all_at_once(number: usize) -> Server {
    Server::with_sessions(move |request| {
        let have_arrived = move |log: &[Request]| {
            log.iter().filter(|request| request.calls("count")).count().is_multiple_of(number)
        };
        let reply = || Reply::stream().until(have_arrived).answer(request, &json!({"count": 0}));
        (request.method() == "tools/call").then(reply)
    })
    .await
}

#[tokio::test]
async fn a_healthy_server_keeps_full_parallelism() {
    let server = all_at_once(20).await;
    let host = gateway(Backing::Memory, &server).await;
    let session = Session::open(&host).await;
    let mut first = begin(&session, 100, "count").await;
    server.until("the first call", |log| log.iter().any(|request| request.calls("count"))).await;
    assert_eq!(initializes(&server), 1, "a single call needs no check");
    for answer in count_in_parallel(&[&session], 0, 19).await {
        assert_eq!(answer["result"], json!({"count": 0}), "{answer}");
    }
    assert_eq!(first.message().await["result"], json!({"count": 0}));
    assert_eq!(verdict(&host), Some(Verdict::Parallel));
    let other = Session::open(&host).await;
    count_in_parallel(&[&session, &other], 20, 20).await;
    assert_eq!((pings(&server), initializes(&server)), (ALL_PINGS, 3), "one check for all sessions");
}

#[tokio::test]
async fn an_explicit_setting_causes_no_check() {
    let server = all_at_once(20).await;
    let host = super::gateway(&server).await;
    count_in_parallel(&[&Session::open(&host).await], 0, 20).await;
    assert_eq!((pings(&server), verdict(&host)), (0, None));
}

/// The check has found nothing, and then a call gets 202 instead of an answer.
#[tokio::test]
async fn a_wrong_answer_serialises_from_then_on() {
    let (server, blobs) = blob_server(|request| match request.method() {
        "ping" => Some(Reply::result(request, &json!({}))),
        _ if request.calls("lose") => Some(Reply::status(202)),
        _ => None,
    })
    .await;
    let host = gateway(Backing::Memory, &server).await;
    let session = Session::open(&host).await;
    let mut asking = begin(&session, 10, "ask").await;
    let asked = asking.message().await;
    let lost = call(&session, 11, "lose").await;
    assert_eq!(super::reason(&lost), ("outcome_unknown".to_owned(), false));
    assert_eq!(verdict(&host), Some(Verdict::Serial(SerialReason::WrongAnswer)));
    assert_eq!(session.answer(&asked["id"], json!({"action": "accept"})).await.status, 202);
    assert_eq!(asking.message().await["result"], json!({"asked": true}));
    assert_nothing_is_lost(&[&session], &blobs).await;
    assert_eq!(pings(&server), ALL_PINGS);
}

#[tokio::test]
async fn php_sdk_is_recognised_without_pings() {
    let (server, blobs) = blob_server(|request| {
        let error =
            json!({"jsonrpc": "2.0", "id": "", "error": {"code": -32600, "message": "Method Not Allowed"}});
        let refused = || Reply::json_with(405, "allow: POST, DELETE, OPTIONS\r\n", &error);
        (request.verb == "GET").then(refused)
    })
    .await;
    let host = gateway(Backing::Memory, &server).await;
    let session = Session::open(&host).await;
    assert_nothing_is_lost(&[&session], &blobs).await;
    assert_eq!(verdict(&host), Some(Verdict::Serial(SerialReason::Fingerprint)));
    assert_eq!(pings(&server), 0);
}

#[tokio::test]
async fn a_server_that_refuses_large_requests_gets_smaller_ones() {
    let server = Server::with_sessions(|request| {
        if request.text.len() > 100_000 {
            return Some(Reply::status(413));
        }
        let both = |log: &[Request]| log.iter().filter(|request| request.calls("count")).count() == 2;
        (request.method() == "tools/call").then(|| Reply::stream().until(both).answer(request, &json!({})))
    })
    .await;
    let host = gateway(Backing::Memory, &server).await;
    count_in_parallel(&[&Session::open(&host).await], 0, 2).await;
    assert_eq!(verdict(&host), Some(Verdict::Parallel));
    let log = server.log();
    let sizes: Vec<_> = log.iter().filter(|r| r.method() == "ping").map(|r| r.text.len() >> 10).collect();
    assert_eq!(sizes, [[512; PINGS].as_slice(), &[64; ALL_PINGS]].concat());
}

/// The server has no room for the session of the check. It gets one call at a time until the check
/// succeeds.
#[tokio::test]
async fn a_check_that_fails_decides_conservatively() {
    let (server, blobs) = blob_server(|request| {
        let info = &request.body["params"]["clientInfo"]["name"];
        (request.method() == "initialize" && info == "steadfast").then(|| Reply::status(403))
    })
    .await;
    let host = gateway(Backing::Memory, &server).await;
    let session = Session::open(&host).await;
    assert_nothing_is_lost(&[&session], &blobs).await;
    assert_eq!(verdict(&host), Some(Verdict::Serial(SerialReason::CheckFailed)));
    assert_eq!(initializes(&server), 2, "one check");
}

#[tokio::test]
async fn a_server_without_session_ids_needs_no_check() {
    let server = Server::with_sessions(|request| {
        let result = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}});
        let both = |log: &[Request]| log.iter().filter(|request| request.calls("count")).count() == 2;
        match request.method() {
            "initialize" => Some(Reply::result(request, &result)),
            "tools/call" => Some(Reply::stream().until(both).answer(request, &json!({}))),
            _ => None,
        }
    })
    .await;
    let host = gateway(Backing::Memory, &server).await;
    count_in_parallel(&[&Session::open(&host).await], 0, 2).await;
    assert_eq!((pings(&server), initializes(&server), calls(&server, "count")), (0, 1, 2));
}

/// A server that accepts only the client's credentials is checked with them.
#[tokio::test]
async fn the_check_has_the_credentials_of_the_client() {
    let server = all_at_once(2).await;
    let host = Host::before(Backing::Memory, [server.url()], |builder| {
        builder.upstream(|config| {
            config.calls.concurrency = Concurrency::Auto;
            config.credential = Credential::Forwarded;
        })
    })
    .await;
    let session = Session::open(&host).await;
    let call = |id: u64| session.tool(id, "count", json!({})).header("Authorization", "Bearer mine");
    let (mut one, mut two) = (call(1).stream().await, call(2).stream().await);
    assert_eq!((one.message().await["id"].clone(), two.message().await["id"].clone()), (json!(1), json!(2)));
    until_known(&host, Verdict::Parallel).await;
    let log = server.log();
    let mut checks = log.iter().filter(|request| request.header("mcp-session-id") == Some("s2"));
    assert!(checks.all(|request| request.header("authorization") == Some("Bearer mine")));
    assert_eq!(pings(&server), ALL_PINGS);
}
