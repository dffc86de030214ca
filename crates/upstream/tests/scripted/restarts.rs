//! Gateways that die, and gateways that share their sessions: the server notices nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use steadfast::SessionEventKind::{FailedOver, Restored};
use steadfast_upstream::{Config, Program};

use crate::support::server::{Reply, Request};
use crate::support::{Backing, Host, Session, json};

use super::call;
use super::forgetful::Forgetful;

async fn durable(forgetful: &Forgetful) -> Host {
    Host::before(Backing::shared(), [forgetful.server.url()], |builder| builder).await
}

fn holds_a_stream(request: &Request) -> Option<Reply> {
    (request.verb == "GET").then(|| Reply::stream().hang())
}

fn gets(log: &[Request]) -> usize {
    log.iter().filter(|request| request.verb == "GET").count()
}

#[tokio::test]
async fn a_session_goes_on_after_a_crash_where_it_was() {
    let forgetful = Forgetful::start("s", |_| None).await;
    let mut host = durable(&forgetful).await;
    let mut session = Session::open(&host).await;
    session.request(1, "logging/setLevel", json!({"level": "debug"})).send().await.answer();
    for round in 0..3 {
        for id in 0..5 {
            assert_eq!(call(&session, id, "t").await["result"], json!({}), "round {round}");
        }
        host.restart().await;
        session = session.via(&host);
    }
    assert_eq!(call(&session, 1, "t").await["result"], json!({}));
    assert_eq!(forgetful.opened(), 1, "the server was not bothered");
    let log = forgetful.server.log();
    let sent: Vec<_> = log.iter().filter(|request| request.method() == "tools/call").collect();
    assert!(sent.iter().all(|request| request.header("mcp-session-id") == Some("s1")));
    assert!(sent.iter().all(|request| request.header("mcp-protocol-version") == Some("2025-11-25")));
    let ids: BTreeSet<_> = sent.iter().map(|request| request.body["id"].to_string()).collect();
    assert_eq!(ids.len(), sent.len(), "no id was used twice: {ids:?}");
    // What the server was told is remembered, too.
    forgetful.forget();
    assert_eq!(call(&session, 2, "t").await["result"], json!({}));
    let levels = |log: Vec<Request>| log.iter().filter(|r| r.body["params"]["level"] == "debug").count();
    assert_eq!(levels(forgetful.server.log()), 2);
    host.heard.once(&session, FailedOver).await;
}

/// A program of a session that is gone on with takes its time to start, longer than a server that
/// is away is waited for. Every call waits for it, not only the first.
#[cfg(unix)]
#[tokio::test]
async fn calls_wait_together_for_a_program_that_starts_slowly() {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stdio/server.py");
    let arguments = vec![script.display().to_string(), "slow-start".to_owned()];
    let program = Program { command: "python3".to_owned(), arguments, ..Program::default() };
    // Where a process that is gone is known to be gone at once: others give it calls for a while.
    let mut host = Host::before(Backing::Sqlite, [], move |builder| {
        let program = program.clone();
        let builder = builder.upstream(|config| *config = Config::stdio(program));
        builder.patience(Duration::from_millis(20))
    })
    .await;
    let session = Session::open(&host).await;
    host.restart().await;
    let session = session.via(&host);
    // So many that some are about to take the lease when another has it already.
    let calls: Vec<_> = (1..=24)
        .map(|id| {
            let session = session.clone();
            tokio::spawn(async move { call(&session, id, "echo").await })
        })
        .collect();
    let mut pids = BTreeSet::new();
    for call in calls {
        let answer = call.await.unwrap();
        pids.insert(answer["result"]["pid"].as_u64().unwrap_or_else(|| panic!("{answer}")));
    }
    assert_eq!(pids.len(), 1, "one program for all");
}

/// A client that does nothing but listen hears the server again after a crash.
#[tokio::test]
async fn the_servers_own_stream_is_opened_again_for_a_listening_client() {
    let forgetful = Forgetful::start("s", holds_a_stream).await;
    let mut host = durable(&forgetful).await;
    let session = Session::open(&host).await;
    forgetful.server.until("a GET", |log| gets(log) == 1).await;
    host.restart().await;
    let _listener = session.via(&host).listen().stream().await;
    forgetful.server.until("another GET", |log| gets(log) == 2).await;
    let log = forgetful.server.log();
    assert!(log.iter().filter(|r| r.verb == "GET").all(|r| r.header("mcp-session-id") == Some("s1")));
    assert_eq!(forgetful.opened(), 1);
}

