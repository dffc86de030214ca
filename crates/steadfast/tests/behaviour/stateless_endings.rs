//! 2026-07-28: however a request ends, it ends in one answer, or with its connection. No response
//! can be resumed here, as the specification has it; `stateless_resume` has the others.

use std::time::Duration;

use steadfast::SessionEventKind::Detached;

use crate::support::session::said;
use crate::support::{Backing, Builder, Host, Modern, Session, Value, json, within};

/// Waits until no request is in flight and no client is subscribed.
pub(crate) async fn nothing_is_left(host: &Host) {
    let engine = host.server().service().engine().clone();
    let idle = async {
        while engine.exchanges() + engine.subscriptions() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within("the end of all requests", idle).await;
}

async fn host() -> Host {
    host_with(|builder| builder).await
}

async fn host_with(configure: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Host {
    Host::start(Backing::Memory, move |builder| {
        // What ignores its cancellation is dropped soon.
        configure(builder.resume_grace(Duration::ZERO).wind_down(Duration::from_millis(20)))
    })
    .await
}

fn reason(answer: &Value) -> &Value {
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    &answer["error"]["data"]
}

#[tokio::test]
async fn a_client_that_goes_before_the_head_cancels() {
    let host = host().await;
    let unread = Modern::to(&host).tool(1, "until_cancelled", json!({})).leave().await;
    host.gates.reached("waiting to be cancelled", 1).await;
    assert_eq!(host.gates.count("cancelled"), 0);
    drop(unread);
    host.gates.reached("cancelled", 1).await;
    nothing_is_left(&host).await;
}

#[tokio::test]
async fn a_client_that_goes_in_the_middle_of_a_stream_cancels() {
    let host = host().await;
    let client = Modern::to(&host).meta("progressToken", 1);
    let steps = json!({"steps": ["progress", "until_cancelled", "progress", "mark:wound down"]});
    let mut stream = client.tool(1, "steps", steps).stream().await;
    stream.message().await;
    host.gates.reached("waiting to be cancelled", 1).await;
    assert_eq!(host.gates.count("cancelled"), 0);
    stream.cut();
    host.gates.reached("wound down", 1).await;
    nothing_is_left(&host).await;
}

#[tokio::test]
async fn a_handler_that_ignores_its_cancellation_is_dropped() {
    let host = host().await;
    let unread = Modern::to(&host).tool(1, "never", json!({})).leave().await;
    host.gates.reached("never", 1).await;
    drop(unread);
    host.gates.reached("never dropped", 1).await;
    nothing_is_left(&host).await;
}

#[tokio::test]
async fn a_client_of_a_session_that_goes_cancels_nothing() {
    let host = host().await;
    let session = Session::open(&host).await;
    let stream = session.tool(1, "until_cancelled", json!({})).stream().await;
    host.gates.reached("waiting to be cancelled", 1).await;
    stream.cut();
    host.heard.once(&session, Detached).await;
    // Long enough for the other era, where this takes no time.
    let modern = Modern::to(&host).tool(1, "until_cancelled", json!({})).leave().await;
    host.gates.reached("waiting to be cancelled", 2).await;
    drop(modern);
    host.gates.reached("cancelled", 1).await;
    nothing_is_left(&host).await;
    assert_eq!(host.gates.count("cancelled"), 1, "the call of the session goes on");
    session.cancel(1).await;
    host.gates.reached("cancelled", 2).await;
}

#[tokio::test]
async fn a_handler_that_never_returns_meets_its_deadline() {
    let deadline = Duration::from_secs(60);
    let host = host_with(move |builder| builder.call_deadline(deadline)).await;
    let client = Modern::to(&host);
    let eager = client.clone().meta("progressToken", 1);
    let deaf = client.tool(1, "never", json!({})).leave().await;
    let polite = client.tool(2, "until_cancelled", json!({})).leave().await;
    let begun = json!({"steps": ["progress", "until_cancelled", "progress"]});
    let mut begun = eager.tool(3, "steps", begun).stream().await;
    let (mut subscription, _) = client.subscribe(4, json!({"toolsListChanged": true})).await;
    host.gates.reached("never", 1).await;
    host.gates.reached("waiting to be cancelled", 2).await;
    host.sweep_after(deadline - Duration::from_millis(1)).await;
    assert_eq!(host.gates.count("cancelled"), 0);
    host.sweep_after(Duration::from_millis(1)).await;
    let late = json!({"reason": "deadline", "retryable": false});
    for (id, unread) in [(1, deaf), (2, polite)] {
        let reply = unread.reply().await;
        assert_eq!((reply.status, reply.is_stream()), (200, false));
        assert_eq!(reply.json()["id"], id);
        assert_eq!(reason(&reply.json()), &late);
    }
    let messages = begun.messages().await;
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!(reason(&messages[1]), &late);
    host.gates.reached("cancelled", 2).await;
    host.gates.reached("never dropped", 1).await;
    // A subscription is there to wait.
    client.say(5, "announce", json!({"what": "tools"})).await;
    assert_eq!(subscription.message().await["method"], "notifications/tools/list_changed");
}

#[tokio::test]
async fn a_handler_that_panics_fails_its_request_and_no_other() {
    let host = host().await;
    let client = Modern::to(&host).meta("progressToken", 1);
    let other = client.tool(1, "gate", json!({"name": "a", "text": "fine"})).leave().await;
    let panicked = json!({"reason": "handler_panicked", "retryable": false});
    let reply = client.tool(1, "panic", json!({})).send().await;
    assert_eq!((reply.status, reply.json()["id"].clone()), (200, json!(1)));
    assert_eq!(reason(&reply.json()), &panicked);
    let messages = client.tool(2, "steps", json!({"steps": ["progress", "panic"]})).send().await.messages();
    assert_eq!(messages.len(), 2);
    assert_eq!(reason(&messages[1]), &panicked);
    host.gates.open("a");
    assert_eq!(said(&other.reply().await.answer()), "fine");
    // A factory that fails is the same to the client.
    host.gates.mark("broken factory");
    let reply = client.tool(3, "echo", json!({})).send().await;
    assert_eq!(reason(&reply.json()), &panicked);
}

#[tokio::test]
async fn a_server_that_goes_down_lets_requests_finish() {
    let host = host().await;
    let client = Modern::to(&host);
    let slow = client.tool(1, "gate", json!({"name": "a", "text": "in time"})).leave().await;
    host.gates.reached("a", 1).await;
    let server = host.server().clone();
    let drained = tokio::spawn(async move { server.drain(Duration::from_secs(30)).await });
    let refused = async {
        loop {
            let reply = client.tool(2, "echo", json!({})).send().await;
            if reply.status != 200 {
                return reply;
            }
        }
    };
    let refused = within("a refusal", refused).await;
    assert_eq!((refused.refusal(), refused.header("retry-after")), ((503, -32603), Some("1")));
    assert_eq!(refused.json()["id"], 2);
    host.gates.open("a");
    assert_eq!(said(&slow.reply().await.answer()), "in time");
    within("the drain", drained).await.expect("the drain ends");
}

#[tokio::test]
async fn a_server_that_goes_down_fails_what_takes_too_long() {
    let host = host().await;
    let client = Modern::to(&host).meta("progressToken", 1);
    let deaf = client.tool(1, "never", json!({})).leave().await;
    let mut begun = client.tool(2, "steps", json!({"steps": ["progress", "gate:a"]})).stream().await;
    host.gates.reached("never", 1).await;
    host.gates.reached("a", 1).await;
    within("the drain", host.server().drain(Duration::ZERO)).await;
    let going = json!({"reason": "shutting_down", "retryable": false});
    assert_eq!(reason(&deaf.reply().await.json()), &going);
    assert_eq!(reason(&begun.messages().await[1]), &going);
}

/// Requests that come in the very moment of the end are answered or refused, too: none of them
/// would end by itself.
#[tokio::test]
async fn a_server_that_goes_down_forgets_no_client() {
    for round in 0..8 {
        let host = host().await;
        let client = Modern::to(&host);
        let mut clients = tokio::task::JoinSet::new();
        for id in 0..30 {
            let client = client.clone();
            clients.spawn(async move {
                let reply = if id % 3 == 0 {
                    client.listen(id, json!({})).send().await
                } else {
                    client.tool(id, "gate", json!({"name": "shut"})).send().await
                };
                (reply.status, reply.answer()["error"]["data"]["reason"].clone())
            });
        }
        host.gates.reached("shut", round).await;
        within("the drain", host.server().drain(Duration::ZERO)).await;
        for (status, reason) in clients.join_all().await {
            let expected = match status {
                200 => [json!("shutting_down"), json!(null)],
                _ => [json!("draining"), json!("draining")],
            };
            assert!(matches!(status, 200 | 503) && expected.contains(&reason), "{status} {reason}");
        }
        nothing_is_left(&host).await;
    }
}

#[tokio::test]
async fn one_request_too_many_is_refused() {
    let host = host_with(|builder| builder.exchanges(2)).await;
    let client = Modern::to(&host);
    let first = client.tool(1, "gate", json!({"name": "a", "text": "first"})).leave().await;
    let (second, _) = client.subscribe(2, json!({})).await;
    host.gates.reached("a", 1).await;
    let refused = client.tool("x", "echo", json!({})).send().await;
    assert_eq!((refused.refusal(), refused.header("retry-after")), ((503, -32603), Some("1")));
    assert_eq!(refused.json()["id"], "x");
    assert!(refused.text().contains("exchanges"), "{}", refused.text());
    // Sessions have limits of their own.
    let session = Session::open(&host).await;
    assert_eq!(session.say(1, "echo", json!({"text": "here"})).await, "here");
    second.cut();
    let free = async { while client.tool(3, "echo", json!({})).send().await.status != 200 {} };
    within("a free place", free).await;
    host.gates.open("a");
    assert_eq!(said(&first.reply().await.answer()), "first");
    nothing_is_left(&host).await;
}

#[tokio::test]
async fn a_reader_that_does_not_keep_up_stalls_no_client() {
    const LINES: usize = 3000;
    let host = host_with(|builder| builder.exchange_bytes(20_000)).await;
    let client = Modern::to(&host).log_level("debug");
    let unread = client.tool(1, "log", json!({"n": LINES, "bytes": 4000})).leave().await;
    host.gates.reached("logged", 1).await;
    for id in 0..20 {
        let text = id.to_string();
        assert_eq!(client.say(id, "echo", json!({"text": text})).await, text);
    }
    let messages = unread.read().await.messages().await;
    let (answer, logs) = messages.split_last().expect("messages");
    assert_eq!(said(answer), format!("{LINES} lines"));
    let lines: Vec<usize> = logs
        .iter()
        .map(|log| log["params"]["data"].as_str().and_then(|text| text.split(':').next()).expect("a line"))
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert!(lines.len() < LINES, "more than the sockets and the limit can hold");
    assert!(lines.is_sorted() && lines.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once");
    assert_eq!(lines.last(), Some(&LINES), "the newest are kept");
}

#[tokio::test]
async fn a_long_silence_opens_a_stream() {
    let host = host_with(|builder| builder.keep_alive(Duration::from_millis(30))).await;
    let client = Modern::to(&host);
    for (step, expect) in [("mark:x", json!(null)), ("fail:-32601", json!(-32601))] {
        let gate = format!("gate:{step}");
        let mut stream = client.tool(1, "steps", json!({"steps": [gate, step]})).stream().await;
        for _ in 0..3 {
            let frame = stream.next().await.expect("a comment");
            assert!(frame.comment.is_some() && frame.message().is_none(), "{frame:?}");
            assert_eq!((&frame.id, frame.retry), (&None, None), "{frame:?}");
        }
        host.gates.open(step);
        let messages = stream.messages().await;
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!(messages[0]["error"]["code"], expect);
    }
}
