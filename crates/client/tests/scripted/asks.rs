//! Asks: side by side, bounded, in order if wanted, answered once, and not at all if cancelled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast_client::{Answer, Ask, Boxed, Bytes, Client, Error, ErrorObject, Event, Limits, Order, Owner};
use tokio::sync::Semaphore;

use crate::support::owner::Pace;
use crate::support::{
    Counting, Recorder, Reply, Request, Server, Value, call, config, connect, json, value, within,
};

fn ask(n: usize) -> Value {
    json!({"jsonrpc": "2.0", "id": n, "method": "sampling/createMessage", "params": {"n": n}})
}

fn answers(log: &[Request]) -> usize {
    log.iter().filter(|one| one.is_answer()).count()
}

/// A server whose tool `t` asks so many times, waits for as many answers, and is done.
async fn asking(count: usize) -> Server {
    Server::with_sessions(move |request| {
        request.calls("t").then(|| {
            let asks = (0..count).fold(Reply::stream(), |reply, n| reply.event(&ask(n)));
            asks.until(move |log| answers(log) == count).answer(request, &json!({"asked": count}))
        })
    })
    .await
}

/// The numbers in the answers, in the order of their arrival.
fn answered(server: &Server) -> Vec<u64> {
    let log = server.log();
    log.iter()
        .filter(|one| one.is_answer())
        .map(|one| {
            assert_eq!(one.body["id"], one.body["result"]["n"], "an answer went to another ask");
            assert_eq!(one.header("mcp-session-id"), Some("s1"));
            one.body["result"]["n"].as_u64().expect("a number")
        })
        .collect()
}

#[tokio::test]
async fn five_asks_run_at_the_same_time() {
    let server = asking(5).await;
    let owner = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = connect(config(&server), owner.clone()).await;
    let calling = tokio::spawn(async move { call(&client, "t").await });
    // None of them is answered before all of them have begun.
    owner.until("five asks at once", |owner| owner.now() == 5).await;
    owner.allow(5);
    assert_eq!(value(within("the answer", calling).await.unwrap()), json!({"asked": 5}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_asks_run_sixty_four_at_a_time_and_none_is_lost() {
    let server = asking(1000).await;
    let owner = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = connect(config(&server), owner.clone()).await;
    let calling = tokio::spawn(async move { call(&client, "t").await });
    owner.until("a full house", |owner| owner.now() == 64).await;
    // None of them is done, and yet no more are begun.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(owner.now(), 64);
    owner.allow(1000);
    assert_eq!(value(within("the answer", calling).await.unwrap()), json!({"asked": 1000}));
    assert_eq!((owner.peak(), owner.dropped()), (64, 0));
    let mut all = answered(&server);
    all.sort_unstable();
    assert_eq!(all, (0..1000).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strict_order_is_one_at_a_time_as_they_came() {
    let server = asking(50).await;
    let owner = Counting::new(Pace::Sleep(Duration::ZERO));
    let mut config = config(&server);
    config.order = Order::Strict;
    let client = connect(config, owner.clone()).await;
    value(call(&client, "t").await);
    let expect: Vec<_> = (0..50).collect();
    assert_eq!((owner.peak(), owner.order()), (1, expect.clone()));
    assert_eq!(answered(&server), expect);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_stops_the_stream() {
    const COUNT: usize = 1024;
    const SIZE: usize = 32 << 10;
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            let padding = "x".repeat(SIZE);
            let ask =
                |n| json!({"jsonrpc": "2.0", "id": n, "method": "m", "params": {"n": n, "padding": padding}});
            let asks = (0..COUNT).fold(Reply::stream(), |reply, n| reply.event(&ask(n)));
            asks.until(|log| answers(log) == COUNT).answer(request, &json!({}))
        })
    })
    .await;
    let owner = Counting::new(Pace::Leave(Semaphore::new(0)));
    let mut config = config(&server);
    config.limits = Limits { asks: 4, waiting_asks: 4, ..Limits::default() };
    let client = connect(config, owner.clone()).await;
    let calling = tokio::spawn(async move { call(&client, "t").await });
    owner.until("a full house", |owner| owner.now() == 4).await;
    // Nothing moves any more when the buffers of the sockets are full.
    let mut written = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if std::mem::replace(&mut written, server.written()) == written {
            break;
        }
    }
    // How much the buffers of the sockets hold is the kernel's business.
    assert!(written < COUNT * SIZE, "the stream was read to its end");
    assert_eq!(owner.order().len(), 4);
    owner.allow(COUNT);
    value(within("the answer", calling).await.unwrap());
    assert_eq!((owner.order().len(), owner.peak()), (COUNT, 4));
}

#[tokio::test]
async fn a_cancelled_ask_is_dropped_and_not_answered() {
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            let cancelled =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
            let asks = (0..3).fold(Reply::stream(), |reply, n| reply.event(&ask(n)));
            asks.until(|log| log.iter().any(|one| one.method() == "notifications/go"))
                .event(&cancelled)
                .until(|log| answers(log) == 2)
                .answer(request, &json!({}))
        })
    })
    .await;
    let owner = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = connect(config(&server), owner.clone()).await;
    let calling = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    owner.until("three asks", |owner| owner.now() == 3).await;
    client.notify("notifications/go", None).await.unwrap();
    owner.until("the end of one", |owner| owner.now() == 2).await;
    assert_eq!(owner.dropped(), 1);
    owner.allow(3);
    value(within("the answer", calling.answer()).await);
    let mut left = answered(&server);
    left.sort_unstable();
    assert_eq!(left, [0, 2]);
}

