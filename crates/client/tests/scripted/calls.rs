//! Calls: notifications, limits and cancellation.

use std::time::Duration;

use steadfast_client::{CallEvent, CallOptions, Client, Effect, Error, Uri, Wait};

use crate::support::{Recorder, Reply, Request, Server, Value, call, config, connect, json, value, within};

/// A server whose tool `hang` sends one notification and never answers.
async fn hanging() -> Server {
    Server::with_sessions(|request| {
        let begun = json!({"jsonrpc": "2.0", "method": "notifications/begun"});
        request.calls("hang").then(|| Reply::stream().event(&begun).hang())
    })
    .await
}

fn cancellations(log: &[Request]) -> Vec<Value> {
    let all = log.iter().filter(|one| one.method() == "notifications/cancelled");
    all.map(|one| one.body["params"]["requestId"].clone()).collect()
}

async fn begin(client: &Client) -> steadfast_client::Call {
    let mut call = client.call("tools/call", Some(r#"{"name":"hang"}"#)).expect("there is room");
    assert!(matches!(within("the beginning", call.next()).await, CallEvent::Notification(_)));
    call
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled_at_the_server() {
    let server = hanging().await;
    let client = connect(config(&server), ()).await;
    let call = begin(&client).await;
    let id: Value = serde_json::from_str(&call.id().to_string()).unwrap();
    drop(call);
    server.until("the cancellation", |log| !cancellations(log).is_empty()).await;
    assert_eq!(cancellations(&server.log()), [id]);
    server.until("the end of the stream", |log| log.iter().any(|one| one.verb == "CLOSED")).await;
}

#[tokio::test]
async fn a_call_can_be_cancelled_from_another_task() {
    let server = hanging().await;
    let client = connect(config(&server), ()).await;
    let call = begin(&client).await;
    let canceller = call.canceller();
    let answer = tokio::spawn(call.answer());
    canceller.cancel();
    let answer = within("the end", answer).await.unwrap();
    assert_eq!(answer, Err(Error::Cancelled));
    server.until("the cancellation", |log| cancellations(log).len() == 1).await;
}

#[tokio::test]
async fn a_call_with_its_answer_is_not_cancelled() {
    let server =
        Server::with_sessions(|request| request.calls("t").then(|| Reply::result(request, &json!({})))).await;
    let client = connect(config(&server), ()).await;
    for _ in 0..20 {
        let call = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
        let canceller = call.canceller();
        value(within("the answer", call.answer()).await);
        canceller.cancel();
    }
    client.close().await.unwrap();
    assert_eq!(cancellations(&server.log()), Vec::<Value>::new());
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_cancelled() {
    let server = Server::with_sessions(|request| request.calls("t").then(|| Reply::default().hang())).await;
    let mut config = config(&server);
    config.timeouts.head = Duration::from_millis(50);
    let client = connect(config, ()).await;
    let error = call(&client, "t").await.unwrap_err();
    assert_eq!((error.effect(), error), (Effect::Unknown, Error::Timeout(Wait::Head)));
    server.until("the cancellation", |log| cancellations(log).len() == 1).await;
}

#[tokio::test]
async fn notifications_go_to_the_call_or_to_the_handler() {
    let note = |n: u32| json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": n}});
    let server = Server::with_sessions(move |request| match request {
        _ if request.calls("t") => {
            let token = &request.body["params"]["_meta"]["progressToken"];
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}});
            let stray = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "other", "progress": 1}});
            let events = Reply::stream().event(&note(1)).event(&progress).event(&stray).event(&note(2));
            Some(events.answer(request, &json!({})))
        }
        _ => None,
    })
    .await;
    let handler = Recorder::default();
    let client = connect(config(&server), handler.clone()).await;
    let options = CallOptions { progress: true, ..CallOptions::default() };
    let params = r#"{"name":"t","_meta":{"a":1.0,"progressToken":"mine"}}"#;
    let mut call = client.call_with("tools/call", Some(params), options).unwrap();
    let mut heard = Vec::new();
    while let CallEvent::Notification(notification) = within("a step", call.next()).await {
        let params: Value = serde_json::from_slice(&notification.params.unwrap()).unwrap();
        heard.push(params);
    }
    let token: Value = serde_json::from_str(&call.id().to_string()).unwrap();
    let log = server.log();
    let sent = log.iter().find(|one| one.calls("t")).unwrap();
    assert_eq!(sent.body["params"]["_meta"], json!({"a": 1.0, "progressToken": token}));
    let progress = |token: Value| json!({"progressToken": token, "progress": 1});
    assert_eq!(heard, [json!({"n": 1}), progress(token), progress(json!("other")), json!({"n": 2})]);
    assert_eq!(handler.notifications(), Vec::<String>::new());
}

