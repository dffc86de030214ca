//! Answers as plain JSON, where that is wanted.

use steadfast::ResponseMode;

use crate::support::session::{said, tool_call};
use crate::support::{Backing, Host, Session, Value, json};

crate::on_every_store!(
    json_answers_are_json,
    json_leaves_other_messages_to_the_listener,
    json_batches_are_arrays,
    json_calls_that_are_cancelled_do_not_hang,
    json_that_another_client_reads_is_not_to_be_asked_for_again,
    adaptive_answers_are_right_in_either_form,
    adaptive_calls_that_take_time_are_streams,
);

async fn host(backing: Backing, mode: ResponseMode) -> Host {
    Host::start(backing, move |builder| builder.response(mode)).await
}

async fn json_answers_are_json(backing: Backing) {
    let host = host(backing, ResponseMode::Json).await;
    let session = Session::open(&host).await;
    let reply = session.tool(1, "echo", json!({"text": "plain"})).send().await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    assert_eq!((&reply.json()["id"], said(&reply.json())), (&json!(1), "plain".to_owned()));
    let panicked = session.tool(2, "panic", json!({})).send().await;
    assert_eq!((panicked.status, &panicked.json()["error"]["code"]), (200, &json!(-32603)));
}

async fn json_leaves_other_messages_to_the_listener(backing: Backing) {
    let host = host(backing, ResponseMode::Json).await;
    let session = Session::open(&host).await;
    let mut listener = session.listen().stream().await;
    assert_eq!(session.tool(1, "progress", json!({"n": 3})).send().await.json()["id"], 1);
    for step in 1..=3 {
        let progress = listener.message().await;
        assert_eq!(progress["params"], json!({"progressToken": 1, "progress": f64::from(step)}));
    }
    assert_eq!(session.delete().send().await.status, 204);
    assert_eq!(listener.messages().await, Vec::<Value>::new());
}

async fn json_batches_are_arrays(backing: Backing) {
    let host = host(backing, ResponseMode::Json).await;
    let session = Session::at(&host, "2025-03-26").await;
    for count in [1, 3] {
        let batch: Vec<_> =
            (0..count).map(|id| tool_call(id, "echo", json!({"text": id.to_string()}))).collect();
        let reply = session.post(&Value::from(batch)).send().await;
        let mut answers: Vec<_> = reply
            .json()
            .as_array()
            .expect("an array")
            .iter()
            .map(|a| (a["id"].as_u64().unwrap(), said(a)))
            .collect();
        answers.sort();
        assert_eq!(answers, (0..count).map(|id| (id, id.to_string())).collect::<Vec<_>>());
    }
}

async fn json_calls_that_are_cancelled_do_not_hang(backing: Backing) {
    let host = host(backing, ResponseMode::Json).await;
    let session = Session::open(&host).await;
    let call = session.tool(1, "until_cancelled", json!({}));
    let reply = tokio::spawn(async move { call.send().await });
    host.gates.reached("waiting to be cancelled", 1).await;
    assert_eq!(session.cancel(1).await.status, 202);
    let reply = reply.await.unwrap();
    assert_eq!(reply.json()["error"]["data"]["reason"], "cancelled");
}

/// A client that sends the call again would have it run twice.
async fn json_that_another_client_reads_is_not_to_be_asked_for_again(backing: Backing) {
    let host = host(backing, ResponseMode::Json).await;
    let session = Session::open(&host).await;
    let first =
        session.listen().stream().await.next().await.and_then(|frame| frame.id).expect("a priming event");
    let tag = first.rsplit('-').next().expect("the mark of the session");
    let call = session.tool(1, "steps", json!({"steps": ["gate:go"], "text": "once"}));
    let other = async {
        host.gates.reached("go", 1).await;
        let mut stream = session.resume(&format!("1-0-{tag}")).stream().await;
        host.gates.open("go");
        stream.messages().await
    };
    let (reply, messages) = tokio::join!(call.send(), other);
    assert_eq!(messages.iter().map(said).collect::<Vec<_>>(), ["once"]);
    assert_eq!(reply.status, 500, "{}", reply.text());
    assert_eq!(reply.json()["error"]["data"], json!({"reason": "outcome_unknown", "retryable": false}));
}

async fn adaptive_answers_are_right_in_either_form(backing: Backing) {
    let host = host(backing, ResponseMode::Adaptive).await;
    let session = Session::open(&host).await;
    for id in 0..20 {
        let reply = session.tool(id, "echo", json!({"text": id.to_string()})).send().await;
        assert_eq!((&reply.answer()["id"], said(&reply.answer())), (&json!(id), id.to_string()));
        // A store in memory has the answer at once.
        assert!(backing.keeps() || !reply.is_stream());
    }
    let reply = session.tool(1, "progress", json!({"n": 2})).send().await;
    assert_eq!((reply.is_stream(), reply.messages().len()), (true, 3), "nothing is left out");
}

async fn adaptive_calls_that_take_time_are_streams(backing: Backing) {
    let host = host(backing, ResponseMode::Adaptive).await;
    let session = Session::open(&host).await;
    let steps = json!({"steps": ["progress", "gate:a"]});
    let mut stream = session.tool(1, "steps", steps).stream().await;
    let priming = stream.next().await.unwrap();
    assert!(priming.is_priming());
    stream.cut();
    host.gates.open("a");
    let messages = session.resume(&priming.id.unwrap()).stream().await.messages().await;
    assert_eq!(messages.len(), 2);
    assert_eq!(said(&messages[1]), "done");
}
