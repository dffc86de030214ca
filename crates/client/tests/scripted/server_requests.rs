//! Server requests: concurrent, bounded, in strict order if configured, answered once, and not at
//! all if cancelled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast_client::{
    Answer, BoxFuture, Bytes, Client, ClientHandler, Error, ErrorObject, Event, Limits, ServerRequest,
    ServerRequestOrder,
};
use tokio::sync::Semaphore;

use crate::support::handler::Pace;
use crate::support::{
    Counting, Recorder, Reply, Request, Server, Value, call, config, connect, json, value, within,
};

fn server_request(n: usize) -> Value {
    json!({"jsonrpc": "2.0", "id": n, "method": "sampling/createMessage", "params": {"n": n}})
}

fn answers(log: &[Request]) -> usize {
    log.iter().filter(|one| one.is_answer()).count()
}

/// A server whose tool `t` sends this many server requests, waits for as many answers, and returns.
async fn sending_requests(count: usize) -> Server {
    Server::with_sessions(move |request| {
        request.calls("t").then(|| {
            let server_requests =
                (0..count).fold(Reply::stream(), |reply, n| reply.event(&server_request(n)));
            server_requests.until(move |log| answers(log) == count).answer(request, &json!({"asked": count}))
        })
    })
    .await
}

/// The numbers in the answers, in order of arrival.
fn answered(server: &Server) -> Vec<u64> {
    let log = server.log();
    log.iter()
        .filter(|one| one.is_answer())
        .map(|one| {
            assert_eq!(one.body["id"], one.body["result"]["n"], "an answer went to another server request");
            assert_eq!(one.header("mcp-session-id"), Some("s1"));
            one.body["result"]["n"].as_u64().expect("a number")
        })
        .collect()
}

#[tokio::test]
async fn five_server_requests_run_concurrently() {
    let server = sending_requests(5).await;
    let handler = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = connect(config(&server), handler.clone()).await;
    let calling = tokio::spawn(async move { call(&client, "t").await });
    // The test answers none of them before all of them have started.
    handler.until("five concurrent server requests", |handler| handler.now() == 5).await;
    handler.allow(5);
    assert_eq!(value(within("the answer", calling).await.unwrap()), json!({"asked": 5}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_server_requests_run_64_at_a_time_and_none_is_lost() {
    let server = sending_requests(1000).await;
    let handler = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = connect(config(&server), handler.clone()).await;
    let calling = tokio::spawn(async move { call(&client, "t").await });
    handler.until("a full house", |handler| handler.now() == 64).await;
    // None of them is done, and no further request starts.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(handler.now(), 64);
    handler.allow(1000);
    assert_eq!(value(within("the answer", calling).await.unwrap()), json!({"asked": 1000}));
    assert_eq!((handler.peak(), handler.dropped()), (64, 0));
    let mut all = answered(&server);
    all.sort_unstable();
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_order_is_one_at_a_time_in_order_of_arrival() {
    let server = sending_requests(50).await;
    let handler = Counting::new(Pace::Sleep(Duration::ZERO));
    let mut config = config(&server);
    config.server_request_order = ServerRequestOrder::Strict;
    let client = connect(config, handler.clone()).await;
    value(call(&client, "t").await);
    let expect: Vec<_> = (0..50).collect();
    assert_eq!((handler.peak(), handler.order()), (1, expect.clone()));
    assert_eq!(answered(&server), expect);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_stops_the_stream() {
    const COUNT: usize = 1024;
    const SIZE: usize = 32 << 10;
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            let padding = "x".repeat(SIZE);
            let server_request =
                |n| json!({"jsonrpc": "2.0", "id": n, "method": "m", "params": {"n": n, "padding": padding}});
            let server_requests =
                (0..COUNT).fold(Reply::stream(), |reply, n| reply.event(&server_request(n)));
            server_requests.until(|log| answers(log) == COUNT).answer(request, &json!({}))
        })
    })
    .await;
    let handler = Counting::new(Pace::Leave(Semaphore::new(0)));
    let mut config = config(&server);
    config.limits = Limits { server_requests: 4, queued_server_requests: 4, ..Limits::default() };
    let client = connect(config, handler.clone()).await;
    let calling = tokio::spawn(async move { call(&client, "t").await });
    handler.until("a full house", |handler| handler.now() == 4).await;
    // Writing stops when the socket buffers are full.
    let mut written = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if std::mem::replace(&mut written, server.written()) == written {
            break;
        }
    }
    // The kernel decides how much the socket buffers hold.
    assert!(written < COUNT * SIZE, "the stream was read to its end");
    assert_eq!(handler.order().len(), 4);
    handler.allow(COUNT);
    value(within("the answer", calling).await.unwrap());
    assert_eq!((handler.order().len(), handler.peak()), (COUNT, 4));
}

