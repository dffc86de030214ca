//! Answers that arrive in the response to another request of the session.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_client::{Client, Effect, Error, Event, Misrouting, StandaloneStream};
use tokio::task::JoinHandle;

use crate::support::{Recorder, Reply, Request, Server, Value, call, config, connect, json, value, within};

/// A server that never answers a call of `waits` itself. The script gets the answer and sends it
/// elsewhere.
async fn server(script: impl Fn(&Request, &Value) -> Option<Reply> + Send + Sync + 'static) -> Server {
    let waiting: Arc<Mutex<Option<Value>>> = Arc::default();
    Server::with_sessions(move |request| {
        if request.calls("waits") {
            *waiting.lock().expect("the id") = Some(request.body["id"].clone());
            return Some(Reply::default().hang());
        }
        let id = waiting.lock().expect("the id").clone();
        script(request, &json!({"jsonrpc": "2.0", "id": id, "result": {"of": "waits"}}))
    })
    .await
}

/// Starts the call of `waits`. Returns when the server has received it.
async fn begin(server: &Server, client: &Client) -> JoinHandle<Result<steadfast_client::Answer, Error>> {
    let client = client.clone();
    let waiting = tokio::spawn(async move { call(&client, "waits").await });
    server.until("the call", |log| log.iter().any(|request| request.calls("waits"))).await;
    waiting
}

async fn is_answered(waiting: JoinHandle<Result<steadfast_client::Answer, Error>>) {
    let answer = within("the answer", waiting).await.expect("it does not panic");
    assert_eq!(value(answer), json!({"of": "waits"}));
}

fn signs(handler: &Recorder) -> Vec<Misrouting> {
    let sign = |event: &Event| match event {
        Event::MisroutingSuspected(sign) => Some(*sign),
        _ => None,
    };
    handler.events().iter().filter_map(sign).collect()
}

#[tokio::test]
async fn an_answer_in_the_response_to_another_call_is_delivered() {
    let server = server(|request, answer| request.calls("carrier").then(|| Reply::json(answer))).await;
    let handler = Recorder::default();
    let client = connect(config(&server), handler.clone()).await;
    let waiting = begin(&server, &client).await;
    let error = call(&client, "carrier").await.unwrap_err();
    assert_eq!(error.effect(), Effect::Unknown);
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    is_answered(waiting).await;
    assert_eq!(signs(&handler), [Misrouting::AnswerInOtherResponse, Misrouting::ResponseWithoutAnswer]);
    // The client stops reading the call's own response, and sends no cancellation.
    server.until("the end of its response", |log| log.iter().any(|request| request.verb == "CLOSED")).await;
    assert_eq!(server.count(|request| request.method() == "notifications/cancelled"), 0);
}

/// Each response holds the answer to the other call.
#[tokio::test]
async fn swapped_answers_reach_their_calls() {
    let ids: Arc<Mutex<Vec<Value>>> = Arc::default();
    let server = Server::with_sessions(move |request| {
        if !request.calls("t") {
            return None;
        }
        let mut ids = ids.lock().expect("the ids");
        ids.push(request.body["id"].clone());
        // The ids of a client are consecutive.
        let own = request.body["id"].as_i64().expect("a number");
        let other = if ids.len() == 1 { own + 1 } else { own - 1 };
        let answer = json!({"jsonrpc": "2.0", "id": other, "result": {"of": other}});
        let both = |log: &[Request]| log.iter().filter(|request| request.calls("t")).count() == 2;
        Some(Reply::default().until(both).then(Reply::json(&answer)))
    })
    .await;
    let mut config = config(&server);
    // Only a client that loses an answer reaches this timeout.
    config.timeouts.misrouted = Duration::from_secs(60);
    let client = connect(config, ()).await;
    let (one, other) = tokio::join!(call(&client, "t"), call(&client, "t"));
    let (one, other) = (value(one)["of"].as_i64().unwrap(), value(other)["of"].as_i64().unwrap());
    assert_eq!(other, one + 1);
}

#[tokio::test]
async fn an_answer_in_the_response_to_a_notification_is_delivered() {
    let server =
        server(|request, answer| (request.method() == "notifications/carrier").then(|| Reply::json(answer)))
            .await;
    let client = connect(config(&server), ()).await;
    let waiting = begin(&server, &client).await;
    client.notify("notifications/carrier", None).await.unwrap();
    is_answered(waiting).await;
}

#[tokio::test]
async fn an_answer_on_the_standalone_stream_is_delivered() {
    let server = Server::with_sessions(|request| match request.verb.as_str() {
        "GET" => {
            let waits = |log: &[Request]| log.iter().any(|request| request.calls("waits"));
            // The ids of a client are 1, 2, …; `initialize` has the first.
            let answer = |id: i64| json!({"jsonrpc": "2.0", "id": id, "result": {"of": "waits"}});
            Some(Reply::stream().until(waits).event(&answer(1)).event(&answer(2)).event(&answer(2)).hang())
        }
        _ if request.calls("waits") => Some(Reply::default().hang()),
        _ if request.calls("t") => Some(Reply::result(request, &json!({}))),
        _ => None,
    })
    .await;
    let handler = Recorder::default();
    let mut config = config(&server);
    config.standalone_stream = StandaloneStream::Open;
    let client = connect(config, handler.clone()).await;
    is_answered(begin(&server, &client).await).await;
    assert_eq!(value(call(&client, "t").await), json!({}));
    // An answer to a finished call is no sign: the second answer came too late.
    assert_eq!(signs(&handler), [Misrouting::AnswerInOtherResponse]);
}

/// Every kind of response without an answer is a sign of misrouting.
#[tokio::test]
async fn a_response_without_an_answer_is_a_sign() {
    for reply in [Reply::status(200), Reply::status(202)] {
        let server = server(move |request, _| request.calls("t").then(|| reply.clone())).await;
        let handler = Recorder::default();
        let client = connect(config(&server), handler.clone()).await;
        assert!(matches!(call(&client, "t").await, Err(Error::OutcomeUnknown { .. })));
        assert_eq!(signs(&handler), [Misrouting::ResponseWithoutAnswer]);
        // The response to a notification needs no content.
        client.notify("notifications/x", None).await.unwrap();
        assert_eq!(signs(&handler), [Misrouting::ResponseWithoutAnswer]);
    }
}