/// Servers have one stream for what belongs to no call: two that open it take it from each other.
#[tokio::test]
async fn one_gateway_listens_and_another_takes_its_place() {
    let forgetful = Forgetful::start("s", holds_a_stream).await;
    let mut here = durable(&forgetful).await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    forgetful.server.until("a GET", |log| gets(log) == 1).await;
    let session = session.via(&there);
    for id in 0..5 {
        assert_eq!(call(&session, id, "t").await["result"], json!({}));
    }
    assert_eq!(gets(&forgetful.server.log()), 1, "one gateway listens already");
    here.crash().await;
    // The gateway that serves the session notices within a second.
    let mut id = 100;
    while gets(&forgetful.server.log()) < 2 {
        id += 1;
        assert_eq!(call(&session, id, "t").await["result"], json!({}));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(id < 1000, "no gateway opened the stream again");
    }
    let log = forgetful.server.log();
    assert!(log.iter().filter(|r| r.verb == "GET").all(|r| r.header("mcp-session-id") == Some("s1")));
}

#[tokio::test]
async fn a_session_that_is_deleted_after_a_crash_is_deleted_at_the_server() {
    let forgetful = Forgetful::start("s", |_| None).await;
    let mut host = durable(&forgetful).await;
    let session = Session::open(&host).await;
    host.restart().await;
    assert_eq!(session.via(&host).delete().send().await.status, 204);
    forgetful.server.until("the DELETE", |log| log.iter().any(|request| request.verb == "DELETE")).await;
    let deleted = forgetful.server.log().into_iter().find(|request| request.verb == "DELETE").unwrap();
    assert_eq!(deleted.header("mcp-session-id"), Some("s1"));
}

#[tokio::test]
async fn two_gateways_serve_one_session() {
    let forgetful = Forgetful::start("s", |_| None).await;
    let here = durable(&forgetful).await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    for id in 0..10 {
        let via = session.via(if id % 2 == 0 { &here } else { &there });
        assert_eq!(call(&via, id, "t").await["result"], json!({}));
    }
    there.heard.once(&session, Restored).await;
    assert_eq!(forgetful.opened(), 1);
    let log = forgetful.server.log();
    let ids: BTreeSet<_> =
        log.iter().filter(|r| r.method() == "tools/call").map(|r| r.body["id"].to_string()).collect();
    assert_eq!(ids.len(), 10, "{ids:?}");
}

/// What one gateway has healed is healed for the other: the client's session does not fall apart at
/// the server.
#[tokio::test]
async fn a_session_that_was_healed_here_is_taken_over_there() {
    let forgetful = Forgetful::start("s", |_| None).await;
    let here = durable(&forgetful).await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    assert_eq!(call(&session.via(&there), 1, "t").await["result"], json!({}));
    // It wants to know which tools may be called again; nothing else is under way after that.
    forgetful.server.until("a list", |log| log.iter().any(|r| r.method() == "tools/list")).await;
    forgetful.forget();
    assert_eq!(call(&session.via(&here), 2, "t").await["result"], json!({}));
    assert_eq!(call(&session.via(&there), 3, "t").await["result"], json!({}));
    assert_eq!(forgetful.opened(), 2);
    assert_eq!((here.upstream().failovers(), there.upstream().failovers()), (1, 0));
}

/// A session that ended at one gateway is not opened anew by another that still had a stream of it.
#[tokio::test]
async fn a_session_that_ended_here_is_over_there() {
    let forgetful = Forgetful::start("s", |request| {
        // The stream ends when the session does.
        (request.verb == "GET").then(|| Reply::stream().until(|log| log.iter().any(|r| r.verb == "DELETE")))
    })
    .await;
    let here = durable(&forgetful).await;
    let there = here.beside().await;
    let session = Session::open(&there).await;
    assert_eq!(call(&session.via(&here), 1, "t").await["result"], json!({}));
    forgetful.server.until("its stream", |log| gets(log) == 1).await;
    forgetful.server.until("a list", |log| log.iter().any(|r| r.method() == "tools/list")).await;
    forgetful.forget();
    assert_eq!(session.via(&here).delete().send().await.status, 204);
    forgetful.server.until("the other looks again", |log| gets(log) == 2).await;
    // Long enough for a gateway to open it, if one did so by mistake.
    let other = Session::open(&there).await;
    assert_eq!(call(&other, 1, "t").await["result"], json!({}));
    assert_eq!(forgetful.opened(), 2, "that of the other session, and no third");
}
