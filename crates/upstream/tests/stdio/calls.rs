//! Calls, and whatever comes with them.

use steadfast_client::{CallEvent, CallOptions, Error};

use super::support::*;

#[tokio::test]
async fn a_call_is_answered() {
    let alone = alone("good").await;
    let answer = value(call(&alone.client, "echo", json!({"text": "é"})).await);
    assert_eq!(answer["arguments"], json!({"text": "é"}));
    let session = alone.client.session_id().expect("a session has a name");
    assert_eq!(session, "b007-1-1");
}

#[tokio::test]
async fn calls_run_side_by_side() {
    let alone = alone("good").await;
    let slow = begin(&alone.client, "slow", json!({"ms": 300}));
    let hanging = begin(&alone.client, "hang", json!({}));
    value(call(&alone.client, "echo", json!({})).await);
    value(within("the slow one", slow.answer()).await);
    hanging.canceller().cancel();
    assert_eq!(within("the end", hanging.answer()).await, Err(Error::Cancelled));
    value(call(&alone.client, "echo", json!({})).await);
}

#[tokio::test]
async fn a_line_end_inside_a_request_ends_no_line() {
    let alone = alone("good").await;
    let params = "{\"name\":\"echo\",\n\"arguments\":{\r\n\"a\": \"\\n\"}}";
    let answer = value(within("it", alone.client.call("tools/call", Some(params)).unwrap().answer()).await);
    assert_eq!(answer["arguments"], json!({"a": "\n"}));
}

/// All that a call hears before its answer.
async fn heard(
    mut call: steadfast_client::Call,
) -> (Vec<(String, String)>, Result<steadfast_client::Answer, Error>) {
    let mut heard = Vec::new();
    loop {
        match within("a step", call.next()).await {
            CallEvent::Notification(note) => {
                let params = String::from_utf8(note.params.unwrap_or_default().to_vec()).unwrap();
                heard.push((note.method, params));
            }
            CallEvent::Done(answer) => return (heard, answer),
        }
    }
}

#[tokio::test]
async fn progress_goes_to_its_call_and_to_no_other() {
    let alone = alone("good").await;
    let options = CallOptions { progress: true, ..CallOptions::default() };
    let progress = |ms: u64| {
        let params = json!({"name": "progress", "arguments": {"ms": ms}}).to_string();
        alone.client.call_with("tools/call", Some(&params), options).unwrap()
    };
    let (first, second) = (progress(50), progress(20));
    let ids = (first.id().clone(), second.id().clone());
    let (first, second) = tokio::join!(heard(first), heard(second));
    let expect = |id| {
        let one = |step| {
            let params = format!(r#"{{"progressToken": {id}, "progress": {step}}}"#);
            ("notifications/progress".to_owned(), params)
        };
        vec![one(1), one(2)]
    };
    assert_eq!(first.0, expect(ids.0));
    assert_eq!(second.0, expect(ids.1));
    value(first.1);
    value(second.1);
}

#[tokio::test]
async fn what_names_no_call_goes_to_the_only_one_in_flight() {
    let alone = alone("good").await;
    let (notes, answer) = heard(begin(&alone.client, "log", json!({"data": 1}))).await;
    value(answer);
    assert_eq!(notes, [("notifications/message".to_owned(), r#"{"level": "info", "data": 1}"#.to_owned())]);
}

#[tokio::test]
async fn what_names_no_call_goes_to_the_session_when_there_are_several() {
    let programs = programs(stdio("good"));
    let (client, mut hear) = listening(programs.transport("alone")).await;
    let hanging = begin(&client, "hang", json!({}));
    let (notes, answer) = heard(begin(&client, "log", json!({}))).await;
    value(answer);
    assert_eq!(notes, []);
    let note = within("the log message", hear.recv()).await;
    assert_eq!(note, Some(Heard::Notification("notifications/message".to_owned())));
    drop(hanging);
}

#[tokio::test]
async fn an_ask_is_answered_by_the_owner_of_the_call() {
    let programs = programs(stdio("good"));
    let (ear, mut hear) = ear(r#"{"action":"accept"}"#);
    let client = connect(programs.transport("alone"), config(), ear).await.unwrap();
    let answer = value(call(&client, "ask", json!({})).await);
    assert_eq!(answer["answer"], json!({"result": {"action": "accept"}}));
    assert_eq!(hear.recv().await, Some(Heard::ServerRequest("elicitation/create".to_owned())));
    // The gateway answers pings itself and does not forward them.
    assert_eq!(value(call(&client, "ping", json!({})).await)["answer"], json!({"result": {}}));
}

#[tokio::test]
async fn asks_that_no_client_takes_are_refused_beyond_the_bound() {
    let alone = alone("good").await;
    // With two calls in flight a server request belongs to neither, and no client reads the
    // session's stream.
    let hanging = begin(&alone.client, "hang", json!({}));
    let answer = value(call(&alone.client, "asks", json!({"count": 260, "wait": 0.002})).await);
    assert_eq!(answer["refused"], 4);
    drop(hanging);
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_by_the_id_that_the_program_knows() {
    let alone = alone("good").await;
    let cancelled = begin(&alone.client, "hang", json!({}));
    let canceller = cancelled.canceller();
    let kept = begin(&alone.client, "slow", json!({"ms": 200}));
    let own = value(call(&alone.client, "echo", json!({})).await)["id"].as_i64().unwrap() - 2;
    canceller.cancel();
    assert_eq!(within("the end", cancelled.answer()).await, Err(Error::Cancelled));
    value(within("the other", kept.answer()).await);
    let seen = value(call(&alone.client, "seen", json!({})).await);
    let seen = seen["seen"].as_array().unwrap();
    let cancellation =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": own}});
    assert!(seen.contains(&cancellation), "{seen:?}");
    assert_eq!(seen.iter().filter(|one| one["method"] == "notifications/cancelled").count(), 1);
}

#[tokio::test]
async fn a_call_may_be_late_and_large() {
    let alone = alone("good").await;
    // Later than the head of a stream, and larger than a pipe.
    let text = "x".repeat(40 << 10);
    let slow = value(call(&alone.client, "slow", json!({"ms": 1100, "text": text})).await);
    assert_eq!(slow["arguments"]["text"], text);
}

#[tokio::test]
async fn a_program_gets_its_environment_and_folder() {
    let mut stdio = stdio("good");
    stdio.program.environment.insert("GIVEN".to_owned(), "value".to_owned());
    stdio.program.folder = Some("/".into());
    let programs = programs(stdio);
    let client = connect(programs.transport("alone"), config(), ()).await.unwrap();
    let answer = value(call(&client, "environment", json!({})).await);
    assert_eq!((&answer["value"], &answer["folder"]), (&json!("value"), &json!("/")));
}
