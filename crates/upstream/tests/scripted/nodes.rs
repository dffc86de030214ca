//! Gateways that share their sessions, of which one goes: what it did is done by another, once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Session, Value, json, within};

use super::{calls, reason};

const TOOLS: [(&str, bool); 2] = [("look", true), ("pay", false)];

/// A server whose calls end when a client calls `go`. The server tries `more` first.
async fn server(more: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Server {
    let has_gone = |log: &[Request]| log.iter().any(|request| request.calls("go"));
    Server::with_sessions(move |request| {
        more(request).or_else(|| match request.method() {
            "tools/list" => {
                let tools = TOOLS.map(|(name, safe)| {
                    json!({"name": name, "inputSchema": {}, "annotations": {"readOnlyHint": safe}})
                });
                Some(Reply::result(request, &json!({"tools": tools})))
            }
            "tools/call" if request.calls("go") => Some(Reply::result(request, &json!({}))),
            "tools/call" => Some(Reply::stream().until(has_gone).answer(request, &json!({"n": 1}))),
            _ => None,
        })
    })
    .await
}

async fn durable(server: &Server) -> Host {
    Host::before(Backing::shared(), [server.url()], |builder| builder).await
}

pub(super) async fn sweep_until(host: &Host, what: &str, mut is_done: impl FnMut() -> bool) {
    let swept = async {
        while !is_done() {
            host.sweep_after(Duration::ZERO).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(what, swept).await;
}

fn gets(log: &[Request]) -> usize {
    log.iter().filter(|request| request.verb == "GET").count()
}

fn changed(kind: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": format!("notifications/{kind}/list_changed")})
}

#[tokio::test]
async fn a_call_that_only_looks_is_made_again_by_another_gateway() {
    let server = server(|_| None).await;
    let mut here = durable(&server).await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    session.request(0, "tools/list", json!({})).send().await.answer();
    let mut look = session.tool(1, "look", json!({})).stream().await;
    let looks = look.next().await.and_then(|frame| frame.id).unwrap();
    let mut pay = session.tool(2, "pay", json!({})).stream().await;
    let pays = pay.next().await.and_then(|frame| frame.id).unwrap();
    server.until("both", |log| log.iter().filter(|r| r.calls("look") || r.calls("pay")).count() == 2).await;
    here.crash().await;
    sweep_until(&there, "the call of the successor", || calls(&server, "look") == 2).await;
    let session = session.via(&there);
    let lost = session.resume(&pays).send().await.answer();
    assert_eq!(reason(&lost), ("outcome_unknown".to_owned(), false));
    super::call(&session, 3, "go").await;
    let found = session.resume(&looks).send().await.answer();
    assert_eq!((&found["id"], &found["result"]["n"]), (&json!(1), &json!(1)));
    assert_eq!((calls(&server, "look"), calls(&server, "pay")), (2, 1));
}

/// The store does not hold the client's credentials, so no other gateway can repeat its calls.
#[tokio::test]
async fn calls_with_credentials_of_the_client_are_not_made_again() {
    let server = server(|_| None).await;
    let mut here = Host::before(Backing::shared(), [server.url()], |builder| {
        builder.upstream(|config| config.credential = steadfast_upstream::Credential::Forwarded)
    })
    .await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    session.request(0, "tools/list", json!({})).send().await.answer();
    let mut look = session.tool(1, "look", json!({})).stream().await;
    let looks = look.next().await.and_then(|frame| frame.id).unwrap();
    server.until("the call", |log| log.iter().any(|r| r.calls("look"))).await;
    here.crash().await;
    there.sweep_after(Duration::ZERO).await;
    let lost = session.via(&there).resume(&looks).send().await.answer();
    assert_eq!(reason(&lost).0, "outcome_unknown");
    assert_eq!(calls(&server, "look"), 1);
}

#[tokio::test]
async fn another_gateway_listens_in_place_of_a_dead_one_without_being_called() {
    let server =
        server(|request| (request.verb == "GET").then(|| Reply::stream().event(&changed("tools")).hang()))
            .await;
    let mut here = durable(&server).await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    server.until("a GET", |log| gets(log) == 1).await;
    let mut listener = session.via(&there).listen().stream().await;
    assert_eq!(listener.message().await, changed("tools"));
    for _ in 0..3 {
        there.sweep_after(Duration::ZERO).await;
    }
    assert_eq!(gets(&server.log()), 1, "one gateway listens already");
    here.crash().await;
    sweep_until(&there, "another listener", || gets(&server.log()) == 2).await;
    assert_eq!(listener.message().await, changed("tools"));
}

/// What the server says is heard by a gateway that drains for as long as it has something to do,
/// and by another from then on.
#[tokio::test]
async fn another_gateway_listens_in_place_of_one_that_has_drained() {
    let is_told = |log: &[Request]| log.iter().any(|request| request.calls("say"));
    let server = server(move |request| match request.verb.as_str() {
        "GET" => Some(Reply::stream().until(is_told).event(&changed("tools")).hang()),
        _ => request.calls("say").then(|| Reply::result(request, &json!({}))),
    })
    .await;
    let here = durable(&server).await;
    let there = here.beside().await;
    let session = Session::open(&here).await;
    server.until("a GET", |log| gets(log) == 1).await;
    let other = session.via(&there);
    let mut listener = other.listen().stream().await;
    let mut pay = session.tool(1, "pay", json!({})).stream().await;
    server.until("the call", |log| log.iter().any(|request| request.calls("pay"))).await;
    let draining = here.server().clone();
    let drained = tokio::spawn(async move { draining.drain(Duration::from_secs(60)).await });
    let refuses = async { while session.tool(2, "say", json!({})).send().await.status != 503 {} };
    within("the drain to begin", refuses).await;
    super::call(&other, 3, "say").await;
    assert_eq!(listener.message().await, changed("tools"));
    for _ in 0..3 {
        there.sweep_after(Duration::ZERO).await;
    }
    assert_eq!(gets(&server.log()), 1, "the gateway that drains is heard");
    super::call(&other, 4, "go").await;
    while pay.message().await["id"] != json!(1) {}
    within("the drain", drained).await.unwrap();
    sweep_until(&there, "another listener", || gets(&server.log()) == 2).await;
    assert_eq!(listener.message().await, changed("tools"));
}

/// A gateway that was stopped for so long that another one has taken its place, and goes on.
#[tokio::test]
async fn a_gateway_that_wakes_up_does_not_speak_for_the_server_any_more() {
    let is_told = |name: &'static str| move |log: &[Request]| log.iter().any(|request| request.calls(name));
    let streams = AtomicUsize::new(0);
    let server = server(move |request| {
        if request.calls("first") || request.calls("second") {
            return Some(Reply::result(request, &json!({})));
        }
        (request.verb == "GET").then(|| {
            // Each stream says another thing: the first one's is what the sleeper hears.
            let stream = Reply::stream();
            if streams.fetch_add(1, Ordering::SeqCst) == 0 {
                stream.until(is_told("first")).event(&changed("tools")).hang()
            } else {
                stream.until(is_told("second")).event(&changed("prompts")).hang()
            }
        })
    })
    .await;
    let here = Host::before(Backing::Sqlite, [server.url()], |builder| builder).await;
    let signs = here.signs_of_life();
    let there = here.beside().await;
    let session = Session::open(&here).await;
    server.until("a GET", |log| gets(log) == 1).await;
    let session = session.via(&there);
    let mut listener = session.listen().stream().await;
    signs.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    sweep_until(&there, "another listener", || gets(&server.log()) == 2).await;
    super::call(&session, 1, "first").await;
    super::call(&session, 2, "second").await;
    assert_eq!(listener.message().await, changed("prompts"));
    // Longer than a node takes to see what another has written.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(listener.is_quiet().await, "the sleeper was fenced");
}

/// A server on rmcp sends nothing on a second standalone stream while another gateway holds the
/// first, and nothing on it afterwards either.
#[tokio::test]
async fn a_gateway_that_took_over_from_one_that_was_stopped_is_heard_after_that_lets_go() {
    let streams = AtomicUsize::new(0);
    let server = server(move |request| {
        (request.verb == "GET").then(|| match streams.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::stream().hang(),
            1 => Reply::stream().send("id: silent\ndata:\n\n").hang(),
            _ => Reply::stream().event(&changed("prompts")).hang(),
        })
    })
    .await;
    let here = Host::before(Backing::Sqlite, [server.url()], |builder| {
        builder.upstream(|config| config.standalone_reopen_delay = Duration::from_millis(40))
    })
    .await;
    let signs = here.signs_of_life();
    let there = here.beside().await;
    let session = Session::open(&here).await;
    server.until("a GET", |log| gets(log) == 1).await;
    let mut listener = session.via(&there).listen().stream().await;
    signs.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    sweep_until(&there, "another listener", || gets(&server.log()) >= 2).await;
    assert_eq!(listener.message().await, changed("prompts"));
    let log = server.log();
    let last = log.iter().filter(|request| request.verb == "GET").nth(2).unwrap();
    assert_eq!(last.header("last-event-id"), Some("silent"));
    // By then it would have been let go of, if the server had said nothing.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(server.count(|request| request.verb == "CLOSED"), 1, "the silent one alone");
}
