//! However a call ends, its client gets exactly one answer or explicit error, and no client hangs.

use std::time::Duration;

use crate::support::session::said;
use crate::support::{Backing, Host, Session, Stream, Value, json, within};

crate::on_every_store!(
    a_handler_that_panics,
    a_handler_that_never_returns,
    the_session_is_deleted,
    the_server_ends_the_session,
    the_client_cancels,
    the_client_cancels_what_is_not_there,
    a_cancelled_call_in_a_batch_leaves_the_others,
    the_server_goes_down_and_the_call_is_done_in_time,
    the_server_goes_down_and_the_call_is_not_done_in_time,
    a_deleted_session_is_gone_for_every_verb,
    a_big_answer_arrives_whole,
);

/// The one message that is left on a stream, which must be an error of ours.
async fn error_on(stream: &mut Stream, id: impl Into<Value>) -> Value {
    let mut messages = stream.messages().await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    let message = messages.remove(0);
    assert_eq!((&message["id"], &message["error"]["code"]), (&id.into(), &json!(-32603)), "{message}");
    message["error"]["data"].clone()
}

async fn a_handler_that_panics(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut other = session.tool("other", "gate", json!({"name": "a", "text": "fine"})).stream().await;
    for id in 0..3 {
        let mut stream = session.tool(id, "panic", json!({})).stream().await;
        let reason = error_on(&mut stream, id).await;
        assert_eq!(reason, json!({"reason": "handler_panicked", "retryable": false}));
    }
    host.gates.open("a");
    assert_eq!(said(&other.message().await), "fine");
    assert_eq!(session.say(0, "echo", json!({"text": "still here"})).await, "still here");
}

async fn a_handler_that_never_returns(backing: Backing) {
    let deadline = Duration::from_secs(60);
    let host = Host::start(backing, move |builder| builder.call_deadline(deadline)).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "never", json!({})).stream().await;
    let mut polite = session.tool(2, "until_cancelled", json!({})).stream().await;
    host.gates.reached("never", 1).await;
    host.gates.reached("waiting to be cancelled", 1).await;
    host.sweep_after(deadline - Duration::from_millis(1)).await;
    assert_eq!(session.tool(1, "echo", json!({})).send().await.status, 400, "it is still in flight");
    host.sweep_after(Duration::from_millis(1)).await;
    let reason = json!({"reason": "deadline", "retryable": false});
    assert_eq!(error_on(&mut stream, 1).await, reason);
    assert_eq!(error_on(&mut polite, 2).await, reason, "what it says after its deadline is not sent");
    host.gates.reached("cancelled", 1).await;
    assert_eq!(session.say(1, "echo", json!({"text": "free"})).await, "free");
}

async fn the_session_is_deleted(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut listener = session.listen().stream().await;
    let mut polite = session.tool(1, "until_cancelled", json!({})).stream().await;
    let mut stubborn = session.tool(2, "never", json!({})).stream().await;
    host.gates.reached("waiting to be cancelled", 1).await;
    host.gates.reached("never", 1).await;
    assert_eq!(session.delete().send().await.status, 204);
    for (stream, id) in [(&mut polite, 1), (&mut stubborn, 2)] {
        let reason = error_on(stream, id).await;
        assert_eq!(reason, json!({"reason": "session_closed", "retryable": false}));
    }
    assert_eq!(listener.messages().await, Vec::<Value>::new());
    host.gates.reached("cancelled", 1).await;
}

async fn the_server_ends_the_session(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "never", json!({})).stream().await;
    host.gates.reached("never", 1).await;
    let handle = host.server().restore(session.session_id()).await.unwrap();
    handle.close().await.unwrap();
    assert_eq!(error_on(&mut stream, 1).await["reason"], "session_closed");
    assert_eq!(session.tool(2, "echo", json!({})).send().await.status, 404);
}

