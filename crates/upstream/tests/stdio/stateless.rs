//! Programs of 2026-07-28, and programs that are asked whether they are.

use http_body_util::BodyExt as _;
use steadfast_client::{Era, Error, Revision, Step};

use super::support::*;

fn probing() -> steadfast_client::Config {
    let mut config = config();
    config.era = Era::Probe;
    config
}

#[tokio::test]
async fn a_program_is_asked_which_revision_it_speaks() {
    for (mode, revision) in [
        ("modern", Revision::V2026_07_28),
        ("good", Revision::V2025_11_25),
        // It ends when it is asked, and is started again.
        ("touchy", Revision::V2025_11_25),
    ] {
        let programs = programs(stdio(mode));
        let client = connect(programs.child("alone"), probing(), ()).await.unwrap();
        assert_eq!(client.revision(), revision, "{mode}");
        value(call(&client, "echo", json!({})).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_that_ignores_the_question_has_sessions() {
    let programs = programs(stdio("mute"));
    let child = programs.child("alone");
    let discover = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover"});
    let response = send(&child, "POST", None, discover).await;
    assert_eq!(response.status(), 404);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let error = json!({"code": -32601, "message": "the program does not answer server/discover"});
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap()["error"], error);
    tokio::time::resume();
    let client = connect(child, config(), ()).await.unwrap();
    let seen = value(call(&client, "seen", json!({})).await);
    assert_eq!(seen["seen"][0], "server/discover", "it is the same process");
}

#[tokio::test]
async fn a_forsaken_request_is_cancelled() {
    let programs = programs(stdio("modern"));
    let client = connect(programs.child("alone"), probing(), ()).await.unwrap();
    let hanging = begin(&client, "hang", json!({}));
    let own = value(call(&client, "echo", json!({})).await)["id"].as_i64().unwrap() - 1;
    hanging.canceller().cancel();
    assert_eq!(within("the end", hanging.answer()).await, Err(Error::Cancelled));
    let expect = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": own}});
    within("the cancellation", async {
        loop {
            let seen = value(call(&client, "seen", json!({})).await);
            if seen["seen"].as_array().unwrap().contains(&expect) {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_subscription_gets_what_names_it() {
    for mode in ["modern-ends", "modern-cancels"] {
        let programs = programs(stdio(mode));
        let client = connect(programs.child("alone"), probing(), ()).await.unwrap();
        let params = r#"{"notifications":{"toolsListChanged":true}}"#;
        let mut call = client.call("subscriptions/listen", Some(params)).unwrap();
        let meta =
            json!({"io.modelcontextprotocol/subscriptionId": call.id().to_string().parse::<i64>().unwrap()});
        for method in ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"] {
            let Step::Notification(note) = within(method, call.next()).await else { panic!("no {method}") };
            assert_eq!(note.method, method);
            let params: Value = serde_json::from_slice(&note.params.unwrap()).unwrap();
            assert_eq!(params["_meta"], meta);
        }
        let Step::Done(answer) = within("the end", call.next()).await else { panic!("no end") };
        assert_eq!(value(answer), json!({"resultType": "complete", "_meta": meta}), "{mode}");
    }
}
