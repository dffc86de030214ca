//! ProcessPool of 2026-07-28, and programs that are asked whether they are.

use std::time::Duration;

use http_body_util::BodyExt as _;
use steadfast_client::{CallEvent, Era, Error, Revision};

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
        let client = connect(programs.transport("alone"), probing(), ()).await.unwrap();
        assert_eq!(client.revision(), revision, "{mode}");
        value(call(&client, "echo", json!({})).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_program_that_ignores_the_question_has_sessions() {
    let programs = programs(stdio("mute"));
    let child = programs.transport("alone");
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
    let client = connect(programs.transport("alone"), probing(), ()).await.unwrap();
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
        let client = connect(programs.transport("alone"), probing(), ()).await.unwrap();
        let params = r#"{"notifications":{"toolsListChanged":true}}"#;
        let mut call = client.call("subscriptions/listen", Some(params)).unwrap();
        let meta =
            json!({"io.modelcontextprotocol/subscriptionId": call.id().to_string().parse::<i64>().unwrap()});
        for method in ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"] {
            let CallEvent::Notification(note) = within(method, call.next()).await else {
                panic!("no {method}")
            };
            assert_eq!(note.method, method);
            let params: Value = serde_json::from_slice(&note.params.unwrap()).unwrap();
            assert_eq!(params["_meta"], meta);
        }
        let CallEvent::Done(answer) = within("the end", call.next()).await else { panic!("no end") };
        assert_eq!(value(answer), json!({"resultType": "complete", "_meta": meta}), "{mode}");
    }
}

/// The id of the process that answers a call without a session.
async fn pid(child: &steadfast_upstream::stdio::ProcessTransport) -> u64 {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}});
    let body = send(child, "POST", None, call).await.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice::<Value>(&body).unwrap()["result"]["pid"].as_u64().unwrap()
}

/// Lets so much time pass at once, for every timer that runs.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    // The clock stands still until all other tasks wait: those whose time has come have looked at
    // it by then.
    tokio::time::sleep(Duration::from_millis(1)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_process_without_sessions_ends_when_it_is_idle() {
    let stdio = stdio("modern");
    let idle = stdio.idle;
    let programs = programs(stdio);
    let child = programs.transport("stateless");
    let first = pid(&child).await;
    for _ in 0..4 {
        pass(idle / 2).await;
        assert_eq!(pid(&child).await, first, "it was needed in the meantime");
    }
    for _ in 0..3 {
        pass(idle).await;
    }
    gone(first).await;
    let second = pid(&child).await;
    assert_ne!(second, first, "the next request starts it again");
}

#[tokio::test]
async fn a_process_that_is_in_use_does_not_count_as_idle() {
    let stdio = stdio("modern");
    let idle = stdio.idle;
    let programs = programs(stdio);
    // A subscription, a call and a session.
    for body in [
        json!({"jsonrpc": "2.0", "id": 2, "method": "subscriptions/listen", "params": {"notifications": {}}}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "hang"}}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}),
    ] {
        let child = programs.transport("stateless");
        let first = pid(&child).await;
        let open = send(&child, "POST", None, body.clone()).await;
        for _ in 0..3 {
            pass(idle).await;
        }
        assert_eq!(pid(&child).await, first, "{body}");
        drop(open);
    }
}

/// What is asked for its revisions and has sessions is kept for a session, but not for longer than
/// anything else.
#[tokio::test]
async fn a_process_that_was_only_asked_ends_when_it_is_idle() {
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let mut stdio = stdio("good");
    stdio.program.environment.insert("STARTS".to_owned(), starts.display().to_string());
    let idle = stdio.idle;
    let programs = programs(stdio);
    let discover = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover"});
    send(&programs.transport("stateless"), "POST", None, discover).await;
    let first = std::fs::read_to_string(&starts).unwrap().trim().parse().unwrap();
    assert!(is_running(first), "it is kept for a session");
    for _ in 0..3 {
        pass(idle).await;
    }
    gone(first).await;
    let client = connect(programs.transport("session"), config(), ()).await.unwrap();
    assert_ne!(value(call(&client, "echo", json!({})).await)["pid"], first);
}

/// Nothing of what one client does without a session is seen in the session of another.
#[tokio::test]
async fn a_session_does_not_get_a_process_that_others_have_used() {
    let programs = programs(stdio("good"));
    let stateless = programs.transport("stateless");
    let first = pid(&stateless).await;
    let discover = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover"});
    send(&stateless, "POST", None, discover).await;
    let client = connect(programs.transport("session"), config(), ()).await.unwrap();
    assert_ne!(value(call(&client, "echo", json!({})).await)["pid"], first);
    assert_eq!(pid(&stateless).await, first);
}
