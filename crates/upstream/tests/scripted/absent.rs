//! Replicas that can be connected to and are not there all the same: a front answers in their
//! place, or they are frozen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Session, json, within};

use super::forgetful::Forgetful;
use super::replicas::{status, until};
use super::{call, calls, reason};

/// Nothing takes that long.
const LONG: Duration = Duration::from_secs(20);

/// A server with sessions and a front before it, which answers like this once the server is away.
pub(super) struct Fronted {
    pub(super) server: Server,
    pub(super) is_away: Arc<AtomicBool>,
}

impl Fronted {
    /// `options`: the status with which the front itself answers OPTIONS, even while the server
    /// behind it is away.
    pub(super) async fn start(
        name: &'static str,
        in_its_place: impl Fn(&Request) -> Reply + Send + Sync + 'static,
        options: Option<u16>,
    ) -> Self {
        let is_away = Arc::new(AtomicBool::new(false));
        let away = Arc::clone(&is_away);
        let server = Server::with_sessions(move |request| {
            if let ("OPTIONS", Some(status)) = (request.verb.as_str(), options) {
                return Some(Reply::status(status));
            }
            if away.load(Ordering::SeqCst) {
                return Some(in_its_place(request));
            }
            let tools = [("look", true), ("pay", false)].map(|(name, safe)| {
                json!({"name": name, "inputSchema": {}, "annotations": {"readOnlyHint": safe}})
            });
            match request.method() {
                "tools/list" => Some(Reply::result(request, &json!({"tools": tools}))),
                "tools/call" => Some(Reply::result(request, &json!({"at": name}))),
                _ => None,
            }
        })
        .await;
        Self { server, is_away }
    }
}

/// A gateway before two, and a session at the first, which goes away then. The gateway waits so
/// long for whatever it sends.
async fn left_alone(a: &Fronted, b: &Fronted, wait: Duration) -> (Host, Session) {
    let host = Host::before(Backing::Memory, [a.server.url(), b.server.url()], move |builder| {
        builder.upstream(|config| (config.timeouts.head, config.timeouts.control) = (wait, wait))
    })
    .await;
    let session = Session::open(&host).await;
    session.request(0, "tools/list", json!({})).send().await.answer();
    assert_eq!(call(&session, 1, "look").await["result"]["at"], "a");
    a.is_away.store(true, Ordering::SeqCst);
    (host, session)
}

#[tokio::test]
async fn a_session_leaves_a_replica_whose_front_says_that_it_is_away() {
    for status in [502, 503, 504] {
        let a = Fronted::start("a", move |_| Reply::status(status), None).await;
        let b = Fronted::start("b", |_| Reply::status(200), None).await;
        let (host, session) = left_alone(&a, &b, LONG).await;
        let answer = call(&session, 2, "look").await;
        assert_eq!(answer["result"]["at"], "b", "{answer}");
        assert_eq!(host.upstream().failovers(), 1);
        assert_eq!(self::status(&host), [(false, 0), (true, 1)]);
    }
}

/// What may not be done twice ends with an error, and the session moves all the same. So it does if
/// the front answers the gateway's question itself.
#[tokio::test]
async fn a_session_does_not_stay_where_every_call_fails() {
    for (tool, options) in [("pay", None), ("look", Some(204)), ("pay", Some(204))] {
        let a = Fronted::start("a", |_| Reply::status(502), options).await;
        let b = Fronted::start("b", |_| Reply::status(200), None).await;
        let (_host, session) = left_alone(&a, &b, LONG).await;
        until_moved(&session, tool, "outcome_unknown").await;
        assert_eq!(calls(&b.server, tool), 1);
    }
}