#[tokio::test]
async fn a_cancelled_server_request_is_dropped_and_not_answered() {
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            let cancelled =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
            let server_requests = (0..3).fold(Reply::stream(), |reply, n| reply.event(&server_request(n)));
            server_requests
                .until(|log| log.iter().any(|one| one.method() == "notifications/go"))
                .event(&cancelled)
                .until(|log| answers(log) == 2)
                .answer(request, &json!({}))
        })
    })
    .await;
    let handler = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = connect(config(&server), handler.clone()).await;
    let calling = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    handler.until("three server requests", |handler| handler.now() == 3).await;
    client.notify("notifications/go", None).await.unwrap();
    handler.until("the end of one", |handler| handler.now() == 2).await;
    assert_eq!(handler.dropped(), 1);
    handler.allow(3);
    value(within("the answer", calling.answer()).await);
    let mut left = answered(&server);
    left.sort_unstable();
    assert_eq!(left, [0, 2]);
}

#[tokio::test]
async fn a_queued_server_request_that_is_cancelled_never_starts() {
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            let cancelled =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
            Reply::stream()
                .event(&server_request(0))
                .event(&server_request(1))
                .event(&cancelled)
                .event(&json!({"jsonrpc": "2.0", "method": "notifications/told"}))
                .until(|log| answers(log) == 1)
                .answer(request, &json!({}))
        })
    })
    .await;
    let handler = Counting::new(Pace::Leave(Semaphore::new(0)));
    let mut config = config(&server);
    config.server_request_order = ServerRequestOrder::Strict;
    let client = connect(config, handler.clone()).await;
    let mut calling = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    // The client has processed the cancellation before this notification.
    within("the notification", calling.next()).await;
    handler.allow(2);
    value(within("the answer", calling.answer()).await);
    assert_eq!((handler.order(), answered(&server)), (vec![0], vec![0]));
}

#[tokio::test]
async fn pings_are_answered_while_all_server_requests_wait() {
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            Reply::stream()
                .event(&server_request(0))
                .event(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}))
                .until(|log| {
                    log.iter().any(|one| one.body == json!({"jsonrpc": "2.0", "id": "p", "result": {}}))
                })
                .answer(request, &json!({}))
        })
    })
    .await;
    let handler = Counting::new(Pace::Leave(Semaphore::new(0)));
    let mut config = config(&server);
    config.limits.server_requests = 1;
    let client = connect(config, handler.clone()).await;
    value(call(&client, "t").await);
    assert_eq!(handler.order().len(), 1);
}

/// Fails to answer in each possible way.
struct FailingHandler;

impl ClientHandler for FailingHandler {
    fn on_server_request(&self, server_request: ServerRequest) -> BoxFuture<'_, Result<Bytes, ErrorObject>> {
        Box::pin(async move {
            match server_request.method.as_str() {
                "panic" => panic!("a handler that panics on purpose"),
                "rubbish" => Ok(Bytes::from_static(b"{")),
                _ => Err(ErrorObject::new(-1, "the user said no")),
            }
        })
    }
}

