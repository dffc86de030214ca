//! The standalone stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use steadfast_client::transport::Http;
use steadfast_client::{
    BoxFuture, Client, ClientHandler, Config, Error, Event, Notification, StandaloneStream,
};

use crate::support::{Recorder, Reply, Request, Server, call, config, connect, json, value};

/// How soon the client retries after it gave up.
const STANDALONE_RETRY: Duration = Duration::from_millis(20);

/// A client with a standalone stream. The n-th GET gets the n-th reply; further GETs get the last
/// one.
async fn connect_with_stream(replies: Vec<Reply>) -> (Server, Recorder, Client) {
    let gets = AtomicUsize::new(0);
    connect_with_stream_to(move |request| {
        if request.verb != "GET" {
            return None;
        }
        let n = gets.fetch_add(1, Ordering::SeqCst);
        replies.get(n).or_else(|| replies.last()).cloned()
    })
    .await
}

async fn connect_with_stream_to(
    script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
) -> (Server, Recorder, Client) {
    let server = Server::with_sessions(script).await;
    let handler = Recorder::default();
    let client = connect(config_with_stream(&server), handler.clone()).await;
    (server, handler, client)
}

fn config_with_stream(server: &Server) -> Config {
    let mut config = config(server);
    (config.standalone_stream, config.backoff.standalone_retry) = (StandaloneStream::Open, STANDALONE_RETRY);
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
async fn it_is_resumed_at_its_position() {
    let (server, handler, client) = connect_with_stream(vec![
        Reply::stream().send(&note("a", 1)),
        Reply::status(503),
        Reply::stream().send(&note("b", 2)).send(&note("c", 3)),
        Reply::stream().send(&note("d", 4)).hang(),
    ])
    .await;
    handler.until("four notifications", |handler| handler.notifications().len() == 4).await;
    assert_eq!(handler.notifications(), ["n1", "n2", "n3", "n4"]);
    assert_eq!(gets(&server), ["s1 -", "s1 a", "s1 a", "s1 c"]);
    // The stream ends when the client is dropped.
    drop(client);
    server.until("the end of the stream", |log| log.iter().any(|one| one.verb == "CLOSED")).await;
}

/// rmcp's behaviour: it resumes with the event that the client names, and its first message has the
/// id of the priming event.
#[tokio::test]
async fn a_repeated_event_is_dropped_and_a_new_event_with_a_known_id_is_not() {
    let (server, handler, _client) = connect_with_stream(vec![
        Reply::stream().send("id: 0\nretry: 1\ndata:\n\n"),
        Reply::stream().send(&note("0", 1)),
        Reply::stream().send(&note("0", 1)).send(&note("1", 2)),
        Reply::stream().send(&note("1", 2)).send(&note("2", 3)).hang(),
    ])
    .await;
    handler
        .until("the last", |handler| handler.notifications().last().is_some_and(|last| last == "n3"))
        .await;
    assert_eq!(handler.notifications(), ["n1", "n2", "n3"]);
    assert_eq!(gets(&server), ["s1 -", "s1 0", "s1 0", "s1 1"]);
}

#[tokio::test]
async fn a_server_may_offer_no_stream() {
    let (server, handler, _client) = connect_with_stream(vec![Reply::status(405)]).await;
    handler.until("an event", |handler| !handler.events().is_empty()).await;
    assert_eq!(handler.events(), [Event::StandaloneAbsent]);
    assert_eq!(gets(&server).len(), 1);
}

#[tokio::test]
async fn a_gap_is_reported() {
    let (server, handler, _client) = connect_with_stream(vec![
        Reply::stream().send(&note("a", 1)),
        Reply::status(400),
        Reply::stream().send(&note("z", 2)).hang(),
    ])
    .await;
    handler.until("two notifications", |handler| handler.notifications().len() == 2).await;
    assert_eq!(handler.events(), [Event::StandaloneOpen, Event::StandaloneOpen, Event::Gap]);
    assert_eq!(gets(&server), ["s1 -", "s1 a", "s1 -"]);
}

/// Messages sent while no stream is open have no id from which the client could resume.
#[tokio::test]
async fn a_reopened_stream_without_ids_has_a_gap() {
    let plain = Reply::stream().event(&json!({"jsonrpc": "2.0", "method": "n1"}));
    let (server, handler, _client) =
        connect_with_stream(vec![plain, Reply::stream().send(&note("z", 2)).hang()]).await;
    handler.until("two notifications", |handler| handler.notifications().len() == 2).await;
    assert_eq!(handler.events(), [Event::StandaloneOpen, Event::StandaloneOpen, Event::Gap]);
    assert_eq!(gets(&server), ["s1 -", "s1 -"]);
}

/// The process that had the session before may have read part of the stream.
#[tokio::test]
async fn a_resumed_session_has_a_gap() {
    let server =
        Server::with_sessions(|request| (request.verb == "GET").then(|| Reply::stream().hang())).await;
    let before = connect(config(&server), ()).await;
    let (handler, config) = (Recorder::default(), config_with_stream(&server));
    let transport = Http::new(&config.timeouts, &config.limits);
    let session = before.session().expect("a session");
    let client = Client::resume_over(transport, &config, session, handler.clone()).expect("a client");
    handler.until("the gap", |handler| handler.events() == [Event::StandaloneOpen, Event::Gap]).await;
    // The client closes its own stream and opens it again later.
    client.close_standalone_stream();
    server.until("the end of the stream", |log| log.iter().any(|one| one.verb == "CLOSED")).await;
    client.open_standalone_stream();
    handler.until("another", |handler| handler.events()[2..] == [Event::StandaloneOpen, Event::Gap]).await;
}

/// rmcp responds with an empty stream if it has lost the event.
#[tokio::test]
async fn empty_streams_after_an_event_id_discard_the_position() {
    let (server, handler, _client) = connect_with_stream(vec![
        Reply::stream().send(&note("a", 1)),
        Reply::stream(),
        Reply::stream(),
        Reply::stream(),
        Reply::stream().send(&note("z", 2)).hang(),
    ])
    .await;
    handler.until("two notifications", |handler| handler.notifications().len() == 2).await;
    assert_eq!(gets(&server), ["s1 -", "s1 a", "s1 a", "s1 a", "s1 -"]);
    assert_eq!(handler.events().iter().filter(|event| **event == Event::Gap).count(), 1);
}

fn refused(status: u16) -> Event {
    Event::StandaloneLost(Error::Refused { status, error: None, challenge: None })
}

#[tokio::test]
async fn a_server_that_keeps_failing_is_retried_periodically() {
    let replies = [vec![Reply::status(500); 6], vec![Reply::stream().send(&note("a", 1)).hang()]].concat();
    let (server, handler, _client) = connect_with_stream(replies).await;
    handler.until("the stream", |handler| handler.events().iter().any(is_open)).await;
    // Four failures at first, then one after each wait.
    assert_eq!(handler.events(), [refused(500), refused(500), refused(500), Event::StandaloneOpen]);
    assert_eq!(gets(&server).len(), 7);
}

/// The client notices without a call.
#[tokio::test]
async fn a_server_that_restarts_without_its_sessions_gets_a_new_stream() {
    let (is_away, has_lost) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (server, handler, _client) = connect_with_stream_to({
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
    handler.until("the stream", |handler| handler.events().iter().any(is_open)).await;
    is_away.store(true, Ordering::SeqCst);
    server.prod();
    handler.until("the loss", |handler| handler.events().last() == Some(&refused(503))).await;
    has_lost.store(true, Ordering::SeqCst);
    is_away.store(false, Ordering::SeqCst);
    handler.until("a notification", |handler| handler.notifications() == ["n1"]).await;
    let events = handler.events();
    assert_eq!(events[events.len() - 2..], [Event::SessionRenewed, Event::StandaloneOpen]);
    assert_eq!(opened(&server), 2);
}

/// Expired credentials, for example: only new headers help.
#[tokio::test]
async fn a_refusal_is_not_retried_until_the_headers_change() {
    let (server, handler, client) =
        connect_with_stream_to(|request| match (request.verb.as_str(), request.header("authorization")) {
            ("GET", Some("Bearer new")) => Some(Reply::stream().hang()),
            ("GET", _) => Some(Reply::status(403)),
            _ => answers(request),
        })
        .await;
    handler.until("an event", |handler| !handler.events().is_empty()).await;
    assert_eq!(value(call(&client, "t").await), json!({}));
    tokio::time::sleep(STANDALONE_RETRY * 5).await;
    assert_eq!(handler.events(), [refused(403)]);
    assert_eq!(gets(&server).len(), 4);
    let authorization = ("authorization".parse().unwrap(), "Bearer new".parse().unwrap());
    client.set_headers(http::HeaderMap::from_iter([authorization]));
    handler.until("the stream", |handler| handler.events() == [refused(403), Event::StandaloneOpen]).await;
}

/// A server with routes for POST only, for example.
#[tokio::test]
async fn a_server_without_get_keeps_its_session() {
    let (server, handler, client) = connect_with_stream_to(|request| {
        if request.verb == "GET" { Some(Reply::status(404)) } else { answers(request) }
    })
    .await;
    handler.until("an event", |handler| !handler.events().is_empty()).await;
    for _ in 0..3 {
        assert_eq!(value(call(&client, "t").await), json!({}));
    }
    tokio::time::sleep(STANDALONE_RETRY * 5).await;
    assert_eq!(handler.events(), [Event::StandaloneAbsent]);
    assert_eq!((opened(&server), gets(&server).len()), (1, 1));
}

/// A call shows that the session is lost, and the stream is tried again in the next session.
#[tokio::test]
async fn a_stream_that_was_not_found_is_retried_in_the_next_session() {
    let (server, handler, client) =
        connect_with_stream_to(|request| match (request.verb.as_str(), request.header("mcp-session-id")) {
            ("GET", Some("s1")) => Some(Reply::status(404)),
            ("GET", _) => Some(Reply::stream().hang()),
            (_, Some("s1")) if request.calls("lost") => Some(Reply::status(404)),
            _ => answers(request),
        })
        .await;
    handler.until("an event", |handler| handler.events() == [Event::StandaloneAbsent]).await;
    assert_eq!(value(call(&client, "lost").await), json!({}));
    handler.until("the stream", |handler| handler.events().last().is_some_and(is_open)).await;
    assert_eq!(handler.events()[1..], [Event::SessionRenewed, Event::StandaloneOpen]);
    assert_eq!((opened(&server), gets(&server)), (2, vec!["s1 -".to_owned(), "s2 -".to_owned()]));
}

/// The server answers 404 to every GET and ping, but calls work.
#[tokio::test]
async fn the_client_gives_up_if_no_session_has_a_stream() {
    let (server, handler, client) =
        connect_with_stream_to(|request| match (request.verb.as_str(), request.method()) {
            ("GET", _) | (_, "ping") => Some(Reply::status(404)),
            _ => answers(request),
        })
        .await;
    handler.until("the end", |handler| handler.events().last() == Some(&Event::StandaloneAbsent)).await;
    for _ in 0..3 {
        assert_eq!(value(call(&client, "t").await), json!({}));
    }
    tokio::time::sleep(STANDALONE_RETRY * 5).await;
    assert_eq!(handler.events(), [Event::SessionRenewed, Event::StandaloneAbsent]);
    assert_eq!((opened(&server), gets(&server).len()), (2, 2));
}

#[tokio::test]
async fn a_lost_session_is_replaced() {
    let (server, handler, client) = connect_with_stream(vec![
        Reply::stream().send(&note("a", 1)),
        Reply::status(404),
        Reply::stream().send(&note("b", 2)).hang(),
    ])
    .await;
    handler.until("two notifications", |handler| handler.notifications().len() == 2).await;
    assert_eq!(handler.events(), [Event::StandaloneOpen, Event::SessionRenewed, Event::StandaloneOpen]);
    assert_eq!(gets(&server), ["s1 -", "s1 a", "s2 -"]);
    assert_eq!(client.session_id().as_deref(), Some("s2"));
}

#[tokio::test]
async fn server_requests_on_it_are_answered() {
    let server_request = json!({"jsonrpc": "2.0", "id": "x", "method": "roots/list"});
    let (server, _owner, _client) =
        connect_with_stream(vec![Reply::stream().event(&server_request).hang()]).await;
    server.until("the answer", |log| log.iter().any(Request::is_answer)).await;
    let log = server.log();
    let answer = log.iter().find(|one| one.is_answer()).unwrap();
    assert_eq!(answer.body, json!({"jsonrpc": "2.0", "id": "x", "result": {}}));
    assert_eq!(answer.header("mcp-session-id"), Some("s1"));
}

/// Panics on the first notification.
struct PanicsOnce(Recorder);

impl ClientHandler for PanicsOnce {
    fn on_notification(&self, notification: Notification) -> BoxFuture<'_, ()> {
        assert_ne!(notification.method, "n1", "a handler that panics on purpose");
        self.0.on_notification(notification)
    }
}

#[tokio::test]
async fn a_panic_of_the_handler_does_not_end_the_stream() {
    let server = Server::with_sessions(|request| {
        (request.verb == "GET").then(|| Reply::stream().send(&note("a", 1)).send(&note("b", 2)).hang())
    })
    .await;
    let heard = Recorder::default();
    let mut config = config(&server);
    config.standalone_stream = StandaloneStream::Open;
    let _client = connect(config, PanicsOnce(heard.clone())).await;
    heard.until("the second", |heard| heard.notifications() == ["n2"]).await;
}