/// However many calls meet a moment's weakness, early or late, the session stays where it is: what
/// the server remembers is worth more.
#[tokio::test]
async fn a_session_stays_where_calls_failed_for_a_moment() {
    let is_prodded = |log: &[Request]| log.iter().any(|request| request.verb == "PROD");
    let away = "HTTP/1.1 502 x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let late = move |request: &Request| match request.calls("look") {
        true => Reply::default().until(is_prodded).send(away),
        false => Reply::status(502),
    };
    let (a, b) = (Fronted::start("a", late, Some(405)).await, Fronted::start("b", late, None).await);
    let (host, session) = left_alone(&a, &b, LONG).await;
    let looks: Vec<_> = (10..15)
        .map(|id| {
            let session = session.clone();
            tokio::spawn(async move { call(&session, id, "look").await })
        })
        .collect();
    a.server.until("five calls", |log| log.iter().filter(|request| request.calls("look")).count() == 6).await;
    assert_eq!(reason(&call(&session, 15, "pay").await).0, "outcome_unknown");
    a.server.until("a trial", |log| log.iter().any(|request| request.verb == "OPTIONS")).await;
    // Until what came of it is known.
    tokio::time::sleep(Duration::from_millis(100)).await;
    a.is_away.store(false, Ordering::SeqCst);
    a.server.prod();
    for look in looks {
        assert_eq!(look.await.unwrap()["result"]["at"], "a");
    }
    assert_eq!((host.upstream().failovers(), calls(&b.server, "look")), (0, 0));
}

/// Calls a tool until the second replica answers. Before that, this is the reason why there is no
/// answer.
async fn until_moved(session: &Session, tool: &str, before: &str) {
    let moved = async {
        for id in 2.. {
            let answer = call(session, id, tool).await;
            if answer["result"]["at"] == "b" {
                return;
            }
            assert_eq!(reason(&answer).0, before, "{answer}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("a replica that answers", moved).await;
}

/// A call that took too long shows nothing by itself: its server may be busy. It is left if it does
/// not answer a trial either.
#[tokio::test]
async fn a_session_leaves_a_replica_that_is_frozen_and_not_one_that_is_slow() {
    for (options, is_left) in [(None, true), (Some(405), false)] {
        let a = Fronted::start("a", |_| Reply::default().hang(), options).await;
        let b = Fronted::start("b", |_| Reply::status(200), None).await;
        let (host, session) = left_alone(&a, &b, Duration::from_millis(1500)).await;
        if is_left {
            until_moved(&session, "pay", "outcome_unknown").await;
            assert_eq!(host.upstream().failovers(), 1);
            continue;
        }
        assert_eq!(reason(&call(&session, 2, "pay").await).0, "outcome_unknown");
        let is_tried = |log: &[Request]| log.iter().any(|request| request.verb == "OPTIONS");
        a.server.until("a trial", is_tried).await;
        a.is_away.store(false, Ordering::SeqCst);
        assert_eq!(call(&session, 3, "pay").await["result"]["at"], "a");
    }
}

/// A process that is stopped has connections accepted in its name, and answers nothing.
#[tokio::test]
async fn a_replica_that_is_frozen_gets_no_sessions_until_it_answers() {
    let is_frozen = Arc::new(AtomicBool::new(true));
    let frozen = Server::with_sessions({
        let is_frozen = Arc::clone(&is_frozen);
        move |_| is_frozen.load(Ordering::SeqCst).then(|| Reply::default().hang())
    })
    .await;
    let well = Forgetful::start("b", |_| None).await;
    let host = Host::before(Backing::Memory, [frozen.url(), well.server.url()], |builder| {
        builder.patience(Duration::from_secs(5)).upstream(|config| {
            config.timeouts.control = Duration::from_secs(1);
        })
    })
    .await;
    let opened = || frozen.count(|request| request.method() == "initialize");
    Session::open(&host).await;
    assert_eq!((opened(), well.opened()), (1, 1));
    // Longer than until the first trial.
    tokio::time::sleep(Duration::from_millis(700)).await;
    Session::open(&host).await;
    assert_eq!((opened(), well.opened()), (1, 2), "the gateway waits for it only once");
    is_frozen.store(false, Ordering::SeqCst);
    until(&host, &[(true, 0), (true, 2)]).await;
    Session::open(&host).await;
    assert_eq!(status(&host), [(true, 1), (true, 2)]);
}