#[tokio::test]
async fn a_failing_handler_becomes_an_error_answer() {
    let methods = ["panic", "rubbish", "refuse"];
    let server = Server::with_sessions(move |request| {
        request.calls("t").then(|| {
            let server_request = |method: &str| json!({"jsonrpc": "2.0", "id": method, "method": method});
            let server_requests =
                methods.iter().fold(Reply::stream(), |reply, method| reply.event(&server_request(method)));
            server_requests.until(|log| answers(log) == 3).answer(request, &json!({}))
        })
    })
    .await;
    let client = connect(config(&server), FailingHandler).await;
    value(call(&client, "t").await);
    let log = server.log();
    let errors: BTreeMap<_, _> = log
        .iter()
        .filter(|one| one.is_answer())
        .map(|one| (one.body["id"].as_str().unwrap(), one.body["error"].to_string()))
        .collect();
    let expect = [
        ("panic", r#"{"code":-32603,"message":"the client's handler panicked"}"#),
        ("refuse", r#"{"code":-1,"message":"the user said no"}"#),
        (
            "rubbish",
            r#"{"code":-32603,"message":"the client's handler returned an answer that is not JSON"}"#,
        ),
    ];
    assert_eq!(errors, expect.map(|(id, error)| (id, error.to_owned())).into());
}

#[tokio::test]
async fn the_default_handler_answers_method_not_found() {
    let server = sending_requests(1).await;
    let client = connect(config(&server), ()).await;
    value(call(&client, "t").await);
    let log = server.log();
    let answer = log.iter().find(|one| one.is_answer()).unwrap();
    assert_eq!(answer.body["error"]["code"], -32601);
}

/// The connection breaks while the answer is sent. The server may not have it and must not wait in
/// vain.
#[tokio::test]
async fn an_answer_that_may_be_lost_is_retried() {
    // The server accepts the second copy, or refuses it because it has the first.
    for status in [202, 400] {
        let sent = AtomicUsize::new(0);
        let server = Server::with_sessions(move |request| match request {
            _ if request.calls("t") => Some(
                Reply::stream()
                    .event(&server_request(0))
                    .until(|log| answers(log) == 2)
                    .answer(request, &json!({})),
            ),
            _ if request.is_answer() && sent.fetch_add(1, Ordering::SeqCst) == 0 => Some(Reply::default()),
            _ if request.is_answer() => Some(Reply::status(status)),
            _ => None,
        })
        .await;
        let handler = Recorder::default();
        let client = connect(config(&server), handler.clone()).await;
        assert_eq!(value(within("the answer", call(&client, "t")).await), json!({}));
        let log = server.log();
        let texts: Vec<&str> =
            log.iter().filter(|one| one.is_answer()).map(|one| one.text.as_str()).collect();
        assert_eq!(texts.len(), 2);
        assert_eq!(texts[0], texts[1]);
        assert_eq!(handler.events(), []);
    }
}

#[tokio::test]
async fn a_refused_answer_is_reported_and_not_retried() {
    let server = Server::with_sessions(|request| match request {
        _ if request.calls("t") => Some(
            Reply::stream()
                .event(&server_request(0))
                .until(|log| answers(log) == 1)
                .answer(request, &json!({})),
        ),
        _ if request.is_answer() => Some(Reply::status(500)),
        _ => None,
    })
    .await;
    let handler = Recorder::default();
    let client = connect(config(&server), handler.clone()).await;
    value(call(&client, "t").await);
    handler.until("the event", |handler| !handler.events().is_empty()).await;
    let error = Error::Refused { status: 500, error: None, challenge: None };
    let call = server
        .log()
        .into_iter()
        .find(|request| request.calls("t"))
        .map(|request| request.body["id"].as_i64().unwrap().into());
    assert_eq!(handler.events(), [Event::AnswerLost { server_request: 0.into(), call, error }]);
    assert_eq!(server.count(Request::is_answer), 1);
}

#[tokio::test]
async fn closing_the_client_drops_server_requests() {
    let server = sending_requests(1).await;
    let handler = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client: Client = connect(config(&server), handler.clone()).await;
    let calling = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    handler.until("the server request", |handler| handler.now() == 1).await;
    client.close().await.unwrap();
    let answer: Result<Answer, Error> = within("the end", calling.answer()).await;
    assert_eq!(answer, Err(Error::Closed));
    handler.until("the end of the server request", |handler| handler.now() == 0).await;
    assert_eq!(server.count(Request::is_answer), 0);
}

#[tokio::test]
async fn server_requests_of_a_lost_session_are_dropped() {
    let server = Server::with_sessions(|request| match request {
        _ if request.calls("t") => Some(Reply::stream().event(&server_request(0)).hang()),
        _ if request.calls("u") && request.header("mcp-session-id") == Some("s1") => Some(Reply::status(404)),
        _ if request.calls("u") => Some(Reply::result(request, &json!({}))),
        _ => None,
    })
    .await;
    let handler = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = connect(config(&server), handler.clone()).await;
    let _asking = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    handler.until("the server request", |handler| handler.now() == 1).await;
    value(call(&client, "u").await);
    handler.until("its end", |handler| handler.now() == 0).await;
    assert_eq!((handler.dropped(), server.count(Request::is_answer)), (1, 0));
}
