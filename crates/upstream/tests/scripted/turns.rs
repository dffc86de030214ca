//! Servers that lose track of several calls at a time get one at a time, or several sessions.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use crate::support::server::{Reply, Request, Server};
use crate::support::{Backing, Host, Session, Stream, json};

use super::forgetful::Forgetful;
use super::{call, calls, reason};

/// A server whose calls of the tool NAME end when it was sent `notifications/NAME`.
pub(super) async fn patient() -> Server {
    Server::with_sessions(|request| {
        if request.method() != "tools/call" {
            let is_told =
                request.method() == "logging/setLevel" || request.method().starts_with("resources/");
            return is_told.then(|| Reply::result(request, &json!({})));
        }
        let name = request.body["params"]["name"].as_str()?.to_owned();
        let go = format!("notifications/{name}");
        let told = move |log: &[Request]| log.iter().any(|request| request.method() == go);
        Some(Reply::stream().until(told).answer(request, &json!({"name": name})))
    })
    .await
}

async fn gateway(server: &Server, concurrency: usize, spread: usize, waiting: usize) -> Host {
    Host::before(Backing::Memory, [server.url()], move |builder| {
        builder.call_deadline(Duration::from_secs(60)).upstream(|config| {
            config.calls.concurrency = NonZeroUsize::new(concurrency).into();
            config.calls.upstream_sessions = NonZeroUsize::new(spread).unwrap();
            config.calls.max_queued = waiting;
        })
    })
    .await
}

pub(super) async fn end(session: &Session, name: &str) {
    assert_eq!(session.notify(&format!("notifications/{name}"), json!({})).await.status, 202);
}

/// Everything that was sent before has arrived.
pub(super) async fn settle(server: &Server, session: &Session, no: usize) {
    let method = format!("notifications/settle{no}");
    assert_eq!(session.notify(&method, json!({})).await.status, 202);
    server.until("what was sent last", |log| log.iter().any(|request| request.method() == method)).await;
}

/// A call that waits or runs; the stream is there when the call has been taken.
pub(super) async fn begin(session: &Session, id: u64, name: &str) -> Stream {
    let mut stream = session.tool(id, name, json!({})).stream().await;
    assert!(stream.next().await.unwrap().is_priming());
    stream
}

#[tokio::test]
async fn one_call_at_a_time_in_the_order_of_arrival() {
    let server = patient().await;
    let host = gateway(&server, 1, 1, 100).await;
    let session = Session::open(&host).await;
    let names: Vec<_> = (0..8).map(|no| format!("t{no}")).collect();
    let mut streams = Vec::new();
    for (id, name) in names.iter().enumerate() {
        streams.push(begin(&session, id as u64, name).await);
        let waiting = async {
            while host.upstream().queued_calls() < id {
                tokio::task::yield_now().await
            }
        };
        crate::support::within("a call that waits", waiting).await;
    }
    for (no, name) in names.iter().enumerate() {
        server.until(name, |log| log.iter().any(|request| request.calls(name))).await;
        settle(&server, &session, no).await;
        assert_eq!(server.count(|request| request.method() == "tools/call"), no + 1, "{name} has not ended");
        end(&session, name).await;
        assert_eq!(streams[no].message().await["result"]["name"], *name);
    }
    assert_eq!(server.count(|request| request.method() == "initialize"), 1);
}

/// Other sessions have turns of their own.
#[tokio::test]
async fn sessions_do_not_wait_for_each_other() {
    let server = patient().await;
    let host = gateway(&server, 1, 1, 100).await;
    let (mine, other) = (Session::open(&host).await, Session::open(&host).await);
    let _busy = begin(&mine, 1, "a").await;
    server.until("a", |log| log.iter().any(|request| request.calls("a"))).await;
    let mut theirs = begin(&other, 1, "b").await;
    end(&other, "b").await;
    assert_eq!(theirs.message().await["result"]["name"], "b");
}

