//! The standalone stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use steadfast_client::transport::Http;
use steadfast_client::{Boxed, Client, Config, Error, Event, Notification, Owner, Standalone};

use crate::support::{Recorder, Reply, Request, Server, call, config, connect, json, value};

/// How soon a server that is away is looked for, after that was given up.
const SELDOM: Duration = Duration::from_millis(20);

/// A client that holds a stream, whose n-th GET gets the n-th reply; the last of them for ever.
async fn hold(replies: Vec<Reply>) -> (Server, Recorder, Client) {
    let gets = AtomicUsize::new(0);
    hold_at(move |request| {
        if request.verb != "GET" {
            return None;
        }
        let n = gets.fetch_add(1, Ordering::SeqCst);
        replies.get(n).or_else(|| replies.last()).cloned()
    })
    .await
}

async fn hold_at(
    script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
) -> (Server, Recorder, Client) {
    let server = Server::with_sessions(script).await;
    let owner = Recorder::default();
    let client = connect(held(&server), owner.clone()).await;
    (server, owner, client)
}

fn held(server: &Server) -> Config {
    let mut config = config(server);
    (config.standalone, config.backoff.seldom) = (Standalone::Held, SELDOM);
    config
}

fn is_open(event: &Event) -> bool {
    *event == Event::StandaloneOpen
}

fn opened(server: &Server) -> usize {
    server.count(|request| request.method() == "initialize")
}

fn answers(request: &Request) -> Option<Reply> {
    let is_call = matches!(request.method(), "tools/call" | "ping");
    is_call.then(|| Reply::result(request, &json!({})))
}

fn note(id: &str, n: u32) -> String {
    format!("id: {id}\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"n{n}\"}}\n\n")
}

fn gets(server: &Server) -> Vec<String> {
    let log = server.log();
    let gets = log.iter().filter(|one| one.verb == "GET");
    gets.map(|one| {
        format!(
            "{} {}",
            one.header("mcp-session-id").unwrap_or("-"),
            one.header("last-event-id").unwrap_or("-")
        )
    })
    .collect()
}

#[tokio::test]
async fn it_is_resumed_from_where_it_broke() {
    let (server, owner, client) = hold(vec![
        Reply::stream().send(&note("a", 1)),
        Reply::status(503),
        Reply::stream().send(&note("b", 2)).send(&note("c", 3)),
        Reply::stream().send(&note("d", 4)).hang(),
    ])
    .await;
    owner.until("four notifications", |owner| owner.notifications().len() == 4).await;
    assert_eq!(owner.notifications(), ["n1", "n2", "n3", "n4"]);
    assert_eq!(gets(&server), ["s1 -", "s1 a", "s1 a", "s1 c"]);
    // With its client it ends.
    drop(client);
    server.until("the end of the stream", |log| log.iter().any(|one| one.verb == "CLOSED")).await;
}

/// As rmcp does it: resumed at the event that was seen last, and the first message has the id of the priming event.
#[tokio::test]
async fn what_comes_again_is_heard_once_and_what_only_looks_like_it_is_heard() {
    let (server, owner, _client) = hold(vec![
        Reply::stream().send("id: 0\nretry: 1\ndata:\n\n"),
        Reply::stream().send(&note("0", 1)),
        Reply::stream().send(&note("0", 1)).send(&note("1", 2)),
        Reply::stream().send(&note("1", 2)).send(&note("2", 3)).hang(),
    ])
    .await;
    owner.until("the last", |owner| owner.notifications().last().is_some_and(|last| last == "n3")).await;
    assert_eq!(owner.notifications(), ["n1", "n2", "n3"]);
    assert_eq!(gets(&server), ["s1 -", "s1 0", "s1 0", "s1 1"]);
}

#[tokio::test]
async fn a_server_may_have_none() {
    let (server, owner, _client) = hold(vec![Reply::status(405)]).await;
    owner.until("an event", |owner| !owner.events().is_empty()).await;
    assert_eq!(owner.events(), [Event::StandaloneAbsent]);
    assert_eq!(gets(&server).len(), 1);
}

#[tokio::test]
async fn a_gap_is_told() {
    let (server, owner, _client) = hold(vec![
        Reply::stream().send(&note("a", 1)),
        Reply::status(400),
        Reply::stream().send(&note("z", 2)).hang(),
    ])
    .await;
    owner.until("two notifications", |owner| owner.notifications().len() == 2).await;
    assert_eq!(owner.events(), [Event::StandaloneOpen, Event::StandaloneOpen, Event::Gap]);
    assert_eq!(gets(&server), ["s1 -", "s1 a", "s1 -"]);
}

