//! Streams that break before the answer.

use std::time::Duration;

use steadfast_client::{Call, CallEvent, CallOptions, Effect, Error};

use crate::support::{Recorder, Reply, Request, Server, Value, call, config, connect, json, value, within};

/// The `Last-Event-ID` values of all GETs.
fn last_event_ids(server: &Server) -> Vec<String> {
    let log = server.log();
    let gets = log.iter().filter(|request| request.verb == "GET");
    gets.map(|request| request.header("last-event-id").unwrap_or("-").to_owned()).collect()
}

/// A server whose call breaks off after `first`. The n-th GET gets the n-th reply of `later`;
/// further GETs get the last one. `$ANSWER` stands for the answer.
async fn breaking(first: Reply, later: Vec<Reply>) -> Server {
    let id = std::sync::Mutex::new(json!(null));
    let gets = std::sync::atomic::AtomicUsize::new(0);
    Server::with_sessions(move |request: &Request| {
        if request.calls("t") {
            *id.lock().expect("the id") = request.body["id"].clone();
            return Some(first.clone());
        }
        if request.verb != "GET" {
            return None;
        }
        let n = gets.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let reply = later.get(n).or_else(|| later.last()).cloned().unwrap_or_else(|| Reply::status(405));
        let id = id.lock().expect("the id").clone();
        Some(
            reply
                .replace("$ANSWER", &json!({"jsonrpc": "2.0", "id": id, "result": {"ok": true}}).to_string()),
        )
    })
    .await
}

/// The notifications of a call that succeeds.
async fn notifications_until_done(call: &mut Call) -> Vec<String> {
    let mut heard = Vec::new();
    loop {
        match within("the next step", call.next()).await {
            CallEvent::Notification(notification) => heard.push(notification.method),
            CallEvent::Done(answer) => {
                assert_eq!(value(answer), json!({"ok": true}));
                return heard;
            }
        }
    }
}

#[tokio::test]
async fn a_broken_stream_is_resumed_at_its_position() {
    let cases = [
        // Ended properly, cut within an event, and cut within a chunk.
        Reply::stream().send("id: a\ndata:\n\n"),
        Reply::stream().send("id: 0\ndata:\n\nid: a\ndata:\n\nid: lost\ndata: {\"jso"),
        Reply::chunked().chunk("id: a\ndata:\n\n").send("ff\r\nda"),
        // An id counts without data, and at any position in the event.
        Reply::stream().send("id: a\n\n"),
        Reply::stream().send("data:\nid: a\n\n"),
    ];
    for first in cases {
        let server = breaking(first, vec![Reply::stream().send("data: $ANSWER\n\n")]).await;
        let client = connect(config(&server), ()).await;
        assert_eq!(value(call(&client, "t").await), json!({"ok": true}));
        assert_eq!(last_event_ids(&server), ["a"]);
        let log = server.log();
        let get = log.iter().find(|request| request.verb == "GET").unwrap();
        assert_eq!(get.header("mcp-session-id"), Some("s1"));
        assert_eq!(get.header("mcp-protocol-version"), Some("2025-11-25"));
        assert_eq!(get.header("accept"), Some("text/event-stream"));
        assert_eq!(server.count(|request| request.calls("t")), 1);
    }
}

#[tokio::test]
async fn a_stream_may_break_many_times_without_duplicates() {
    let note = |n: u32| format!("data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/n{n}\"}}\n\n");
    let first = Reply::stream().send(&format!("id: a\n{}", note(1)));
    let later = vec![
        Reply::stream().send(&format!("id: b\n{}id: c\n{}", note(2), note(3))),
        Reply::status(503),
        // A stream may end without any event: the client polls.
        Reply::stream(),
        Reply::stream().send(&note(4)).send("data: $ANSWER\n\n"),
    ];
    let server = breaking(first, later).await;
    let client = connect(config(&server), ()).await;
    let mut call = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    let heard = notifications_until_done(&mut call).await;
    assert_eq!(heard, [1, 2, 3, 4].map(|n| format!("notifications/n{n}")));
    assert_eq!(last_event_ids(&server), ["a", "c", "c", "c"]);
}

/// Some servers, such as rmcp, resume with the event that the client names instead of the one after
/// it.
#[tokio::test]
async fn a_repeated_event_is_delivered_once() {
    let message = |id: &str, message: &Value| format!("id: {id}\ndata: {message}\n\n");
    let server_request = message("b", &json!({"jsonrpc": "2.0", "id": "x", "method": "roots/list"}));
    let note = |n: u32| json!({"jsonrpc": "2.0", "method": format!("notifications/n{n}")});
    let first = Reply::stream().send("id: a\nretry: 1\ndata:\n\n").send(&server_request);
    // The client has answered the server request before the server repeats it.
    let is_answered = |log: &[Request]| log.iter().any(Request::is_answer);
    let later = vec![
        Reply::stream().until(is_answered).send(&server_request).send(&message("c", &note(1))),
        Reply::stream().send(&message("c", &note(1))).send(&message("d", &note(2))),
        Reply::stream().send(&message("d", &note(2))).send("id: e\ndata: $ANSWER\n\n"),
    ];
    let server = breaking(first, later).await;
    let client = connect(config(&server), Recorder::default()).await;
    let mut call = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    let heard = notifications_until_done(&mut call).await;
    assert_eq!(heard, ["notifications/n1", "notifications/n2"]);
    assert_eq!(last_event_ids(&server), ["b", "c", "d"]);
    // Everything that was sent earlier has arrived before this notification.
    client.notify("notifications/after", None).await.unwrap();
    assert_eq!(server.count(Request::is_answer), 1);
}

