//! Several processes of one server: sessions go where there is room, and move when theirs is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use steadfast::SessionEventKind::FailedOver;
use steadfast_client::Uri;

use crate::support::modern::Modern;
use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Relay, Session, Value, json, within};

use super::forgetful::Forgetful;
use super::{call, calls, reason};

struct Pair {
    a: Forgetful,
    b: Forgetful,
    at_a: Relay,
    at_b: Relay,
}

impl Pair {
    async fn start(script: fn(&Request) -> Option<Reply>) -> Self {
        let (a, b) = (Forgetful::start("a", script).await, Forgetful::start("b", script).await);
        let (at_a, at_b) = (Relay::before(&a.server.url()).await, Relay::before(&b.server.url()).await);
        Self { a, b, at_a, at_b }
    }

    fn urls(&self) -> [Uri; 2] {
        [self.at_a.url(), self.at_b.url()]
    }

    async fn gateway(&self) -> Host {
        Host::before(Backing::Memory, self.urls(), |builder| builder).await
    }
}

/// Who is up, and how many sessions each has.
pub(super) fn status(host: &Host) -> Vec<(bool, usize)> {
    host.upstream().replicas().iter().map(|replica| (replica.is_up, replica.sessions)).collect()
}

pub(super) async fn until(host: &Host, expect: &[(bool, usize)]) {
    let reached = async {
        while status(host) != expect {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(&format!("{expect:?}"), reached).await;
}

#[tokio::test]
async fn a_new_session_goes_where_there_are_fewest() {
    let pair = Pair::start(|_| None).await;
    let host = pair.gateway().await;
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(Session::open(&host).await);
    }
    assert_eq!(status(&host), [(true, 3), (true, 3)]);
    // The first, third and fifth are at the first replica.
    for no in [0, 2] {
        assert_eq!(sessions[no].delete().send().await.status, 204);
    }
    until(&host, &[(true, 1), (true, 3)]).await;
    Session::open(&host).await;
    assert_eq!((pair.a.opened(), pair.b.opened()), (4, 3));
}

#[tokio::test]
async fn the_sessions_of_a_dead_replica_move() {
    let pair = Pair::start(|_| None).await;
    let host = pair.gateway().await;
    let (here, there) = (Session::open(&host).await, Session::open(&host).await);
    here.request(1, "logging/setLevel", json!({"level": "info"})).send().await.answer();
    pair.at_a.kill().await;
    let heard = here.tool(2, "t", json!({})).send().await.messages();
    assert_eq!(heard.last().unwrap()["result"], json!({}), "{heard:?}");
    host.heard.once(&here, FailedOver).await;
    assert_eq!(status(&host), [(false, 0), (true, 2)]);
    let told: Vec<_> =
        pair.b.server.log().into_iter().filter(|r| r.header("mcp-session-id") == Some("b2")).collect();
    let told: Vec<_> = told.iter().filter(|r| r.verb == "POST").map(Request::method).collect();
    assert_eq!(told, ["notifications/initialized", "logging/setLevel", "tools/call"]);
    // New ones stay away, and who was elsewhere has noticed nothing.
    let third = Session::open(&host).await;
    assert_eq!(status(&host), [(false, 0), (true, 3)]);
    assert_eq!(call(&there, 1, "t").await["result"], json!({}));
    assert_eq!(call(&third, 1, "t").await["result"], json!({}));
    assert_eq!(pair.b.opened(), 3);
    // It comes back by itself, and has room.
    pair.at_a.revive();
    until(&host, &[(true, 0), (true, 3)]).await;
    Session::open(&host).await;
    assert_eq!(status(&host), [(true, 1), (true, 3)]);
    // The gateway does not move a session back without need.
    assert_eq!(call(&here, 3, "t").await["result"], json!({}));
    assert_eq!(pair.a.opened(), 2);
}

/// The tools of a server whose calls never end at the first replica and at once at the second.
fn slow_at_a(request: &Request) -> Option<Reply> {
    let list = json!({"tools": [{"name": "look", "inputSchema": {}, "annotations": {"readOnlyHint": true}}]});
    let is_a = request.header("mcp-session-id").is_some_and(|id| id.starts_with('a'));
    match request.method() {
        "tools/list" => Some(Reply::result(request, &list)),
        "tools/call" if is_a => Some(Reply::stream().hang()),
        _ => None,
    }
}

#[tokio::test]
async fn calls_in_flight_at_a_dead_replica_end() {
    let pair = Pair::start(slow_at_a).await;
    let host = pair.gateway().await;
    let session = Session::open(&host).await;
    let work: BTreeMap<u64, _> = (0..20)
        .map(|id| {
            let (session, tool) = (session.clone(), if id % 2 == 0 { "look" } else { "touch" });
            (id, tokio::spawn(async move { call(&session, id, tool).await }))
        })
        .collect();
    let all = |log: &[Request]| log.iter().filter(|r| r.method() == "tools/call").count() == 20;
    pair.a.server.until("all calls", all).await;
    pair.at_a.kill().await;
    for (id, work) in work {
        let answer = work.await.unwrap();
        if id % 2 == 0 {
            assert_eq!(answer["result"], json!({}), "a call that only looks is made again: {answer}");
        } else {
            assert_eq!(reason(&answer), ("outcome_unknown".to_owned(), false));
        }
    }
    assert_eq!((calls(&pair.b.server, "look"), calls(&pair.b.server, "touch")), (10, 0));
    assert_eq!(pair.b.opened(), 1, "the session moved once");
    assert_eq!(host.upstream().failovers(), 1);
}

/// A replica that is about to go takes no connections any more and still works on what it has.
/// Calls there and calls at the next replica have the same ids at their servers, and are not taken
/// for each other.
#[tokio::test]
async fn calls_at_the_old_replica_are_not_taken_for_those_at_the_new() {
    fn script(request: &Request) -> Option<Reply> {
        let go = |method: &'static str| move |log: &[Request]| log.iter().any(|r| r.method() == method);
        let server_request = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
        match request.body["params"]["name"].as_str()? {
            "old" => {
                let reply =
                    Reply::stream().until(|log| log.iter().any(|r| r.verb == "PROD")).event(&server_request);
                Some(reply.answer(request, &json!({"old": true})))
            }
            "new" => {
                Some(Reply::stream().until(go("notifications/go")).answer(request, &json!({"new": true})))
            }
            _ => None,
        }
    }
    let pair = Pair::start(script).await;
    let host = Host::before(Backing::Memory, pair.urls(), |builder| {
        builder.upstream(|config| config.standalone = false)
    })
    .await;
    let session = Session::open(&host).await;
    let mut old = session.tool("old", "old", json!({})).stream().await;
    pair.a.server.until("the old call", |log| log.iter().any(|r| r.calls("old"))).await;
    pair.at_a.shut().await;
    // The gateway has a connection or two to spare; they are used up by calls that never end.
    let mut others = Vec::new();
    let is_new = |log: &[Request]| log.iter().any(|request| request.calls("new"));
    while !is_new(&pair.b.server.log()) {
        let before = calls(&pair.a.server, "new") + calls(&pair.b.server, "new");
        let stream = session.tool(others.len() as u64, "new", json!({})).stream().await;
        others.push(stream);
        let arrived = async {
            while calls(&pair.a.server, "new") + calls(&pair.b.server, "new") == before {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        within("a call", arrived).await;
    }
    let id =
        |log: Vec<Request>, tool: &str| log.into_iter().rfind(|r| r.calls(tool)).unwrap().body["id"].clone();
    let (at_a, at_b) = (id(pair.a.server.log(), "old"), id(pair.b.server.log(), "new"));
    assert_eq!(at_a, at_b, "both servers have a call of that id");
    pair.a.server.prod();
    let server_requests =
        |heard: &[Value]| heard.iter().filter(|message| message["method"] == "roots/list").count();
    let heard = old.messages().await;
    assert_eq!(server_requests(&heard), 1, "{heard:?}");
    assert_eq!(heard.last().unwrap()["result"], json!({"old": true}));
    let mut newest = others.pop().unwrap();
    session.notify("notifications/go", json!({})).await;
    let heard = newest.messages().await;
    assert_eq!(server_requests(&heard), 0, "{heard:?}");
    assert_eq!(heard.last().unwrap()["result"], json!({"new": true}));
}

/// A call is on its way to a replica that has forgotten the session while another call moves the
/// session away. No replica has executed the call, so the gateway sends it to the new replica.
#[tokio::test]
async fn a_call_that_comes_too_late_follows_its_session() {
    fn script(request: &Request) -> Option<Reply> {
        let is_a = request.header("mcp-session-id").is_some_and(|id| id.starts_with('a'));
        let is_prodded = |log: &[Request]| log.iter().any(|request| request.verb == "PROD");
        match request.method() {
            "tools/call" if is_a => {
                let forgotten = "HTTP/1.1 404 x\r\ncontent-length: 0\r\n\r\n";
                Some(Reply::default().until(is_prodded).send(forgotten))
            }
            "prompts/get" if is_a => Some(Reply::default()),
            _ => None,
        }
    }
    let pair = Pair::start(script).await;
    let host = pair.gateway().await;
    let session = Session::open(&host).await;
    let late = tokio::spawn({
        let session = session.clone();
        async move { call(&session, 1, "late").await }
    });
    pair.a.server.until("the call", |log| log.iter().any(|r| r.calls("late"))).await;
    pair.at_a.shut().await;
    let moved = session.request(2, "prompts/get", json!({"name": "p"})).send().await.answer();
    assert_eq!((&moved["result"], pair.b.opened()), (&json!({}), 1), "{moved}");
    pair.a.server.prod();
    let answer = within("the answer", late).await.unwrap();
    assert_eq!(answer["result"], json!({}), "{answer}");
    assert_eq!((calls(&pair.a.server, "late"), calls(&pair.b.server, "late")), (1, 1));
    assert_eq!((pair.a.opened(), pair.b.opened(), host.upstream().failovers()), (1, 1, 1));
}

/// If the other replica does not take the session, the first is waited for.
#[tokio::test]
async fn a_replica_that_comes_back_first_keeps_its_sessions() {
    let pair = Pair::start(|_| None).await;
    let patience = Duration::from_secs(5);
    let host = Host::before(Backing::Memory, pair.urls(), move |builder| builder.patience(patience)).await;
    let session = Session::open(&host).await;
    pair.at_a.kill().await;
    // The gateway has not noticed yet that this replica is gone, too.
    pair.at_b.kill().await;
    let work = tokio::spawn({
        let session = session.clone();
        async move { call(&session, 1, "t").await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    pair.at_a.revive();
    assert_eq!(work.await.unwrap()["result"], json!({}));
    assert_eq!((pair.a.opened(), pair.b.opened()), (1, 0));
}

/// A replica that refuses new sessions for the moment is passed over.
#[tokio::test]
async fn a_replica_that_is_not_ready_is_passed_over() {
    let tired = Server::raw(|_| Some(Reply::status(503))).await;
    let b = Forgetful::start("b", |_| None).await;
    let host = Host::before(Backing::Memory, [tired.url(), b.server.url()], |builder| builder).await;
    for id in 0..3 {
        let session = Session::open(&host).await;
        assert_eq!(call(&session, id, "t").await["result"], json!({}));
    }
    assert_eq!(b.opened(), 3);
}

/// A server of 2026-07-28 that answers every request with its own name.
async fn named(name: &'static str) -> (Server, Relay) {
    let server = modern(name, |_| None).await;
    let relay = Relay::before(&server.url()).await;
    (server, relay)
}

/// A server of 2026-07-28 that answers each request as the script says, and with its own name if
/// the script returns nothing.
async fn modern(
    name: &'static str,
    script: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
) -> Server {
    Server::stateless(move |request| {
        let result = json!({"resultType": "complete", "content": [], "at": name});
        let is_question = request.method() == "server/discover";
        script(request).or_else(|| (!is_question).then(|| Reply::result(request, &result)))
    })
    .await
}

/// Requests without a session have no replica of their own: a dead one costs them nothing.
#[tokio::test]
async fn stateless_requests_go_past_a_dead_replica() {
    let ((_a, at_a), (_b, at_b)) = (named("a").await, named("b").await);
    let host = Host::before(Backing::Memory, [at_a.url(), at_b.url()], |builder| builder).await;
    let modern = Modern::to(&host);
    let server_request =
        async |id: u64| modern.tool(id, "t", json!({})).send().await.answer()["result"]["at"].clone();
    assert_eq!(server_request(1).await, "a");
    at_a.kill().await;
    for id in 2..6 {
        assert_eq!(server_request(id).await, "b");
    }
    assert_eq!(status(&host), [(false, 0), (true, 0)]);
    at_a.revive();
    until(&host, &[(true, 0), (true, 0)]).await;
    assert_eq!(server_request(7).await, "a");
}

/// The server is away for a moment: a request of which nothing was sent waits, and gets an error if
/// the server stays away.
#[tokio::test]
async fn stateless_requests_wait_for_a_server_that_is_away() {
    let (server, relay) = named("a").await;
    let patience = Duration::from_millis(400);
    let host = Host::before(Backing::Memory, [relay.url()], move |builder| builder.patience(patience)).await;
    let modern = Modern::to(&host);
    relay.kill().await;
    let told = modern.tool(1, "t", json!({})).send().await.answer();
    assert_eq!(reason(&told), ("upstream_unavailable".to_owned(), true));
    let waiting = tokio::spawn(async move { modern.tool(2, "t", json!({})).send().await.answer() });
    tokio::time::sleep(Duration::from_millis(100)).await;
    relay.revive();
    assert_eq!(within("the answer", waiting).await.unwrap()["result"]["at"], "a");
    assert_eq!(calls(&server, "t"), 1);
}

/// A replica that refuses before it gets a request has done nothing: the next one is asked.
#[tokio::test]
async fn stateless_requests_go_past_a_replica_that_refuses() {
    let (sick, well) = (Server::raw(|_| Some(Reply::status(503))).await, named("b").await.0);
    let host = Host::before(Backing::Memory, [sick.url(), well.url()], |builder| builder).await;
    let modern = Modern::to(&host);
    for id in 1..6 {
        let answer = modern.tool(id, "t", json!({})).send().await.answer();
        assert_eq!(answer["result"]["at"], "b", "{answer}");
    }
    assert_eq!(status(&host), [(false, 0), (true, 0)]);
    assert_eq!(sick.count(|request| !request.method().is_empty()), 1, "it is not asked again and again");
}

/// If something may have been done, only what does no harm twice is sent to another replica; and
/// the next request of any kind goes there at once.
#[tokio::test]
async fn stateless_requests_leave_a_replica_that_breaks() {
    let unknown = ("outcome_unknown".to_owned(), false);
    for broken in [Reply::default(), Reply::status(502), Reply::status(503), Reply::status(504)] {
        let sick = modern("a", move |request| match (request.verb.as_str(), request.method()) {
            ("POST", "tools/call" | "tools/list") => Some(broken.clone()),
            ("POST", _) => None,
            _ => Some(Reply::status(503)),
        })
        .await;
        let well = named("b").await.0;
        let urls = [sick.url(), well.url()];
        let host = Host::before(Backing::Memory, urls.clone(), |builder| builder).await;
        let modern = Modern::to(&host);
        let lost = modern.tool(1, "t", json!({})).send().await.answer();
        assert_eq!(reason(&lost), unknown);
        assert_eq!((calls(&sick, "t"), calls(&well, "t")), (1, 0));
        assert_eq!(modern.tool(2, "t", json!({})).send().await.answer()["result"]["at"], "b");
        assert_eq!((calls(&sick, "t"), calls(&well, "t")), (1, 1));
        let host = Host::before(Backing::Memory, urls, |builder| builder).await;
        let looked = Modern::to(&host).request(3, "tools/list", json!({})).send().await.answer();
        assert_eq!(looked["result"]["at"], "b", "{looked}");
        assert_eq!(sick.count(|request| request.method() == "tools/list"), 1);
    }
}