#[tokio::test]
async fn an_ask_that_is_cancelled_before_its_turn_is_never_begun() {
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            let cancelled =
                json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
            Reply::stream()
                .event(&ask(0))
                .event(&ask(1))
                .event(&cancelled)
                .event(&json!({"jsonrpc": "2.0", "method": "notifications/told"}))
                .until(|log| answers(log) == 1)
                .answer(request, &json!({}))
        })
    })
    .await;
    let owner = Counting::new(Pace::Leave(Semaphore::new(0)));
    let mut config = config(&server);
    config.order = Order::Strict;
    let client = connect(config, owner.clone()).await;
    let mut calling = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    // It has been told of the cancellation by the time that this comes.
    within("the notification", calling.next()).await;
    owner.allow(2);
    value(within("the answer", calling.answer()).await);
    assert_eq!((owner.order(), answered(&server)), (vec![0], vec![0]));
}

#[tokio::test]
async fn pings_are_answered_while_every_ask_waits() {
    let server = Server::with_sessions(|request| {
        request.calls("t").then(|| {
            Reply::stream()
                .event(&ask(0))
                .event(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}))
                .until(|log| {
                    log.iter().any(|one| one.body == json!({"jsonrpc": "2.0", "id": "p", "result": {}}))
                })
                .answer(request, &json!({}))
        })
    })
    .await;
    let owner = Counting::new(Pace::Leave(Semaphore::new(0)));
    let mut config = config(&server);
    config.limits.asks = 1;
    let client = connect(config, owner.clone()).await;
    value(call(&client, "t").await);
    assert_eq!(owner.order().len(), 1);
}

/// Answers in each of the ways that go wrong.
struct Clumsy;

impl Owner for Clumsy {
    fn answer(&self, ask: Ask) -> Boxed<'_, Result<Bytes, ErrorObject>> {
        Box::pin(async move {
            match ask.method.as_str() {
                "panic" => panic!("an owner that panics on purpose"),
                "rubbish" => Ok(Bytes::from_static(b"{")),
                _ => Err(ErrorObject::new(-1, "the user said no")),
            }
        })
    }
}