/// What the server says while nobody listens has no id by which it could be asked for.
#[tokio::test]
async fn a_stream_without_ids_that_is_opened_again_may_have_a_gap() {
    let plain = Reply::stream().event(&json!({"jsonrpc": "2.0", "method": "n1"}));
    let (server, owner, _client) = hold(vec![plain, Reply::stream().send(&note("z", 2)).hang()]).await;
    owner.until("two notifications", |owner| owner.notifications().len() == 2).await;
    assert_eq!(owner.events(), [Event::StandaloneOpen, Event::StandaloneOpen, Event::Gap]);
    assert_eq!(gets(&server), ["s1 -", "s1 -"]);
}

/// Whoever had the session before may have heard something of the stream, and nobody the rest.
#[tokio::test]
async fn a_session_that_is_gone_on_with_has_a_gap() {
    let server =
        Server::with_sessions(|request| (request.verb == "GET").then(|| Reply::stream().hang())).await;
    let before = connect(config(&server), ()).await;
    let (owner, config) = (Recorder::default(), held(&server));
    let transport = Http::new(&config.timeouts, &config.limits);
    let session = before.session().expect("a session");
    let client = Client::resume_over(transport, &config, session, owner.clone()).expect("a client");
    owner.until("the gap", |owner| owner.events() == [Event::StandaloneOpen, Event::Gap]).await;
    // The same client, after it has let go of the stream for a while.
    client.release_standalone();
    server.until("the end of the stream", |log| log.iter().any(|one| one.verb == "CLOSED")).await;
    client.hold_standalone();
    owner.until("another", |owner| owner.events()[2..] == [Event::StandaloneOpen, Event::Gap]).await;
}

/// rmcp answers so if it has forgotten the event.
#[tokio::test]
async fn a_server_that_says_nothing_after_an_event_is_asked_without_it() {
    let (server, owner, _client) = hold(vec![
        Reply::stream().send(&note("a", 1)),
        Reply::stream(),
        Reply::stream(),
        Reply::stream(),
        Reply::stream().send(&note("z", 2)).hang(),
    ])
    .await;
    owner.until("two notifications", |owner| owner.notifications().len() == 2).await;
    assert_eq!(gets(&server), ["s1 -", "s1 a", "s1 a", "s1 a", "s1 -"]);
    assert_eq!(owner.events().iter().filter(|event| **event == Event::Gap).count(), 1);
}

fn refused(status: u16) -> Event {
    Event::StandaloneLost(Error::Refused { status, error: None, challenge: None })
}

#[tokio::test]
async fn a_server_that_fails_so_often_is_looked_for_now_and_then() {
    let replies = [vec![Reply::status(500); 6], vec![Reply::stream().send(&note("a", 1)).hang()]].concat();
    let (server, owner, _client) = hold(replies).await;
    owner.until("the stream", |owner| owner.events().iter().any(is_open)).await;
    // Four at first, and each of the others after its wait.
    assert_eq!(owner.events(), [refused(500), refused(500), refused(500), Event::StandaloneOpen]);
    assert_eq!(gets(&server).len(), 7);
}

