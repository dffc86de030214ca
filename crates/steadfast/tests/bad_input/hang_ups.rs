//! Clients that hang up. A server drops the future of their request, wherever it is; whatever it
//! had begun is done nevertheless, and nothing is left behind that would be in the way of the next
//! request.

use std::task::Poll;

use serde_json::json;
use steadfast::Limits;

use crate::on_every_store;
use crate::support::{Backing, Host, Session, session, within};

/// Requests have fewer points than this at which they wait.
const MOST_WAITS: usize = 8;

fn request(session: &Session, verb: &str, body: String) -> http::Request<String> {
    http::Request::builder()
        .method(verb)
        .uri("/mcp")
        .header("host", "localhost")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-session-id", &session.id)
        .body(body)
        .expect("a request")
}

/// Handles a request until it has waited so many times, then drops it. `true` if it was done
/// before.
async fn hang_up_after(host: &Host, waits: usize, request: http::Request<String>) -> bool {
    let endpoint = host.server().service();
    let mut handling = Box::pin(endpoint.handle(request));
    let mut left = waits;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        handling.as_mut().poll(context).map(|_| true)
    })
    .await
}

/// The id of a call is free again, at the latest when the call is done.
async fn calls_are_answered(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::at(&host, "2025-03-26").await;
    let call = |id: &str| session::tool_call(id, "echo", json!({"text": "x"}));
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/custom"});
    for waits in 0..MOST_WAITS {
        hang_up_after(&host, waits, request(&session, "POST", call("one").to_string())).await;
        let batch = json!([call("two"), notification, call("three")]);
        hang_up_after(&host, waits, request(&session, "POST", batch.to_string())).await;
    }
    for id in ["one", "two", "three"] {
        let free = async { while session.post(&call(id)).send().await.status != 200 {} };
        within(&format!("the end of the call {id}"), free).await;
    }
    // Had one of them never ended, the session would not be idle now.
    host.sweep_after(std::time::Duration::from_secs(30 * 24 * 60 * 60)).await;
    assert_eq!(session.notify("notifications/custom", json!({})).await.status, 404);
}

/// Checks that a stream without a reader can be read by another client.
async fn streams_are_left(backing: Backing) {
    let limits = Limits { standalone_streams: 1, ..Limits::default() };
    let host = Host::start(backing, move |builder| builder.limits(limits.clone())).await;
    let session = Session::open(&host).await;
    for waits in 0..MOST_WAITS {
        hang_up_after(&host, waits, request(&session, "GET", String::new())).await;
    }
    let free = async { while session.listen().leave().await.status().await != 200 {} };
    within("a stream to listen to", free).await;
}

/// A session is opened as a whole or not at all.
async fn sessions_are_opened(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut done = 0;
    for waits in 0..MOST_WAITS {
        let open = session::initialize(session::REVISION).to_string();
        done += u64::from(hang_up_after(&host, waits, request(&session, "POST", open)).await);
    }
    let usage = host.server().service().engine().store().usage().await.expect("the store works");
    assert!((done + 1..=MOST_WAITS as u64 + 1).contains(&usage.sessions), "{usage:?} of {done}");
    session.call(1, "echo", json!({})).await;
}

on_every_store!(calls_are_answered, streams_are_left, sessions_are_opened);