#[tokio::test]
async fn an_owner_that_fails_gives_an_answer_all_the_same() {
    let methods = ["panic", "rubbish", "refuse"];
    let server = Server::with_sessions(move |request| {
        request.calls("t").then(|| {
            let ask = |method: &str| json!({"jsonrpc": "2.0", "id": method, "method": method});
            let asks = methods.iter().fold(Reply::stream(), |reply, method| reply.event(&ask(method)));
            asks.until(|log| answers(log) == 3).answer(request, &json!({}))
        })
    })
    .await;
    let client = connect(config(&server), Clumsy).await;
    value(call(&client, "t").await);
    let log = server.log();
    let errors: BTreeMap<_, _> = log
        .iter()
        .filter(|one| one.is_answer())
        .map(|one| (one.body["id"].as_str().unwrap(), one.body["error"].to_string()))
        .collect();
    let expect = [
        ("panic", r#"{"code":-32603,"message":"the client failed to answer"}"#),
        ("refuse", r#"{"code":-1,"message":"the user said no"}"#),
        ("rubbish", r#"{"code":-32603,"message":"the client's answer is not JSON"}"#),
    ];
    assert_eq!(errors, expect.map(|(id, error)| (id, error.to_owned())).into());
}

#[tokio::test]
async fn an_owner_that_answers_nothing_says_that_it_knows_no_method() {
    let server = asking(1).await;
    let client = connect(config(&server), ()).await;
    value(call(&client, "t").await);
    let log = server.log();
    let answer = log.iter().find(|one| one.is_answer()).unwrap();
    assert_eq!(answer.body["error"]["code"], -32601);
}

/// The connection breaks while the answer is on its way: the server may have it, and must not wait for it in vain.
#[tokio::test]
async fn an_answer_that_may_be_lost_is_sent_again() {
    // Taken the second time, or known from the first.
    for status in [202, 400] {
        let sent = AtomicUsize::new(0);
        let server = Server::with_sessions(move |request| match request {
            _ if request.calls("t") => Some(
                Reply::stream().event(&ask(0)).until(|log| answers(log) == 2).answer(request, &json!({})),
            ),
            _ if request.is_answer() && sent.fetch_add(1, Ordering::SeqCst) == 0 => Some(Reply::default()),
            _ if request.is_answer() => Some(Reply::status(status)),
            _ => None,
        })
        .await;
        let owner = Recorder::default();
        let client = connect(config(&server), owner.clone()).await;
        assert_eq!(value(within("the answer", call(&client, "t")).await), json!({}));
        let log = server.log();
        let texts: Vec<&str> =
            log.iter().filter(|one| one.is_answer()).map(|one| one.text.as_str()).collect();
        assert_eq!(texts.len(), 2);
        assert_eq!(texts[0], texts[1]);
        assert_eq!(owner.events(), []);
    }
}

#[tokio::test]
async fn an_answer_that_is_refused_is_told_and_not_repeated() {
    let server = Server::with_sessions(|request| match request {
        _ if request.calls("t") => {
            Some(Reply::stream().event(&ask(0)).until(|log| answers(log) == 1).answer(request, &json!({})))
        }
        _ if request.is_answer() => Some(Reply::status(500)),
        _ => None,
    })
    .await;
    let owner = Recorder::default();
    let client = connect(config(&server), owner.clone()).await;
    value(call(&client, "t").await);
    owner.until("the event", |owner| !owner.events().is_empty()).await;
    let error = Error::Refused { status: 500, error: None, challenge: None };
    let call = server
        .log()
        .into_iter()
        .find(|request| request.calls("t"))
        .map(|request| request.body["id"].as_i64().unwrap().into());
    assert_eq!(owner.events(), [Event::AnswerLost { ask: 0.into(), call, error }]);
    assert_eq!(server.count(Request::is_answer), 1);
}

#[tokio::test]
async fn a_closed_client_lets_go_of_its_asks() {
    let server = asking(1).await;
    let owner = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client: Client = connect(config(&server), owner.clone()).await;
    let calling = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    owner.until("the ask", |owner| owner.now() == 1).await;
    client.close().await.unwrap();
    let answer: Result<Answer, Error> = within("the end", calling.answer()).await;
    assert_eq!(answer, Err(Error::Closed));
    owner.until("the end of the ask", |owner| owner.now() == 0).await;
    assert_eq!(server.count(Request::is_answer), 0);
}

#[tokio::test]
async fn the_asks_of_a_lost_session_are_dropped() {
    let server = Server::with_sessions(|request| match request {
        _ if request.calls("t") => Some(Reply::stream().event(&ask(0)).hang()),
        _ if request.calls("u") && request.header("mcp-session-id") == Some("s1") => Some(Reply::status(404)),
        _ if request.calls("u") => Some(Reply::result(request, &json!({}))),
        _ => None,
    })
    .await;
    let owner = Counting::new(Pace::Leave(Semaphore::new(0)));
    let client = connect(config(&server), owner.clone()).await;
    let _asking = client.call("tools/call", Some(r#"{"name":"t"}"#)).unwrap();
    owner.until("the ask", |owner| owner.now() == 1).await;
    value(call(&client, "u").await);
    owner.until("its end", |owner| owner.now() == 0).await;
    assert_eq!((owner.dropped(), server.count(Request::is_answer)), (1, 0));
}
