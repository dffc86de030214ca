//! Both protocol eras of one real server.

use steadfast_client::{
    Answer, BoxFuture, Bytes, Client, ClientHandler, Config, Era, Error, ErrorObject, Revision,
    ServerRequest, StandaloneStream, Uri,
};
use tokio::sync::Semaphore;

use super::server;
use crate::support::handler::Pace;
use crate::support::{Counting, Value, connect, json, value, within};

struct Filling;

impl ClientHandler for Filling {
    fn on_server_request(&self, server_request: ServerRequest) -> BoxFuture<'_, Result<Bytes, ErrorObject>> {
        let params: Value =
            serde_json::from_slice(&server_request.params.unwrap_or_default()).unwrap_or_default();
        let answer = json!({"action": "accept", "content": {"to": params["message"]}});
        Box::pin(async move { Ok(answer.to_string().into()) })
    }
}

async fn client(url: Uri, era: Era, handler: impl ClientHandler) -> Client {
    let mut config = Config::new(url);
    config.era = era;
    config.capabilities = r#"{"elicitation":{"form":{}}}"#.to_owned();
    config.standalone_stream = StandaloneStream::Open;
    connect(config, handler).await
}

async fn call(client: &Client, tool: &str, arguments: Value) -> Result<Answer, Error> {
    let params = json!({"name": tool, "arguments": arguments}).to_string();
    within("the answer", client.call("tools/call", Some(&params)).expect("there is room").answer()).await
}

fn text_of(answer: Result<Answer, Error>) -> String {
    value(answer)["content"][0]["text"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn the_server_is_detected_as_stateless() {
    let (url, _) = server::start().await;
    let client = client(url, Era::Probe, ()).await;
    assert_eq!(client.revision(), Revision::V2026_07_28);
    let server: Value = serde_json::from_slice(&client.server()).unwrap();
    assert!(server["capabilities"]["tools"].is_object(), "{server}");
}

#[tokio::test]
async fn headers_mirror_arguments() {
    let (url, _) = server::start().await;
    let client = client(url, Era::Stateless, ()).await;
    // The server refuses the first call because of a missing header, and the client corrects the
    // call.
    for region in ["us", " ü\n", "=?base64?eA==?=", ""] {
        assert_eq!(
            text_of(call(&client, "deploy", json!({"region": region})).await),
            json!(region).to_string()
        );
    }
    assert_eq!(text_of(call(&client, "deploy", json!({"region": null})).await), "null");
    let error = call(&client, "broken", json!({"region": 1})).await;
    assert!(matches!(error, Err(Error::UnusableTool { .. })), "{error:?}");
}

#[tokio::test]
async fn required_input_is_sent() {
    let (url, _) = server::start().await;
    let client = client(url, Era::Stateless, Filling).await;
    let brought: Value = serde_json::from_str(&text_of(call(&client, "form", json!({})).await)).unwrap();
    let answer = |to: &str| json!({"action": "accept", "content": {"to": to}});
    assert_eq!(brought, json!({"one": answer("One?"), "two": answer("Two?")}));
}

#[tokio::test]
async fn a_call_that_is_dropped_ends_at_the_server_in_both_eras() {
    let (url, mut news) = server::start().await;
    for era in [Era::Stateless, Era::Session(Revision::V2025_11_25)] {
        let client = client(url.clone(), era, ()).await;
        let call = client.call("tools/call", Some(r#"{"name":"until_cancelled"}"#)).unwrap();
        assert_eq!(within("the beginning", news.recv()).await, Some("begun"));
        drop(call);
        assert_eq!(within("the cancellation", news.recv()).await, Some("cancelled"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_requests_of_a_session_are_answered_concurrently() {
    let (url, _) = server::start().await;
    let handler = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = client(url, Era::Session(Revision::V2025_11_25), handler.clone()).await;
    let all_at_once = async {
        // The test answers none of them before all of them have started.
        handler.until("five concurrent server requests", |handler| handler.now() == 5).await;
        handler.allow(5);
    };
    let (answer, ()) = tokio::join!(call(&client, "fan", json!({"n": 5})), all_at_once);
    assert_eq!(text_of(answer), "5");
    client.close().await.unwrap();
}

#[tokio::test]
async fn every_revision_with_sessions_is_supported() {
    let (url, _) = server::start().await;
    for revision in Revision::LEGACY {
        let client = client(url.clone(), Era::Session(revision), ()).await;
        assert_eq!(client.revision(), revision);
        assert_eq!(text_of(call(&client, "deploy", json!({"region": "us"})).await), "\"us\"");
        client.close().await.unwrap();
    }
}
