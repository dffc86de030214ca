//! Replicas that stop while they are to answer, as a process that is stopped does: they keep their
//! connections and say nothing. Whatever a call may take, which is a day unless set, this is
//! noticed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::server::{Reply, Request};
use crate::support::{Backing, Host, Session, json, within};

use super::absent::Fronted;
use super::replicas::{status, until};
use super::{call, calls, reason};

/// How long a trial may take that is not answered. Replicas that answer must be in time on a busy
/// machine, too.
const TRIAL: Duration = Duration::from_secs(1);
const SILENCE: Duration = Duration::from_millis(200);
const SHORT: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(60);

/// A gateway before these that waits as long as it does by itself, and notices silence soon.
async fn before<const N: usize>(servers: [&Fronted; N], endurance: Duration) -> Host {
    trying(servers, TRIAL, endurance).await
}

/// Like [`before`], with `trial` as the time limit of a health check.
async fn trying<const N: usize>(servers: [&Fronted; N], trial: Duration, endurance: Duration) -> Host {
    Host::before(Backing::Memory, servers.map(|one| one.server.url()), move |builder| {
        builder.upstream(|config| {
            config.timeouts.control = trial;
            (config.health_check.silence, config.health_check.failover_after) = (SILENCE, endurance);
        })
    })
    .await
}

/// A session at the first of them, which does as it likes from now on.
async fn opened(host: &Host, a: &Fronted) -> Session {
    let session = Session::open(host).await;
    session.request(0, "tools/list", json!({})).send().await.answer();
    assert_eq!(call(&session, 1, "look").await["result"]["at"], "a");
    a.is_away.store(true, Ordering::SeqCst);
    session
}

async fn well() -> Fronted {
    Fronted::start("b", |_| Reply::status(200), None).await
}

async fn frozen() -> Fronted {
    Fronted::start("a", |_| Reply::default().hang(), None).await
}

fn is_prodded(log: &[Request]) -> bool {
    log.iter().any(|request| request.verb == "PROD")
}

fn trials(log: &[Request]) -> usize {
    log.iter().filter(|request| request.verb == "OPTIONS").count()
}

/// A call that is answered when a condition is fulfilled.
fn late(request: &Request, when: fn(&[Request]) -> bool) -> Reply {
    let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": {"at": "a"}}).to_string();
    let head = "HTTP/1.1 200 x\r\nconnection: close\r\ncontent-type: application/json\r\n";
    Reply::default().until(when).send(&format!("{head}content-length: {}\r\n\r\n{body}", body.len()))
}

#[tokio::test]
async fn a_call_does_not_wait_for_a_replica_that_has_stopped() {
    for (tool, moves) in [("look", true), ("pay", false)] {
        let (a, b) = (frozen().await, well().await);
        let host = before([&a, &b], SHORT).await;
        let session = opened(&host, &a).await;
        let answer = within("an answer", call(&session, 2, tool)).await;
        if moves {
            assert_eq!(answer["result"]["at"], "b", "{answer}");
        } else {
            assert_eq!(reason(&answer), ("outcome_unknown".to_owned(), false));
        }
        assert_eq!(within("an answer", call(&session, 3, "look")).await["result"]["at"], "b");
        assert_eq!(host.upstream().failovers(), 1);
    }
}

/// It answers trials, however often and for however long it is asked.
#[tokio::test]
async fn a_slow_tool_of_a_replica_that_lives_is_waited_for() {
    let slow = |request: &Request| match request.calls("pay") {
        true => late(request, |log| trials(log) >= 8),
        false => Reply::status(202),
    };
    let (a, b) = (Fronted::start("a", slow, Some(405)).await, well().await);
    let host = trying([&a, &b], LONG, SHORT).await;
    let session = opened(&host, &a).await;
    assert_eq!(within("an answer", call(&session, 2, "pay")).await["result"]["at"], "a");
    assert_eq!((host.upstream().failovers(), status(&host)), (0, vec![(true, 1), (true, 0)]));
}

/// A server that handles one request at a time answers no health check while it is busy. The
/// gateway opens no new session there. The existing sessions keep their state at the server, and
/// the gateway waits for their calls, including those that arrive in the meantime.
#[tokio::test]
async fn a_replica_that_is_busy_gets_no_new_session_and_keeps_its_own() {
    let busy = |request: &Request| match request.calls("pay") || request.calls("look") {
        true => late(request, is_prodded),
        false => Reply::default().hang(),
    };
    let (a, b) = (Fronted::start("a", busy, None).await, well().await);
    let host = before([&a, &b], LONG).await;
    let session = opened(&host, &a).await;
    let other = Session::open(&host).await;
    assert_eq!(call(&other, 1, "look").await["result"]["at"], "b");
    let start = |id: u64, tool: &'static str| {
        let session = session.clone();
        tokio::spawn(async move { call(&session, id, tool).await })
    };
    let paid = start(2, "pay");
    until(&host, &[(false, 1), (true, 1)]).await;
    Session::open(&host).await;
    assert_eq!(status(&host), [(false, 1), (true, 2)]);
    let looked = start(3, "look");
    a.server.until("the second call", |log| log.iter().filter(|one| one.calls("look")).count() == 2).await;
    a.server.prod();
    for answer in [paid, looked] {
        assert_eq!(within("an answer", answer).await.unwrap()["result"]["at"], "a");
    }
    assert_eq!(host.upstream().failovers(), 0);
}

#[tokio::test]
async fn no_call_waits_for_a_replica_that_was_given_up() {
    let (a, b) = (frozen().await, well().await);
    let host = before([&a, &b], SHORT).await;
    let first = Session::open(&host).await;
    let (_at_b, second) = (Session::open(&host).await, Session::open(&host).await);
    assert_eq!(status(&host), [(true, 2), (true, 1)]);
    a.is_away.store(true, Ordering::SeqCst);
    let lost = within("an answer", call(&first, 2, "pay")).await;
    assert_eq!(reason(&lost), ("outcome_unknown".to_owned(), false));
    assert_eq!(within("an answer", call(&second, 3, "pay")).await["result"]["at"], "b");
    assert_eq!(calls(&a.server, "pay"), 1, "the second was not sent there");
}

/// Opening a session twice does no harm, so the gateway does not wait for a replica that does not
/// answer.
#[tokio::test]
async fn a_session_is_not_opened_at_a_replica_that_has_stopped() {
    let (a, b) = (frozen().await, well().await);
    a.is_away.store(true, Ordering::SeqCst);
    let host = Host::before(Backing::Memory, [a.server.url(), b.server.url()], |builder| {
        builder.upstream(|config| config.health_check.silence = SILENCE)
    })
    .await;
    // The head of its answer may take half a minute, a trial five seconds.
    within("a session", Session::open(&host)).await;
    assert_eq!(status(&host), [(false, 0), (true, 1)]);
}