#[tokio::test]
async fn too_many_that_wait_are_refused() {
    let server = patient().await;
    let host = gateway(&server, 1, 1, 2).await;
    let session = Session::open(&host).await;
    let mut taken = Vec::new();
    for id in 0..3 {
        taken.push(begin(&session, id, "t").await);
        let waiting = async {
            while host.upstream().queued_calls() < id as usize {
                tokio::task::yield_now().await
            }
        };
        crate::support::within("a call that waits", waiting).await;
    }
    let refused = call(&session, 3, "t").await;
    assert_eq!(reason(&refused), ("over_limit".to_owned(), true));
    assert!(refused["error"]["message"].as_str().unwrap().contains("2 calls"), "{refused}");
    end(&session, "t").await;
    for stream in &mut taken {
        assert_eq!(stream.message().await["result"]["name"], "t");
    }
    assert_eq!(calls(&server, "t"), 3);
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_it_waits_is_not_sent() {
    let server = patient().await;
    let host = gateway(&server, 1, 1, 100).await;
    let session = Session::open(&host).await;
    let mut first = begin(&session, 1, "first").await;
    server.until("first", |log| log.iter().any(|request| request.calls("first"))).await;
    let mut second = begin(&session, 2, "second").await;
    let mut third = begin(&session, 3, "third").await;
    assert_eq!(session.cancel(2).await.status, 202);
    assert!(second.messages().await.is_empty());
    end(&session, "first").await;
    end(&session, "third").await;
    assert_eq!(first.message().await["result"]["name"], "first");
    assert_eq!(third.message().await["result"]["name"], "third");
    assert_eq!(calls(&server, "second"), 0);
    assert_eq!(host.upstream().queued_calls(), 0);
}

#[tokio::test]
async fn the_deadline_of_a_call_does_not_wait_with_it() {
    let server = patient().await;
    let host = gateway(&server, 1, 1, 100).await;
    let session = Session::open(&host).await;
    let mut first = begin(&session, 1, "first").await;
    server.until("first", |log| log.iter().any(|request| request.calls("first"))).await;
    host.sweep_after(Duration::from_secs(30)).await;
    let mut second = begin(&session, 2, "second").await;
    host.sweep_after(Duration::from_secs(30)).await;
    assert_eq!(reason(&first.message().await), ("deadline".to_owned(), false));
    // It has its turn now, and half of its time left.
    server.until("second", |log| log.iter().any(|request| request.calls("second"))).await;
    let mut third = begin(&session, 3, "third").await;
    host.sweep_after(Duration::from_secs(30)).await;
    assert_eq!(reason(&second.message().await), ("deadline".to_owned(), false));
    server.until("third", |log| log.iter().any(|request| request.calls("third"))).await;
    end(&session, "third").await;
    assert_eq!(third.message().await["result"]["name"], "third");
    let mut fourth = begin(&session, 4, "fourth").await;
    let mut fifth = begin(&session, 5, "fifth").await;
    host.sweep_after(Duration::from_secs(60)).await;
    for stream in [&mut fourth, &mut fifth] {
        assert_eq!(reason(&stream.message().await), ("deadline".to_owned(), false));
    }
}

/// The sessions of the server's that calls of a tool are in, and how many each has.
fn lanes(server: &Server) -> BTreeMap<String, usize> {
    let mut lanes = BTreeMap::new();
    for request in server.log().iter().filter(|request| request.method() == "tools/call") {
        *lanes.entry(request.header("mcp-session-id").unwrap_or_default().to_owned()).or_insert(0) += 1;
    }
    lanes
}

#[tokio::test]
async fn calls_are_spread_over_sessions_with_one_each() {
    let server = patient().await;
    let host = gateway(&server, 0, 8, 100).await;
    let session = Session::open(&host).await;
    let mut streams = Vec::new();
    for id in 0..20 {
        streams.push(begin(&session, id, "t").await);
    }
    server.until("eight calls", |log| log.iter().filter(|r| r.calls("t")).count() == 8).await;
    settle(&server, &session, 0).await;
    let expect: BTreeMap<_, _> = (1..=8).map(|no| (format!("s{no}"), 1)).collect();
    assert_eq!(lanes(&server), expect, "one each, and twelve wait");
    assert_eq!(host.upstream().queued_calls(), 12);
    end(&session, "t").await;
    for stream in &mut streams {
        assert_eq!(stream.message().await["result"]["name"], "t");
    }
    assert_eq!((server.count(|r| r.method() == "initialize"), calls(&server, "t")), (8, 20));
    // All of them end with the client's session.
    assert_eq!(session.delete().send().await.status, 204);
    server.until("eight DELETEs", |log| log.iter().filter(|r| r.verb == "DELETE").count() == 8).await;
}

#[tokio::test]
async fn calls_one_after_the_other_stay_in_one_session() {
    let server = patient().await;
    let host = gateway(&server, 0, 8, 100).await;
    let session = Session::open(&host).await;
    end(&session, "t").await;
    for id in 0..10 {
        assert_eq!(call(&session, id, "t").await["result"]["name"], "t");
    }
    assert_eq!(lanes(&server), BTreeMap::from([("s1".to_owned(), 10)]));
}

/// What the client says of its session holds wherever its calls are, and never makes two calls of
/// one.
#[tokio::test]
async fn the_log_level_holds_in_every_session_and_takes_its_turn() {
    let server = patient().await;
    let host = gateway(&server, 0, 2, 100).await;
    let session = Session::open(&host).await;
    let mut first = begin(&session, 1, "a").await;
    server.until("a", |log| log.iter().any(|request| request.calls("a"))).await;
    let mut second = begin(&session, 2, "b").await;
    server.until("b", |log| log.iter().any(|request| request.calls("b"))).await;
    // The first session of the server's is free, the second is busy.
    end(&session, "a").await;
    first.message().await;
    let answer = session.request(3, "logging/setLevel", json!({"level": "info"})).send().await.answer();
    assert_eq!(answer["result"], json!({}));
    let levels = |which: &'static str| {
        move |r: &Request| r.method() == "logging/setLevel" && r.header("mcp-session-id") == Some(which)
    };
    settle(&server, &session, 0).await;
    assert_eq!((server.count(levels("s1")), server.count(levels("s2"))), (1, 0), "the second is busy");
    end(&session, "b").await;
    second.message().await;
    // The next two calls are one in each.
    let _third = begin(&session, 4, "c").await;
    server.until("c", |log| log.iter().any(|request| request.calls("c"))).await;
    let mut fourth = begin(&session, 5, "d").await;
    end(&session, "d").await;
    fourth.message().await;
    assert_eq!((server.count(levels("s1")), server.count(levels("s2"))), (1, 1));
    let log = server.log();
    let at = |which: &dyn Fn(&Request) -> bool| log.iter().position(which).unwrap();
    assert!(at(&levels("s2")) < at(&|r: &Request| r.calls("d")), "before the call");
}

