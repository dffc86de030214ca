//! The standalone stream.

use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_client::{Boxed, Error, Event, Notification, Owner, Standalone};

use crate::support::{Recorder, Reply, Request, Server, config, connect, json};

/// A client that holds a stream, whose n-th GET gets the n-th reply; the last of them for ever.
async fn hold(replies: Vec<Reply>) -> (Server, Recorder, steadfast_client::Client) {
    let gets = AtomicUsize::new(0);
    let server = Server::with_sessions(move |request: &Request| {
        if request.verb != "GET" {
            return None;
        }
        let n = gets.fetch_add(1, Ordering::SeqCst);
        replies.get(n).or_else(|| replies.last()).cloned()
    })
    .await;
    let owner = Recorder::default();
    let mut config = config(&server);
    config.standalone = Standalone::Held;
    let client = connect(config, owner.clone()).await;
    (server, owner, client)
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
    assert_eq!(owner.events(), [Event::StandaloneOpen, Event::Gap, Event::StandaloneOpen]);
    assert_eq!(gets(&server), ["s1 -", "s1 a", "s1 -"]);
}

#[tokio::test]
async fn it_is_given_up_after_so_many_failures_and_that_is_told() {
    let (server, owner, _client) = hold(vec![Reply::status(500)]).await;
    owner.until("an event", |owner| !owner.events().is_empty()).await;
    assert_eq!(
        owner.events(),
        [Event::StandaloneLost(Error::Refused { status: 500, body: "".into(), challenge: None })]
    );
    assert_eq!(gets(&server).len(), 4);
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
