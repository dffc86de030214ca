//! Guarantees of the client against a server built with the steadfast library.

use std::time::Duration;

use steadfast::SessionEventKind::{Closed, Opened};
use steadfast_client::transport::{Http, Transport as _};
use steadfast_client::{
    Answer, Backoff, Bytes, CallEvent, CallOptions, Client, ClientHandler, Config, Effect, Era, Error, Event,
    Limits, Revision, ServerRequestOrder, Timeouts, Uri,
};
use tokio::sync::Semaphore;

use super::cutter::Cutter;
use super::host::Host;
use crate::support::handler::Pace;
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

async fn client(host: &Host, revision: Revision, handler: impl ClientHandler) -> Client {
    connect(config(host.url(), revision), handler).await
}

fn params(tool: &str, arguments: &Value) -> String {
    json!({"name": tool, "arguments": arguments}).to_string()
}

/// The text in the result of a tool.
fn text_of(answer: Result<Answer, Error>) -> String {
    value(answer)["content"][0]["text"].as_str().expect("a text").to_owned()
}

async fn call(client: &Client, tool: &str, arguments: Value) -> Result<Answer, Error> {
    let call = client.call("tools/call", Some(&params(tool, &arguments))).expect("there is room");
    within("the answer", call.answer()).await
}

#[tokio::test]
async fn every_revision_is_supported() {
    let host = Host::start().await;
    for revision in Revision::LEGACY {
        let client = client(&host, revision, ()).await;
        assert_eq!(client.revision(), revision);
        assert_eq!(text_of(call(&client, "echo", json!({"text": "grüß\ngott"})).await), "grüß\ngott");
        let options = CallOptions { progress: true, ..CallOptions::default() };
        let mut working =
            client.call_with("tools/call", Some(&params("progress", &json!({"n": 3}))), options).unwrap();
        let mut steps = Vec::new();
        let answer = loop {
            match within("a step", working.next()).await {
                CallEvent::Notification(step) => {
                    let params: Value = serde_json::from_slice(&step.params.unwrap()).unwrap();
                    assert_eq!(params["progressToken"].to_string(), working.id().to_string());
                    steps.push(params["progress"].as_f64().unwrap());
                }
                CallEvent::Done(answer) => break answer,
            }
        };
        assert_eq!((steps, text_of(answer)), (vec![1.0, 2.0, 3.0], "3 steps".to_owned()), "{revision}");
        client.close().await.unwrap();
    }
    host.expect_events("opened sessions", 3, |kind| *kind == Opened).await;
    host.expect_events("closed sessions", 3, |kind| matches!(kind, Closed { .. })).await;
}

#[tokio::test]
async fn the_newest_revision_is_detected() {
    let host = Host::start().await;
    let client = connect(Config::new(host.url()), ()).await;
    assert!(client.revision() >= Revision::LATEST_LEGACY);
    assert_eq!(text_of(call(&client, "echo", json!({"text": "a"})).await), "a");
}

#[tokio::test]
async fn a_response_cut_at_any_byte_is_resumed_or_its_outcome_is_unknown() {
    let host = Host::start().await;
    let cutter = Cutter::start(host.address).await;
    let mut whole = 0;
    for allowed in (0..900).step_by(13) {
        cutter.allow(allowed);
        let client = connect(config(cutter.url(), Revision::V2025_11_25), ()).await;
        match call(&client, "echo", json!({"text": "cut me"})).await {
            Ok(answer) => {
                assert_eq!(text_of(Ok(answer)), "cut me");
                whole += 1;
            }
            // The response was cut off before it contained an event id.
            Err(error @ (Error::Broken(_) | Error::OutcomeUnknown { .. })) => {
                assert_eq!((error.effect(), whole), (Effect::Unknown, 0), "{allowed}: {error}");
            }
            Err(error) => panic!("{allowed}: {error}"),
        }
        // The DELETE may use the connection that is about to be cut.
        let _ = client.close().await;
    }
    assert!(whole > 10, "{whole}");
    // Each call ran once, however often its response was cut off.
    assert_eq!(host.marks.count("echo"), (0..900).step_by(13).count());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_requests_of_one_call_are_answered_concurrently() {
    let host = Host::start().await;
    let handler = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = client(&host, Revision::V2025_11_25, handler.clone()).await;
    let all_at_once = async {
        // The test answers none of them before all of them have started.
        handler.until("five concurrent server requests", |handler| handler.now() == 5).await;
        handler.allow(5);
    };
    let (answer, ()) = tokio::join!(call(&client, "fan", json!({"n": 5})), all_at_once);
    assert_eq!(text_of(answer), "[(0, Some(0)), (1, Some(1)), (2, Some(2)), (3, Some(3)), (4, Some(4))]");
}

#[tokio::test]
async fn server_requests_are_answered_one_by_one_in_strict_order() {
    let host = Host::start().await;
    let handler = Counting::new(Pace::Sleep(Duration::from_millis(1)));
    let mut config = config(host.url(), Revision::V2025_11_25);
    config.server_request_order = ServerRequestOrder::Strict;
    let client = connect(config, handler.clone()).await;
    call(&client, "fan", json!({"n": 20})).await.unwrap();
    assert_eq!((handler.peak(), handler.order().len()), (1, 20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_session_is_replaced_once() {
    let host = Host::start().await;
    let handler = Recorder::default();
    let client = client(&host, Revision::V2025_11_25, handler.clone()).await;
    let delete = http::Request::delete(host.url()).header("mcp-session-id", client.session_id().unwrap());
    let other = Http::new(&Timeouts::default(), &Limits::default());
    let deleted = within("DELETE", other.send(delete.body(Bytes::new()).unwrap())).await.unwrap();
    assert!(deleted.status().is_success());
    let echo = params("echo", &json!({"text": "a"}));
    let calls: Vec<_> = (0..20).map(|_| client.call("tools/call", Some(&echo)).unwrap()).collect();
    for call in calls {
        assert_eq!(text_of(within("an answer", call.answer()).await), "a");
    }
    host.expect_events("opened sessions", 2, |kind| *kind == Opened).await;
    assert_eq!(host.marks.count("echo"), 20);
    assert_eq!(handler.events(), [Event::SessionRenewed]);
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_at_the_server() {
    let host = Host::start().await;
    for (i, revision) in Revision::LEGACY.into_iter().enumerate() {
        let client = client(&host, revision, ()).await;
        let options = CallOptions { progress: true, ..CallOptions::default() };
        let mut call =
            client.call_with("tools/call", Some(&params("until_cancelled", &json!({}))), options).unwrap();
        assert!(matches!(within("progress", call.next()).await, CallEvent::Notification(_)), "{revision}");
        drop(call);
        host.marks.reached("cancelled", i + 1).await;
    }
}