/// Nobody has to call it for that.
#[tokio::test]
async fn a_server_that_comes_back_without_its_sessions_is_heard_again() {
    let (is_away, has_lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (server, owner, _client) = hold_at({
        let (is_away, has_lost) = (Arc::clone(&is_away), Arc::clone(&has_lost));
        move |request| match (request.verb.as_str(), request.header("mcp-session-id")) {
            _ if is_away.load(Ordering::SeqCst) => Some(Reply::status(503)),
            (_, Some("s1")) if has_lost.load(Ordering::SeqCst) => Some(Reply::status(404)),
            ("GET", Some("s1")) => {
                Some(Reply::stream().until(|log| log.iter().any(|one| one.verb == "PROD")))
            }
            ("GET", _) => Some(Reply::stream().send(&note("a", 1)).hang()),
            _ => None,
        }
    })
    .await;
    owner.until("the stream", |owner| owner.events().iter().any(is_open)).await;
    is_away.store(true, Ordering::SeqCst);
    server.prod();
    owner.until("the loss", |owner| owner.events().last() == Some(&refused(503))).await;
    has_lost.store(true, Ordering::SeqCst);
    is_away.store(false, Ordering::SeqCst);
    owner.until("a notification", |owner| owner.notifications() == ["n1"]).await;
    let events = owner.events();
    assert_eq!(events[events.len() - 2..], [Event::SessionRenewed, Event::StandaloneOpen]);
    assert_eq!(opened(&server), 2);
}

/// Such as credentials that are out of date: only others help.
#[tokio::test]
async fn a_refusal_does_not_pass_by_itself() {
    let (server, owner, client) =
        hold_at(|request| match (request.verb.as_str(), request.header("authorization")) {
            ("GET", Some("Bearer new")) => Some(Reply::stream().hang()),
            ("GET", _) => Some(Reply::status(403)),
            _ => answers(request),
        })
        .await;
    owner.until("an event", |owner| !owner.events().is_empty()).await;
    assert_eq!(value(call(&client, "t").await), json!({}));
    tokio::time::sleep(SELDOM * 5).await;
    assert_eq!(owner.events(), [refused(403)]);
    assert_eq!(gets(&server).len(), 4);
    let authorization = ("authorization".parse().unwrap(), "Bearer new".parse().unwrap());
    client.set_headers(http::HeaderMap::from_iter([authorization]));
    owner.until("the stream", |owner| owner.events() == [refused(403), Event::StandaloneOpen]).await;
}

/// Such as one whose routes are those of POST alone.
#[tokio::test]
async fn a_server_that_knows_no_get_keeps_its_session() {
    let (server, owner, client) =
        hold_at(|request| if request.verb == "GET" { Some(Reply::status(404)) } else { answers(request) })
            .await;
    owner.until("an event", |owner| !owner.events().is_empty()).await;
    for _ in 0..3 {
        assert_eq!(value(call(&client, "t").await), json!({}));
    }
    tokio::time::sleep(SELDOM * 5).await;
    assert_eq!(owner.events(), [Event::StandaloneAbsent]);
    assert_eq!((opened(&server), gets(&server).len()), (1, 1));
}

/// A call tells when the session is lost for certain, and the next one gets another chance.
#[tokio::test]
async fn a_stream_that_was_not_found_is_looked_for_in_the_next_session() {
    let (server, owner, client) =
        hold_at(|request| match (request.verb.as_str(), request.header("mcp-session-id")) {
            ("GET", Some("s1")) => Some(Reply::status(404)),
            ("GET", _) => Some(Reply::stream().hang()),
            (_, Some("s1")) if request.calls("lost") => Some(Reply::status(404)),
            _ => answers(request),
        })
        .await;
    owner.until("an event", |owner| owner.events() == [Event::StandaloneAbsent]).await;
    assert_eq!(value(call(&client, "lost").await), json!({}));
    owner.until("the stream", |owner| owner.events().last().is_some_and(is_open)).await;
    assert_eq!(owner.events()[1..], [Event::SessionRenewed, Event::StandaloneOpen]);
    assert_eq!((opened(&server), gets(&server)), (2, vec!["s1 -".to_owned(), "s2 -".to_owned()]));
}

/// It loses every session at once, by its own word; calls work all the same.
#[tokio::test]
async fn a_server_that_finds_no_stream_in_any_session_is_not_asked_for_ever() {
    let (server, owner, client) = hold_at(|request| match (request.verb.as_str(), request.method()) {
        ("GET", _) | (_, "ping") => Some(Reply::status(404)),
        _ => answers(request),
    })
    .await;
    owner.until("the end", |owner| owner.events().last() == Some(&Event::StandaloneAbsent)).await;
    for _ in 0..3 {
        assert_eq!(value(call(&client, "t").await), json!({}));
    }
    tokio::time::sleep(SELDOM * 5).await;
    assert_eq!(owner.events(), [Event::SessionRenewed, Event::StandaloneAbsent]);
    assert_eq!((opened(&server), gets(&server).len()), (2, 2));
}

#[tokio::test]
async fn a_forgotten_session_is_opened_again() {
    let (server, owner, client) = hold(vec![
        Reply::stream().send(&note("a", 1)),
        Reply::status(404),
        Reply::stream().send(&note("b", 2)).hang(),
    ])
    .await;
    owner.until("two notifications", |owner| owner.notifications().len() == 2).await;
    assert_eq!(owner.events(), [Event::StandaloneOpen, Event::SessionRenewed, Event::StandaloneOpen]);
    assert_eq!(gets(&server), ["s1 -", "s1 a", "s2 -"]);
    assert_eq!(client.session_id().as_deref(), Some("s2"));
}

#[tokio::test]
async fn asks_on_it_are_answered() {
    let ask = json!({"jsonrpc": "2.0", "id": "x", "method": "roots/list"});
    let (server, _owner, _client) = hold(vec![Reply::stream().event(&ask).hang()]).await;
    server.until("the answer", |log| log.iter().any(Request::is_answer)).await;
    let log = server.log();
    let answer = log.iter().find(|one| one.is_answer()).unwrap();
    assert_eq!(answer.body, json!({"jsonrpc": "2.0", "id": "x", "result": {}}));
    assert_eq!(answer.header("mcp-session-id"), Some("s1"));
}

/// Panics at the first notification that it hears.
struct Startled(Recorder);

impl Owner for Startled {
    fn notification(&self, notification: Notification) -> Boxed<'_, ()> {
        assert_ne!(notification.method, "n1", "an owner that panics on purpose");
        self.0.notification(notification)
    }
}

#[tokio::test]
async fn an_owner_that_panics_hears_what_comes_next() {
    let server = Server::with_sessions(|request| {
        (request.verb == "GET").then(|| Reply::stream().send(&note("a", 1)).send(&note("b", 2)).hang())
    })
    .await;
    let heard = Recorder::default();
    let mut config = config(&server);
    config.standalone = Standalone::Held;
    let _client = connect(config, Startled(heard.clone())).await;
    heard.until("the second", |heard| heard.notifications() == ["n2"]).await;
}