#[tokio::test]
async fn progress_reaches_its_call_on_any_stream() {
    let server = Server::with_sessions(|request| match request {
        _ if request.calls("slow") => {
            let done = |log: &[Request]| log.iter().any(|one| one.method() == "notifications/go");
            Some(Reply::stream().until(done).answer(request, &json!({})))
        }
        _ if request.calls("other") => {
            let token = &request.body["params"]["arguments"]["token"];
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 1}});
            Some(Reply::stream().event(&progress).answer(request, &json!({})))
        }
        _ => None,
    })
    .await;
    let client = connect(config(&server), ()).await;
    let options = CallOptions { progress: true, ..CallOptions::default() };
    let mut slow = client.call_with("tools/call", Some(r#"{"name":"slow"}"#), options).unwrap();
    let params = format!(r#"{{"name":"other","arguments":{{"token":{}}}}}"#, slow.id());
    value(within("the other", client.call("tools/call", Some(&params)).unwrap().answer()).await);
    assert!(matches!(within("progress", slow.next()).await, CallEvent::Notification(_)));
    client.notify("notifications/go", None).await.unwrap();
    assert!(matches!(within("the end", slow.next()).await, CallEvent::Done(Ok(_))));
    assert_eq!(within("what comes after", slow.next()).await, CallEvent::Done(Err(Error::Closed)));
}

#[tokio::test]
async fn notifications_need_not_be_read() {
    let server = Server::with_sessions(|request| {
        let note = json!({"jsonrpc": "2.0", "method": "notifications/message"});
        let many = |request: &Request| {
            (0..1000).fold(Reply::stream(), |reply, _| reply.event(&note)).answer(request, &json!({}))
        };
        request.calls("t").then(|| many(request))
    })
    .await;
    let client = connect(config(&server), ()).await;
    value(call(&client, "t").await);
}

#[tokio::test]
async fn calls_are_bounded() {
    let server = hanging().await;
    let mut config = config(&server);
    config.limits.calls = 2;
    let client = connect(config, ()).await;
    let (first, _second) = (begin(&client).await, begin(&client).await);
    let refused = client.call("tools/list", None).unwrap_err();
    assert_eq!(refused, Error::TooManyCalls { limit: 2 });
    drop(first);
    // The call's permit is free once the server has received the cancellation.
    server.until("the cancellation", |log| cancellations(log).len() == 1).await;
    let again = async {
        while client.call("tools/list", None).is_err() {
            tokio::task::yield_now().await;
        }
    };
    within("a free place", again).await;
}

#[tokio::test]
async fn invalid_parameters_and_addresses_are_refused() {
    let server = hanging().await;
    let client = connect(config(&server), ()).await;
    for params in ["[]", "5", "", "{", "{}{}"] {
        assert_eq!(client.call("x", Some(params)).unwrap_err(), Error::BadParams, "{params}");
    }
    let mut config = config(&server);
    config.url = Uri::from_static("/mcp");
    let error = Client::connect(config, ()).await.unwrap_err();
    assert_eq!(error, Error::BadAddress("/mcp".to_owned()));
}

#[tokio::test]
async fn an_unreachable_server_has_no_effect() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{gone}/mcp").parse().unwrap();
    let error =
        within("the refusal", Client::connect(steadfast_client::Config::new(url), ())).await.unwrap_err();
    assert!(matches!(&error, Error::Connect(_)), "{error:?}");
    assert_eq!(error.effect(), Effect::None);
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_has_an_unknown_effect() {
    let server = Server::with_sessions(|request| request.calls("t").then(Reply::default)).await;
    let client = connect(config(&server), ()).await;
    let error = call(&client, "t").await.unwrap_err();
    assert!(matches!(&error, Error::Broken(_)), "{error:?}");
    assert_eq!(error.effect(), Effect::Unknown);
    assert_eq!(server.count(|one| one.calls("t")), 1);
}

#[tokio::test]
async fn heads_are_bounded() {
    let server = Server::with_sessions(|request| {
        let header = format!("x: {}\r\n", "x".repeat(20_000));
        request.calls("t").then(|| Reply::new(200, &header, "{}"))
    })
    .await;
    let mut config = config(&server);
    config.limits.head_bytes = 8 << 10;
    let client = connect(config, ()).await;
    let error = call(&client, "t").await.unwrap_err();
    assert!(matches!(&error, Error::Broken(why) if why.contains("too long")), "{error:?}");
}

#[tokio::test]
async fn a_connection_whose_stream_has_ended_is_reused() {
    const CALLS: usize = 40;
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            let answer = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": {}});
            // The stream ends long after the client has its answer.
            let count = |log: &[Request], what: &str| log.iter().filter(|one| one.method() == what).count();
            let told = move |log: &[Request]| count(log, "notifications/got") == count(log, "tools/call");
            Reply::chunked().chunk(&format!("data: {answer}\n\n")).until(told).end()
        })
    })
    .await;
    let client = connect(config(&server), ()).await;
    for _ in 0..CALLS {
        value(call(&client, "t").await);
        client.notify("notifications/got", None).await.unwrap();
        // A background task reads the end of the stream and may be late.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(server.connections() < CALLS, "each call had a connection of its own");
}