#[tokio::test]
async fn the_server_says_how_long_to_wait() {
    let first = Reply::stream().send("id: a\nretry: 200\ndata:\n\n");
    let server = breaking(first, vec![Reply::stream().send("data: $ANSWER\n\n")]).await;
    let mut config = config(&server);
    // The client's own backoff would exceed the timeout in `call`.
    (config.backoff.first, config.backoff.longest) = (Duration::from_secs(600), Duration::from_secs(600));
    let client = connect(config, ()).await;
    let start = tokio::time::Instant::now();
    value(call(&client, "t").await);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(200), "{waited:?}");
}

/// Checks the error, and how many times the client tried to resume.
async fn check_unknown(first: Reply, later: Vec<Reply>, expect: &str, gets: usize) {
    let server = breaking(first, later).await;
    let client = connect(config(&server), ()).await;
    let error = call(&client, "t").await.expect_err("there is no answer");
    assert_eq!(error, Error::OutcomeUnknown { why: expect.to_owned() });
    assert_eq!(error.effect(), Effect::Unknown);
    assert_eq!(server.count(|request| request.verb == "GET"), gets);
    // The client never repeats the call, because the server may have executed it.
    assert_eq!(server.count(|request| request.calls("t")), 1);
}

#[tokio::test]
async fn a_stream_that_cannot_be_resumed_has_an_unknown_outcome() {
    let primed = || Reply::stream().send("id: a\ndata:\n\n");
    check_unknown(Reply::stream(), vec![], "the stream ended, and it cannot be resumed", 0).await;
    // An empty id clears the last id.
    let withdrawn = primed().send("id:\ndata:\n\n");
    check_unknown(withdrawn, vec![], "the stream ended, and it cannot be resumed", 0).await;
    for status in [400, 401, 404, 405] {
        let why = format!("the stream broke, and resuming was refused with status {status} x");
        let why = why.replace(" x", &http_reason(status));
        check_unknown(primed(), vec![Reply::status(status)], &why, 1).await;
    }
    let no_stream = Reply::json(&json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    check_unknown(
        primed(),
        vec![no_stream],
        "the stream broke, and the response to the resumption is not a stream",
        1,
    )
    .await;
    let why = "resuming was refused with status 503 Service Unavailable, too many times in a row";
    check_unknown(primed(), vec![Reply::status(503)], why, 4).await;
    let why = "resuming was refused with status 409 Conflict, too many times in a row";
    check_unknown(primed(), vec![Reply::status(409)], why, 4).await;
}

/// Servers that allow one reader per stream refuse the next one until they notice that the old
/// connection was cut.
#[tokio::test]
async fn a_stream_with_another_reader_is_retried() {
    let later = vec![
        Reply::status(409),
        Reply::status(409),
        Reply::status(409),
        Reply::stream().send("data: $ANSWER\n\n"),
    ];
    let server = breaking(Reply::stream().send("id: a\ndata:\n\n"), later).await;
    let client = connect(config(&server), ()).await;
    assert_eq!(value(call(&client, "t").await), json!({"ok": true}));
    assert_eq!(last_event_ids(&server), ["a", "a", "a", "a"]);
}

fn http_reason(status: u16) -> String {
    match status {
        400 => " Bad Request",
        401 => " Unauthorized",
        404 => " Not Found",
        _ => " Method Not Allowed",
    }
    .to_owned()
}

/// A server that has lost the stream of a call may respond with an empty stream, as rmcp does.
#[tokio::test]
async fn a_stream_that_is_always_empty_is_given_up() {
    let primed = || Reply::stream().send("id: a\nretry: 1\ndata:\n\n");
    let why = |end: &str| format!("{end}, and each resumption ended without an event");
    check_unknown(primed(), vec![Reply::stream()], &why("the stream ended"), 3).await;
    // An event without data counts as polling. A comment does not.
    let later = vec![Reply::stream(), Reply::stream(), primed(), Reply::stream().send(": hello\n\n")];
    check_unknown(primed(), later, &why("the stream ended"), 6).await;
    // Failed attempts in between do not reset the count.
    let later = vec![Reply::stream(), Reply::status(503), Reply::stream()];
    check_unknown(primed(), later, &why("the stream ended"), 4).await;
    let server = breaking(primed(), vec![Reply::chunked()]).await;
    let client = connect(config(&server), ()).await;
    let error = call(&client, "t").await.expect_err("there is no answer");
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "broken, and not ended: {error}");
    assert_eq!(last_event_ids(&server), ["a", "a", "a"]);
}

#[tokio::test]
async fn endless_polling_ends_at_the_call_timeout() {
    let primed = Reply::stream().send("id: a\nretry: 1\ndata:\n\n");
    let server = breaking(primed.clone(), vec![primed]).await;
    let client = connect(config(&server), ()).await;
    let options = CallOptions { timeout: Some(Duration::from_millis(200)), ..CallOptions::default() };
    let call = client.call_with("tools/call", Some(r#"{"name":"t"}"#), options).unwrap();
    let id = call.id().clone();
    let answer = within("the deadline", call.answer()).await;
    assert_eq!(answer, Err(Error::Timeout(steadfast_client::Wait::Call)));
    assert!(server.count(|request| request.verb == "GET") > 4);
    let cancelled = json!({"requestId": serde_json::from_str::<Value>(&id.to_string()).unwrap()});
    server
        .until("the cancellation", |log| {
            log.iter().any(|one| one.method() == "notifications/cancelled" && one.body["params"] == cancelled)
        })
        .await;
}