async fn the_client_cancels(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "until_cancelled", json!({})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    host.gates.reached("waiting to be cancelled", 1).await;
    assert_eq!(session.cancel(1).await.status, 202);
    assert_eq!(stream.rest().await, [], "the stream ends and has no answer");
    host.gates.reached("cancelled", 1).await;
    // Coming back does not bring one forth.
    assert_eq!(session.resume(&priming).stream().await.messages().await, Vec::<Value>::new());
    assert_eq!(session.say(1, "echo", json!({"text": "free"})).await, "free");
}

async fn the_client_cancels_what_is_not_there(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "gate", json!({"name": "a", "text": "done"})).stream().await;
    host.gates.reached("a", 1).await;
    for id in [json!("1"), json!(2), json!("x")] {
        assert_eq!(session.cancel(id).await.status, 202);
    }
    host.gates.open("a");
    assert_eq!(stream.messages().await.iter().map(said).collect::<Vec<_>>(), ["done"]);
    assert_eq!(session.cancel(1).await.status, 202, "too late, which is no fault");
}

async fn a_cancelled_call_in_a_batch_leaves_the_others(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::at(&host, "2025-03-26").await;
    let call = |id: u64, tool: &str, name: &str| {
        crate::support::session::tool_call(id, tool, json!({"name": name, "text": name}))
    };
    let batch = json!([call(1, "gate", "a"), call(2, "until_cancelled", ""), call(3, "gate", "b")]);
    let mut stream = session.post(&batch).stream().await;
    host.gates.reached("waiting to be cancelled", 1).await;
    assert_eq!(session.cancel(2).await.status, 202);
    host.gates.open("a");
    host.gates.open("b");
    let mut ids: Vec<_> = stream.messages().await.iter().map(|m| m["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 3]);
}

async fn the_server_goes_down_and_the_call_is_done_in_time(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut listener = session.listen().stream().await;
    let mut stream = session.tool(1, "gate", json!({"name": "a", "text": "in time"})).stream().await;
    host.gates.reached("a", 1).await;
    let server = host.server().clone();
    let drained = tokio::spawn(async move { server.drain(Duration::from_secs(3600)).await });
    let last_frames = listener.rest().await;
    assert_eq!(
        last_frames.last().and_then(|frame| frame.retry),
        Some(15_000),
        "listeners are told to come back, and not at the end of the hour"
    );
    for request in [session.tool(2, "echo", json!({})), session.listen()] {
        let reply = request.send().await;
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    }
    host.gates.open("a");
    assert_eq!(stream.messages().await.iter().map(said).collect::<Vec<_>>(), ["in time"]);
    within("the drain", drained).await.unwrap();
}

async fn the_server_goes_down_and_the_call_is_not_done_in_time(backing: Backing) {
    let mut host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "never", json!({})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    host.gates.reached("never", 1).await;
    within("the drain", host.server().drain(Duration::ZERO)).await;
    let reason = json!({"reason": "shutting_down", "retryable": false});
    assert_eq!(error_on(&mut stream, 1).await, reason);
    if backing.keeps() {
        host.restart().await;
        let mut resumed = session.via(&host).resume(&priming).stream().await;
        assert_eq!(error_on(&mut resumed, 1).await, reason, "it has its answer already");
    }
}

async fn a_deleted_session_is_gone_for_every_verb(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let event = session.tool(1, "echo", json!({})).send().await.frames()[0].id.clone().unwrap();
    assert_eq!(session.delete().send().await.status, 204);
    for request in [
        session.tool(1, "echo", json!({})),
        session.post(&json!({"jsonrpc": "2.0", "method": "notifications/tick"})),
        session.post(&json!({"jsonrpc": "2.0", "id": "ask-0", "result": {}})),
        session.listen(),
        session.resume(&event),
        session.delete(),
    ] {
        assert_eq!(request.send().await.refusal(), (404, -32600));
    }
}

async fn a_big_answer_arrives_whole(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    for bytes in [0, 1, 65_535, 3_000_000] {
        let text = session.say(1, "big", json!({"bytes": bytes})).await;
        assert_eq!(text.len(), bytes);
    }
}
