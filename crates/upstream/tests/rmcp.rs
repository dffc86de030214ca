//! A gateway in front of rmcp's own server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

#[path = "../../client/tests/rmcp/server.rs"]
mod server;

use std::collections::BTreeSet;
use std::time::Duration;

use steadfast::SessionEventKind::FailedOver;
use support::{Backing, Host, Relay, Session, Value, json, within};
use tokio::sync::mpsc;

async fn gateway() -> (Host, mpsc::Receiver<&'static str>) {
    let (url, news) = server::start().await;
    (Host::before(Backing::Memory, [url], |builder| builder).await, news)
}

#[tokio::test]
async fn tools_are_listed_and_called_in_every_revision() {
    let (host, _) = gateway().await;
    for revision in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = Session::at(&host, revision).await;
        let list = session.request(1, "tools/list", json!({})).send().await.answer();
        assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 6, "{revision}");
        assert_eq!(session.say("2", "deploy", json!({"region": "ü"})).await, "\"ü\"", "{revision}");
        let unknown = session.call(3, "no such tool", json!({})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{revision}: {unknown}");
        assert_eq!(session.delete().send().await.status, 204);
    }
}

#[tokio::test]
async fn a_hundred_calls_at_once_get_their_own_answers() {
    let (host, _) = gateway().await;
    let session = Session::open(&host).await;
    let work: Vec<_> = (0..100)
        .map(|id| {
            let session = session.clone();
            tokio::spawn(async move { session.say(id, "deploy", json!({"region": id})).await })
        })
        .collect();
    for (id, work) in work.into_iter().enumerate() {
        assert_eq!(work.await.unwrap(), id.to_string());
    }
}

/// All of a tool's asks are shown before one is answered, wherever rmcp sends them.
#[tokio::test]
async fn asks_are_shown_all_at_once() {
    let (host, _) = gateway().await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "fan", json!({"n": 5})).stream().await;
    let mut server_requests = Vec::new();
    for _ in 0..5 {
        let server_request = stream.message().await;
        assert_eq!(server_request["method"], "test/ask", "{server_request}");
        server_requests.push(server_request);
    }
    let asked: BTreeSet<_> = server_requests
        .iter()
        .map(|server_request| server_request["params"]["n"].as_u64().unwrap())
        .collect();
    assert_eq!(asked, (0..5).collect());
    for server_request in &server_requests {
        assert_eq!(session.answer(&server_request["id"], json!({})).await.status, 202);
    }
    assert_eq!(support::session::said(&stream.message().await), "5");
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_in_the_handler() {
    let (host, mut news) = gateway().await;
    let session = Session::open(&host).await;
    let mut stream = session.tool("x", "until_cancelled", json!({})).stream().await;
    assert_eq!(within("the beginning", news.recv()).await, Some("begun"));
    assert_eq!(session.cancel("x").await.status, 202);
    assert_eq!(within("the cancellation", news.recv()).await, Some("cancelled"));
    assert_eq!(stream.messages().await, Vec::<Value>::new());
}

/// rmcp answers while the gateway is disconnected, and does not store the answer: each time the
/// gateway resumes the stream, rmcp returns an empty one.
#[tokio::test]
async fn a_call_whose_answer_is_lost_ends() {
    let (url, mut news) = server::start().await;
    let relay = Relay::before(&url).await;
    let host = Host::before(Backing::Memory, [relay.url()], |builder| {
        builder.upstream(|config| {
            // For as long as it takes: rmcp itself says three seconds.
            config.backoff.longest_retry = Duration::from_millis(20);
            config.backoff.attempts = 1000;
        })
    })
    .await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "until_heard", json!({})).stream().await;
    assert!(stream.next().await.unwrap().is_priming());
    assert_eq!(within("the beginning", news.recv()).await, Some("begun"));
    relay.kill().await;
    while within("the end", news.recv()).await != Some("done") {}
    // What the handler returns has a short way to go.
    tokio::time::sleep(Duration::from_millis(100)).await;
    relay.revive();
    let told = stream.messages().await;
    let data = json!({"reason": "outcome_unknown", "retryable": false});
    assert_eq!(told.last().map(|last| &last["error"]["data"]), Some(&data), "{told:?}");
}

/// A server that was started anew knows nothing of the session, and the client need not know.
#[tokio::test]
async fn a_server_that_was_started_anew_is_initialized_again() {
    let (first, _news) = server::start().await;
    let relay = Relay::before(&first).await;
    let host = Host::before(Backing::Memory, [relay.url()], |builder| builder).await;
    let session = Session::open(&host).await;
    assert_eq!(session.say(1, "deploy", json!({"region": "us"})).await, "\"us\"");
    let (second, _news) = server::start().await;
    relay.retarget(&second).await;
    let work: Vec<_> = (0..20)
        .map(|id| {
            let session = session.clone();
            tokio::spawn(async move { session.say(id, "deploy", json!({"region": id})).await })
        })
        .collect();
    for (id, work) in work.into_iter().enumerate() {
        assert_eq!(work.await.unwrap(), id.to_string());
    }
    host.heard.once(&session, FailedOver).await;
    assert_eq!(host.upstream().failovers(), 1);
}

/// rmcp sends nothing on a second standalone stream while another gateway holds the first, and
/// nothing on it afterwards either: a gateway that has taken over from a stopped one must open the
/// stream again.
#[tokio::test]
async fn a_gateway_that_took_over_is_heard_after_the_other_lets_go() {
    let (url, _news) = server::start().await;
    let here = Host::before(Backing::Sqlite, [url], |builder| {
        builder.upstream(|config| config.standalone_reopen_delay = Duration::from_millis(300))
    })
    .await;
    let signs = here.signs_of_life();
    let there = here.beside().await;
    let session = Session::open(&here).await;
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"});
    let mut listener = session.via(&there).listen().stream().await;
    session.say(1, "announce", json!({})).await;
    assert_eq!(listener.message().await, changed, "the first gateway hears the server");
    signs.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    for _ in 0..5 {
        there.sweep_after(Duration::ZERO).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The first one hears of it, is fenced and lets go; the second one hears nothing yet.
    session.via(&there).say(2, "announce", json!({})).await;
    assert_eq!(listener.message().await, changed);
    session.via(&there).say(3, "announce", json!({})).await;
    assert_eq!(listener.message().await, changed);
}
