//! What the client promises, with a server that keeps its own promises.

use std::time::Duration;

use steadfast::SessionEventKind::{Closed, Opened};
use steadfast_client::transport::{Http, Transport as _};
use steadfast_client::{
    Answer, Backoff, Bytes, CallOptions, Client, Config, Effect, Era, Error, Event, Limits, Order, Owner,
    Revision, Step, Timeouts, Uri,
};
use tokio::sync::Semaphore;

use super::cutter::Cutter;
use super::host::Host;
use crate::support::owner::Pace;
use crate::support::{Counting, Recorder, Value, connect, json, value, within};

fn config(url: Uri, revision: Revision) -> Config {
    let mut config = Config::new(url);
    config.era = Era::Session(revision);
    config.backoff = Backoff {
        first: Duration::from_millis(5),
        longest: Duration::from_millis(50),
        attempts: 4,
        ..Backoff::default()
    };
    config
}

async fn client(host: &Host, revision: Revision, owner: impl Owner) -> Client {
    connect(config(host.url(), revision), owner).await
}

fn params(tool: &str, arguments: &Value) -> String {
    json!({"name": tool, "arguments": arguments}).to_string()
}

/// What a tool said.
fn said(answer: Result<Answer, Error>) -> String {
    value(answer)["content"][0]["text"].as_str().expect("a text").to_owned()
}

async fn call(client: &Client, tool: &str, arguments: Value) -> Result<Answer, Error> {
    let call = client.call("tools/call", Some(&params(tool, &arguments))).expect("there is room");
    within("the answer", call.answer()).await
}

#[tokio::test]
async fn every_revision_is_spoken() {
    let host = Host::start().await;
    for revision in Revision::LEGACY {
        let client = client(&host, revision, ()).await;
        assert_eq!(client.revision(), revision);
        assert_eq!(said(call(&client, "echo", json!({"text": "grüß\ngott"})).await), "grüß\ngott");
        let options = CallOptions { progress: true, ..CallOptions::default() };
        let mut working =
            client.call_with("tools/call", Some(&params("progress", &json!({"n": 3}))), options).unwrap();
        let mut steps = Vec::new();
        let answer = loop {
            match within("a step", working.next()).await {
                Step::Notification(step) => {
                    let params: Value = serde_json::from_slice(&step.params.unwrap()).unwrap();
                    assert_eq!(params["progressToken"].to_string(), working.id().to_string());
                    steps.push(params["progress"].as_f64().unwrap());
                }
                Step::Done(answer) => break answer,
            }
        };
        assert_eq!((steps, said(answer)), (vec![1.0, 2.0, 3.0], "3 steps".to_owned()), "{revision}");
        client.close().await.unwrap();
    }
    host.heard("opened sessions", 3, |kind| *kind == Opened).await;
    host.heard("closed sessions", 3, |kind| matches!(kind, Closed { .. })).await;
}

#[tokio::test]
async fn the_newest_revision_is_found() {
    let host = Host::start().await;
    let client = connect(Config::new(host.url()), ()).await;
    assert!(client.revision() >= Revision::LATEST_LEGACY);
    assert_eq!(said(call(&client, "echo", json!({"text": "a"})).await), "a");
}

#[tokio::test]
async fn an_answer_cut_off_at_any_byte_is_read_to_its_end_or_said_to_be_unknown() {
    let host = Host::start().await;
    let cutter = Cutter::start(host.address).await;
    let mut whole = 0;
    for allowed in (0..900).step_by(13) {
        cutter.allow(allowed);
        let client = connect(config(cutter.url(), Revision::V2025_11_25), ()).await;
        match call(&client, "echo", json!({"text": "cut me"})).await {
            Ok(answer) => {
                assert_eq!(said(Ok(answer)), "cut me");
                whole += 1;
            }
            // It was cut off before it said how to come back.
            Err(error @ (Error::Broken(_) | Error::OutcomeUnknown { .. })) => {
                assert_eq!((error.effect(), whole), (Effect::Unknown, 0), "{allowed}: {error}");
            }
            Err(error) => panic!("{allowed}: {error}"),
        }
        // The connection that is to be cut off may be the one that this goes over.
        let _ = client.close().await;
    }
    assert!(whole > 10, "{whole}");
    // However often its answer was cut off, a call ran once.
    assert_eq!(host.marks.count("echo"), (0..900).step_by(13).count());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asks_of_one_call_are_answered_side_by_side() {
    let host = Host::start().await;
    let owner = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = client(&host, Revision::V2025_11_25, owner.clone()).await;
    let all_at_once = async {
        // None of them is answered before all of them have begun.
        owner.until("five asks at once", |owner| owner.now() == 5).await;
        owner.allow(5);
    };
    let (answer, ()) = tokio::join!(call(&client, "fan", json!({"n": 5})), all_at_once);
    assert_eq!(said(answer), "[(0, Some(0)), (1, Some(1)), (2, Some(2)), (3, Some(3)), (4, Some(4))]");
}

#[tokio::test]
async fn asks_of_one_call_are_answered_one_by_one_if_wanted() {
    let host = Host::start().await;
    let owner = Counting::new(Pace::Sleep(Duration::from_millis(1)));
    let mut config = config(host.url(), Revision::V2025_11_25);
    config.order = Order::Strict;
    let client = connect(config, owner.clone()).await;
    call(&client, "fan", json!({"n": 20})).await.unwrap();
    assert_eq!((owner.peak(), owner.order().len()), (1, 20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_the_server_has_closed_is_opened_again_once() {
    let host = Host::start().await;
    let owner = Recorder::default();
    let client = client(&host, Revision::V2025_11_25, owner.clone()).await;
    let delete = http::Request::delete(host.url()).header("mcp-session-id", client.session_id().unwrap());
    let other = Http::new(&Timeouts::default(), &Limits::default());
    let deleted = within("DELETE", other.send(delete.body(Bytes::new()).unwrap())).await.unwrap();
    assert!(deleted.status().is_success());
    let echo = params("echo", &json!({"text": "a"}));
    let calls: Vec<_> = (0..20).map(|_| client.call("tools/call", Some(&echo)).unwrap()).collect();
    for call in calls {
        assert_eq!(said(within("an answer", call.answer()).await), "a");
    }
    host.heard("opened sessions", 2, |kind| *kind == Opened).await;
    assert_eq!(host.marks.count("echo"), 20);
    assert_eq!(owner.events(), [Event::SessionRenewed]);
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_at_the_server() {
    let host = Host::start().await;
    for (i, revision) in Revision::LEGACY.into_iter().enumerate() {
        let client = client(&host, revision, ()).await;
        let options = CallOptions { progress: true, ..CallOptions::default() };
        let mut call =
            client.call_with("tools/call", Some(&params("until_cancelled", &json!({}))), options).unwrap();
        assert!(matches!(within("progress", call.next()).await, Step::Notification(_)), "{revision}");
        drop(call);
        host.marks.reached("cancelled", i + 1).await;
    }
}