/// Resources are watched from the first session, whichever the client's call was in, and from none
/// when it has had enough.
#[tokio::test]
async fn subscriptions_are_the_first_sessions() {
    let server = patient().await;
    let host = gateway(&server, 0, 2, 100).await;
    let session = Session::open(&host).await;
    let sent = |which: &str, what: &str| {
        let (which, what) = (which.to_owned(), format!("resources/{what}"));
        server.count(move |r| r.method() == what && r.header("mcp-session-id") == Some(&which))
    };
    let change = async |id: u64, what: &str| {
        let request = session.request(id, &format!("resources/{what}"), json!({"uri": "test:a"}));
        assert_eq!(request.send().await.answer()["result"], json!({}));
    };
    // The first is busy, so this is in the second.
    let mut busy = begin(&session, 1, "a").await;
    server.until("a", |log| log.iter().any(|request| request.calls("a"))).await;
    change(2, "subscribe").await;
    assert_eq!((sent("s1", "subscribe"), sent("s2", "subscribe")), (0, 1));
    end(&session, "a").await;
    busy.message().await;
    end(&session, "b").await;
    call(&session, 3, "b").await;
    assert_eq!((sent("s1", "subscribe"), sent("s2", "subscribe")), (1, 1), "told with the next call");
    change(4, "unsubscribe").await;
    let _busy = begin(&session, 5, "c").await;
    server.until("c", |log| log.iter().any(|request| request.calls("c"))).await;
    call(&session, 6, "b").await;
    assert_eq!((sent("s1", "unsubscribe"), sent("s2", "unsubscribe")), (1, 1));
}

