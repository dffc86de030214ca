//! Which calls are idempotent is known to every gateway of a store, whether or not a client asked
//! for `tools/list`.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::request::Parts;
use steadfast::{Limits, Principal};

use crate::support::server::{Reply, Request, Server};
use crate::support::session::{REVISION, initialize, tool_call};
use crate::support::{Backing, Builder, Host, Http, Session, json, within};

use super::nodes::sweep_until;
use super::{calls, reason};

/// How long a gateway uses annotations before it looks at the record in the store.
const CACHE_LIFETIME: Duration = Duration::from_secs(60);

/// How long annotations are used after the server was asked, and when a call has them read again.
const LIFETIME: Duration = Duration::from_secs(10 * 60);
const REFRESH_AFTER: Duration = Duration::from_secs(5 * 60);

fn is_prodded(log: &[Request]) -> bool {
    log.iter().any(|request| request.verb == "PROD")
}

/// A result of `tools/list`: `look` is read-only if `look_is_read_only` says so, `go` and `pay` are
/// not.
fn list(request: &Request, look_is_read_only: bool) -> Reply {
    let tool = |name: &str, hint: bool| json!({"name": name, "inputSchema": {}, "annotations": {"readOnlyHint": hint}});
    let tools = [tool("look", look_is_read_only), tool("go", false), tool("pay", false)];
    Reply::result(request, &json!({"tools": tools}))
}

/// A server that has the capability `tools`. It answers calls of `go` at once and all others when
/// it is prodded. `script` is asked first.
async fn server(script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Server {
    let sessions = AtomicUsize::new(0);
    Server::with_sessions(move |request| {
        script(request).or_else(|| match request.method() {
            "initialize" => {
                let number = sessions.fetch_add(1, Ordering::SeqCst) + 1;
                let version = &request.body["params"]["protocolVersion"];
                let result = json!({"protocolVersion": version, "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": "s", "version": "1"}});
                let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
                Some(Reply::json_with(200, &format!("mcp-session-id: s{number}\r\n"), &body))
            }
            "tools/list" => Some(list(request, true)),
            "tools/call" if request.calls("go") => Some(Reply::result(request, &json!({}))),
            "tools/call" => Some(Reply::stream().until(is_prodded).answer(request, &json!({"n": 1}))),
            _ => None,
        })
    })
    .await
}

