//! Stateless calls that require input.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast_client::{
    BoxFuture, Bytes, ClientHandler, Error, ErrorObject, ServerRequest, ServerRequestOrder,
};
use tokio::sync::Semaphore;

use super::stateless::{complete, stateless};
use crate::support::handler::Pace;
use crate::support::{Counting, Reply, Request, Server, Value, call, connect, json, value};

fn require_input(request: &Request, keys: &[&str], state: Option<&str>) -> Reply {
    let one = |key: &&str| {
        (
            (*key).to_owned(),
            json!({"method": "elicitation/create", "params": {"n": key.parse::<u64>().unwrap_or(0)}}),
        )
    };
    let mut result = json!({"resultType": "input_required"});
    if !keys.is_empty() {
        result["inputRequests"] = Value::Object(keys.iter().map(one).collect());
    }
    if let Some(state) = state {
        result["requestState"] = json!(state);
    }
    Reply::result(request, &result)
}

/// The inputs and the state in each request of the tool.
fn received_input(server: &Server) -> Vec<(Value, Value)> {
    let log = server.log();
    let calls = log.iter().filter(|one| one.calls("t"));
    calls
        .map(|one| (one.body["params"]["inputResponses"].clone(), one.body["params"]["requestState"].clone()))
        .collect()
}

#[tokio::test]
async fn input_is_collected_and_sent_with_the_exact_state() {
    let round = AtomicUsize::new(0);
    let server = Server::stateless(move |request| {
        request.calls("t").then(|| match round.fetch_add(1, Ordering::SeqCst) {
            0 => require_input(request, &["1", "2", "3"], Some("{\"a\":  \"\\u00fc\"}")),
            1 => require_input(request, &["4"], None),
            2 => require_input(request, &[], Some("wait")),
            _ => complete(request),
        })
    })
    .await;
    let handler = Counting::new(Pace::Sleep(Duration::from_millis(20)));
    let client = connect(stateless(&server), handler.clone()).await;
    value(call(&client, "t").await);
    let n = |n: u64| json!({"n": n});
    let expect = [
        (json!(null), json!(null)),
        (json!({"1": n(1), "2": n(2), "3": n(3)}), json!("{\"a\":  \"\\u00fc\"}")),
        (json!({"4": n(4)}), json!(null)),
        (json!(null), json!("wait")),
    ];
    assert_eq!(received_input(&server), expect);
    assert_eq!(handler.peak(), 3);
    let log = server.log();
    let mut ids: Vec<_> = log.iter().map(|one| one.body["id"].as_i64()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), log.len());
}

#[tokio::test]
async fn inputs_obey_the_limit_and_the_order_of_server_requests() {
    let keys: Vec<String> = (1..=30).map(|n| format!("{n:02}")).collect();
    for (order, server_requests, peak) in
        [(ServerRequestOrder::Concurrent, 4, 4), (ServerRequestOrder::Strict, 64, 1)]
    {
        let keys = keys.clone();
        let server = Server::stateless(move |request| {
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            request.calls("t").then(|| match request.body["params"].get("inputResponses") {
                None => require_input(request, &keys, None),
                Some(_) => complete(request),
            })
        })
        .await;
        let handler = Counting::new(Pace::Sleep(Duration::from_millis(1)));
        let mut config = stateless(&server);
        (config.server_request_order, config.limits.server_requests) = (order, server_requests);
        let client = connect(config, handler.clone()).await;
        value(call(&client, "t").await);
        assert_eq!(handler.peak(), peak);
        assert_eq!(handler.order(), (1..=30).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn rounds_are_bounded() {
    let server =
        Server::stateless(|request| request.calls("t").then(|| require_input(request, &["1"], Some("s"))))
            .await;
    let mut config = stateless(&server);
    config.limits.rounds = 3;
    let handler = Counting::new(Pace::Sleep(Duration::ZERO));
    let client = connect(config, handler.clone()).await;
    assert_eq!(call(&client, "t").await, Err(Error::TooManyRounds { limit: 3 }));
    assert_eq!((server.count(|one| one.calls("t")), handler.order().len()), (4, 3));
}

struct Refusing;

impl ClientHandler for Refusing {
    fn on_server_request(&self, _ask: ServerRequest) -> BoxFuture<'_, Result<Bytes, ErrorObject>> {
        Box::pin(async { Err(ErrorObject::new(-1, "no")) })
    }
}

#[tokio::test]
async fn a_refused_input_ends_the_call() {
    let server =
        Server::stateless(|request| request.calls("t").then(|| require_input(request, &["k"], None))).await;
    let client = connect(stateless(&server), Refusing).await;
    let expect = Error::InputRefused { key: "k".to_owned(), message: "no".to_owned() };
    assert_eq!(call(&client, "t").await, Err(expect));
    assert_eq!(server.count(|one| one.calls("t")), 1);
}

#[tokio::test]
async fn cancelling_a_call_drops_its_input_requests() {
    let server =
        Server::stateless(|request| request.calls("t").then(|| require_input(request, &["1", "2"], None)))
            .await;
    let handler = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = connect(stateless(&server), handler.clone()).await;
    let call = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    handler.until("two inputs", |handler| handler.now() == 2).await;
    drop(call);
    handler.until("their end", |handler| handler.now() == 0).await;
    assert_eq!(handler.dropped(), 2);
}
