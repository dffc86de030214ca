//! Both eras of one real server.

use steadfast_client::{
    Answer, Ask, Boxed, Bytes, Client, Config, Era, Error, ErrorObject, Owner, Revision, Standalone, Uri,
};
use tokio::sync::Semaphore;

use super::server;
use crate::support::owner::Pace;
use crate::support::{Counting, Value, connect, json, value, within};

struct Filling;

impl Owner for Filling {
    fn answer(&self, ask: Ask) -> Boxed<'_, Result<Bytes, ErrorObject>> {
        let params: Value = serde_json::from_slice(&ask.params.unwrap_or_default()).unwrap_or_default();
        let answer = json!({"action": "accept", "content": {"to": params["message"]}});
        Box::pin(async move { Ok(answer.to_string().into()) })
    }
}

async fn client(url: Uri, era: Era, owner: impl Owner) -> Client {
    let mut config = Config::new(url);
    config.era = era;
    config.capabilities = r#"{"elicitation":{"form":{}}}"#.to_owned();
    config.standalone = Standalone::Held;
    connect(config, owner).await
}

async fn call(client: &Client, tool: &str, arguments: Value) -> Result<Answer, Error> {
    let params = json!({"name": tool, "arguments": arguments}).to_string();
    within("the answer", client.call("tools/call", Some(&params)).expect("there is room").answer()).await
}

fn said(answer: Result<Answer, Error>) -> String {
    value(answer)["content"][0]["text"].as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn the_server_is_found_to_be_stateless() {
    let (url, _) = server::start().await;
    let client = client(url, Era::Probe, ()).await;
    assert_eq!(client.revision(), Revision::V2026_07_28);
    let server: Value = serde_json::from_slice(&client.server()).unwrap();
    assert!(server["capabilities"]["tools"].is_object(), "{server}");
}

#[tokio::test]
async fn headers_are_mirrored_as_the_server_wants_them() {
    let (url, _) = server::start().await;
    let client = client(url, Era::Stateless, ()).await;
    // The first is refused for want of a header, and mended.
    for region in ["us", " ü\n", "=?base64?eA==?=", ""] {
        assert_eq!(said(call(&client, "deploy", json!({"region": region})).await), json!(region).to_string());
    }
    assert_eq!(said(call(&client, "deploy", json!({"region": null})).await), "null");
    let error = call(&client, "broken", json!({"region": 1})).await;
    assert!(matches!(error, Err(Error::UnusableTool { .. })), "{error:?}");
}

#[tokio::test]
async fn input_is_brought() {
    let (url, _) = server::start().await;
    let client = client(url, Era::Stateless, Filling).await;
    let brought: Value = serde_json::from_str(&said(call(&client, "form", json!({})).await)).unwrap();
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
async fn asks_of_a_session_are_answered_side_by_side() {
    let (url, _) = server::start().await;
    let owner = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = client(url, Era::Session(Revision::V2025_11_25), owner.clone()).await;
    let all_at_once = async {
        // None of them is answered before all of them have begun.
        owner.until("five asks at once", |owner| owner.now() == 5).await;
        owner.allow(5);
    };
    let (answer, ()) = tokio::join!(call(&client, "fan", json!({"n": 5})), all_at_once);
    assert_eq!(said(answer), "5");
    client.close().await.unwrap();
}

#[tokio::test]
async fn every_revision_with_sessions_is_spoken() {
    let (url, _) = server::start().await;
    for revision in Revision::LEGACY {
        let client = client(url.clone(), Era::Session(revision), ()).await;
        assert_eq!(client.revision(), revision);
        assert_eq!(said(call(&client, "deploy", json!({"region": "us"})).await), "\"us\"");
        client.close().await.unwrap();
    }
}