async fn gateway(server: &Server, configure: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Host {
    Host::before(Backing::shared(), [server.url()], configure).await
}

fn lists(server: &Server) -> usize {
    server.count(|request| request.method() == "tools/list")
}

async fn go(session: &Session, id: u64) {
    let answer = super::call(session, id, "go").await;
    assert_eq!(answer["result"], json!({}), "{answer}");
}

/// A call that is at the server. Gives the id of the first event on its stream.
async fn begin(server: &Server, session: &Session, id: u64, tool: &'static str) -> String {
    let before = calls(server, tool);
    let mut stream = session.tool(id, tool, json!({})).stream().await;
    let first = stream.next().await.and_then(|frame| frame.id).unwrap();
    server.until("the call", |log| log.iter().filter(|r| r.calls(tool)).count() > before).await;
    first
}

/// After the gateway that ran the call has died, `successor` repeats it, and the client gets the
/// answer.
async fn is_repeated(server: &Server, successor: &Host, session: &Session, event: &str) {
    let before = calls(server, "look");
    sweep_until(successor, "the repeated call", || calls(server, "look") > before).await;
    server.prod();
    let answer = session.via(successor).resume(event).send().await.answer();
    assert_eq!(answer["result"]["n"], 1, "{answer}");
}

async fn is_not_repeated(successor: &Host, session: &Session, event: &str) {
    successor.sweep_after(Duration::ZERO).await;
    let answer = session.via(successor).resume(event).send().await.answer();
    assert_eq!(reason(&answer), ("outcome_unknown".to_owned(), false));
}

#[tokio::test]
async fn the_first_call_of_a_session_is_repeated_by_another_gateway() {
    for concurrency in [None, NonZeroUsize::new(1)] {
        let server = server(|_| None).await;
        let mut here = gateway(&server, move |builder| {
            builder.upstream(|config| config.calls.concurrency = concurrency.into())
        })
        .await;
        let there = here.beside().await;
        let session = Session::open(&here).await;
        let look = begin(&server, &session, 1, "look").await;
        here.crash().await;
        is_repeated(&server, &there, &session, &look).await;
        assert_eq!(lists(&server), 1);
    }
}

#[tokio::test]
async fn a_gateway_that_was_restarted_knows_which_calls_to_repeat() {
    let server = server(|_| None).await;
    let mut host = gateway(&server, |builder| builder).await;
    let session = Session::open(&host).await;
    go(&session, 0).await;
    host.restart().await;
    let session = session.via(&host);
    let look = begin(&server, &session, 1, "look").await;
    host.restart().await;
    is_repeated(&server, &host, &session, &look).await;
    assert_eq!(lists(&server), 1, "the store knows");
}

#[tokio::test]
async fn a_gateway_that_never_saw_a_list_knows_which_calls_to_repeat() {
    let server = server(|_| None).await;
    let here = gateway(&server, |builder| builder).await;
    let mut there = here.beside().await;
    let session = Session::open(&here).await;
    go(&session, 0).await;
    let session = session.via(&there);
    let look = begin(&server, &session, 1, "look").await;
    there.crash().await;
    is_repeated(&server, &here, &session, &look).await;
    assert_eq!(lists(&server), 1, "the store knows");
}

/// Opens a session of this principal.
async fn open_as(host: &Host, name: &str) -> Session {
    let open = Http::to(host).post(&initialize(REVISION)).header("Authorization", name);
    let reply = open.send().await;
    let id = reply.header("mcp-session-id").unwrap_or_else(|| panic!("{}", reply.text())).to_owned();
    Session { http: Http::to(host), id, revision: REVISION.to_owned() }
}

fn by_name(mut builder: Builder) -> Builder {
    let name = |parts: &Parts| {
        let name = parts.headers.get("authorization").and_then(|name| name.to_str().ok());
        Ok(Principal::new(name.unwrap_or_default()))
    };
    builder.http.principal = Arc::new(name);
    builder
}

#[tokio::test]
async fn annotations_that_one_principal_sees_do_not_concern_another() {
    // The first session is Alice's.
    let server = server(|request| {
        let is_alice = request.header("mcp-session-id") == Some("s1");
        (request.method() == "tools/list").then(|| list(request, is_alice))
    })
    .await;
    let mut here = gateway(&server, by_name).await;
    let there = here.beside().await;
    let mut begun = Vec::new();
    for (name, calls_before) in [("alice", 0), ("bob", 1)] {
        let session = open_as(&here, name).await;
        let call = session.post(&tool_call(1, "look", json!({}))).header("Authorization", name);
        let mut stream = call.stream().await;
        let event = stream.next().await.and_then(|frame| frame.id).unwrap();
        server.until("the call", |log| log.iter().filter(|r| r.calls("look")).count() > calls_before).await;
        begun.push((name, session.via(&there), event));
    }
    here.crash().await;
    sweep_until(&there, "the repeated call", || calls(&server, "look") == 3).await;
    server.prod();
    let mut answers = Vec::new();
    for (name, session, event) in &begun {
        answers.push(session.resume(event).header("Authorization", name).send().await.answer());
    }
    assert_eq!(answers[0]["result"]["n"], 1, "{answers:?}");
    assert_eq!(reason(&answers[1]), ("outcome_unknown".to_owned(), false));
    assert_eq!(calls(&server, "look"), 3);
    assert_eq!(lists(&server), 2);
}

#[tokio::test]
async fn a_list_that_changed_is_read_again_by_every_gateway() {
    let changes = AtomicUsize::new(0);
    let server = server(move |request| match (request.verb.as_str(), request.method()) {
        ("GET", _) => {
            let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            Some(Reply::stream().until(is_prodded).event(&changed).hang())
        }
        // The first list says that `look` is read-only, the others do not.
        (_, "tools/list") => Some(list(request, changes.fetch_add(1, Ordering::SeqCst) == 0)),
        (_, "tools/call") if request.calls("look") => Some(Reply::stream().hang()),
        _ => None,
    })
    .await;
    let mut here = gateway(&server, |builder| builder).await;
    let (mut there, successor) = (here.beside().await, here.beside().await);
    let at_here = Session::open(&here).await;
    let at_there = at_here.via(&there);
    go(&at_here, 1).await;
    go(&at_there, 2).await;
    assert_eq!(lists(&server), 1);
    server.until("the gateway listens", |log| log.iter().any(|r| r.verb == "GET")).await;
    let mut listener = at_here.listen().stream().await;
    server.prod();
    assert_eq!(listener.message().await["method"], "notifications/tools/list_changed");
    let mut events = vec![begin(&server, &at_here, 3, "look").await];
    assert_eq!(lists(&server), 2);
    // The other gateway may have used its copy until now.
    here.clock.advance(CACHE_LIFETIME);
    events.push(begin(&server, &at_there, 4, "look").await);
    assert_eq!(lists(&server), 2, "the record is the new one");
    here.crash().await;
    there.crash().await;
    for event in &events {
        is_not_repeated(&successor, &at_here, event).await;
    }
    assert_eq!(calls(&server, "look"), 2);
}

/// A call that runs when the server cannot list its tools goes on, and the list is asked for again.
#[tokio::test]
async fn a_list_that_cannot_be_had_does_not_fail_calls() {
    for first in [Reply::status(500), Reply::stream().hang()] {
        let asked = AtomicUsize::new(0);
        let server = server(move |request| {
            let is_first = request.method() == "tools/list" && asked.fetch_add(1, Ordering::SeqCst) == 0;
            is_first.then(|| first.clone())
        })
        .await;
        let mut here = gateway(&server, |builder| {
            builder.upstream(|config| config.timeouts.control = Duration::from_millis(300))
        })
        .await;
        let there = here.beside().await;
        let session = Session::open(&here).await;
        for id in 1..=5 {
            go(&session, id).await;
        }
        assert_eq!(lists(&server), 1, "it is left alone for a while");
        here.clock.advance(LIFETIME);
        let look = begin(&server, &session, 6, "look").await;
        assert_eq!(lists(&server), 2);
        here.crash().await;
        is_repeated(&server, &there, &session, &look).await;
    }
}

#[tokio::test]
async fn one_list_is_enough_for_all_sessions_of_a_principal() {
    let server = server(|_| None).await;
    let here = gateway(&server, |builder| {
        builder.upstream(|config| config.calls.concurrency = NonZeroUsize::new(1).into())
    })
    .await;
    let sessions = (0..8).map(|_| async {
        let session = Session::open(&here).await;
        for id in 1..=3 {
            go(&session, id).await;
        }
    });
    within("all calls", join_all(sessions)).await;
    assert_eq!(lists(&server), 1);
    let there = here.beside().await;
    go(&Session::open(&there).await, 1).await;
    assert_eq!(lists(&server), 1);
    // A call after a while has the list read again and does not wait for it.
    here.clock.advance(REFRESH_AFTER);
    let session = Session::open(&here).await;
    go(&session, 1).await;
    server.until("another list", |log| log.iter().filter(|r| r.method() == "tools/list").count() == 2).await;
    // The list takes its turn: when the next call is done, the list is.
    go(&session, 2).await;
    // A call after a long while waits for the list.
    here.clock.advance(LIFETIME);
    go(&Session::open(&here).await, 1).await;
    assert_eq!(lists(&server), 3);
}

async fn join_all(work: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut work: Vec<_> = work.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        work.retain_mut(|one| one.as_mut().poll(context).is_pending());
        if work.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn a_server_without_tools_is_not_asked_for_them() {
    let server =
        Server::with_sessions(|request| request.calls("go").then(|| Reply::result(request, &json!({}))))
            .await;
    let host = gateway(&server, |builder| builder).await;
    let session = Session::open(&host).await;
    go(&session, 1).await;
    go(&session, 2).await;
    assert_eq!(lists(&server), 0);
}

#[tokio::test]
async fn the_record_of_annotations_is_no_session_of_its_principal() {
    let server = server(|_| None).await;
    let host =
        gateway(&server, |builder| builder.limits(Limits { sessions_per_principal: 1, ..Limits::default() }))
            .await;
    let session = Session::open(&host).await;
    go(&session, 1).await;
    let usage = host.server().0.store().usage().await.unwrap();
    assert_eq!(usage.sessions, 2, "the session and the record");
    assert_eq!(session.delete().send().await.status, 204);
    let session = Session::open(&host).await;
    go(&session, 2).await;
    let _in_use = session.listen().stream().await;
    let refused = Http::to(&host).post(&initialize(REVISION)).send().await;
    assert!(
        refused.status == 429 && refused.text().contains("`sessions_per_principal`"),
        "{}",
        refused.text()
    );
    assert_eq!(lists(&server), 1);
}