/// That a list has changed is told once, however many sessions of the server's say so.
#[tokio::test]
async fn a_change_of_a_list_is_told_once() {
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    let server = Server::with_sessions({
        let changed = changed.clone();
        move |request| match request.verb.as_str() {
            "GET" => {
                let both = |log: &[Request]| log.iter().filter(|r| r.verb == "GET").count() == 2;
                let own = json!({"jsonrpc": "2.0", "method": "notifications/own", "params": {"of": request.header("mcp-session-id")}});
                Some(Reply::stream().until(both).event(&changed).event(&own).hang())
            }
            "POST" if request.calls("a") => {
                let second = |log: &[Request]| log.iter().any(|r| r.calls("b"));
                Some(Reply::stream().until(second).answer(request, &json!({})))
            }
            "POST" if request.calls("b") => Some(Reply::result(request, &json!({}))),
            _ => None,
        }
    })
    .await;
    let host = gateway(&server, 0, 2, 100).await;
    let session = Session::open(&host).await;
    let mut listener = session.listen().stream().await;
    let mut first = begin(&session, 1, "a").await;
    server.until("a", |log| log.iter().any(|request| request.calls("a"))).await;
    call(&session, 2, "b").await;
    first.message().await;
    let mut heard = Vec::new();
    while heard
        .iter()
        .filter(|message: &&crate::support::Value| message["method"] == "notifications/own")
        .count()
        < 2
    {
        heard.push(listener.message().await);
    }
    assert_eq!(heard.iter().filter(|message| **message == changed).count(), 1, "{heard:?}");
}

/// A gateway that shares its sessions asks for the list of tools by itself. That is no second
/// request at a time either.
#[tokio::test]
async fn what_the_gateway_asks_for_itself_takes_its_turn() {
    let Forgetful { server, .. } = Forgetful::start("s", |request| {
        let is_prodded = |log: &[Request]| log.iter().any(|request| request.verb == "PROD");
        let list = || Reply::stream().until(is_prodded).answer(request, &json!({"tools": []}));
        (request.method() == "tools/list").then(list)
    })
    .await;
    let host = Host::before(Backing::Sqlite, [server.url()], |builder| {
        builder.upstream(|config| config.calls.concurrency = NonZeroUsize::new(1).into())
    })
    .await;
    let session = Session::open(&host).await;
    let count = |method: &str| server.count(|request| request.method() == method);
    server.until("the list", |log| log.iter().any(|request| request.method() == "tools/list")).await;
    let mut second = session.request(2, "prompts/list", json!({})).stream().await;
    assert!(second.next().await.unwrap().is_priming());
    let decided = async {
        while host.upstream().queued_calls() == 0 && count("prompts/list") == 0 {
            tokio::task::yield_now().await;
        }
    };
    crate::support::within("the second request to wait", decided).await;
    assert_eq!(count("prompts/list"), 0, "it is at the server beside the list");
    server.prod();
    assert_eq!(second.message().await["result"], json!({}));
    assert_eq!((count("tools/list"), count("prompts/list")), (1, 1));
}
