//! How programs end, by themselves and otherwise, and what their callers hear.

use std::time::Duration;

use steadfast_client::{Answer, Error, ErrorObject};
use steadfast_upstream::{Program, Stdio};

use super::support::*;

/// The status of a refusal to connect, and the error in its body.
async fn refusal(stdio: Stdio) -> (u16, ErrorObject) {
    let programs = programs(stdio);
    match connect(programs.transport("alone"), config(), ()).await {
        Err(Error::Refused { status, error, .. }) => (status, *error.expect("a JSON-RPC error")),
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let (status, error) =
        refusal(Stdio::new(Program { command: "/no/such/program".to_owned(), ..Program::default() })).await;
    assert_eq!(status, 500);
    let expect =
        r#"the program "/no/such/program" could not be started: No such file or directory (os error 2)"#;
    assert_eq!(error.message, expect);
    assert_eq!(error.data.as_deref(), Some(r#"{"reason":"upstream_unavailable","retryable":true}"#));
}

#[tokio::test]
async fn a_program_that_exits_at_once_has_last_words() {
    let (status, error) = refusal(stdio("exit")).await;
    assert_eq!(status, 500);
    let expect = "the program ended with exit status: 3; its last line on stderr: no configuration was found";
    assert_eq!(error.message, expect);
    let (_, error) = refusal(stdio("late")).await;
    let expect = "the program ended with exit status: 3; its last line on stderr: late words";
    assert_eq!(error.message, expect);
}

#[tokio::test]
async fn a_crash_leaves_the_outcome_of_all_calls_unknown() {
    let alone = alone("good").await;
    let hanging = begin(&alone.client, "hang", json!({}));
    let crashing = begin(&alone.client, "crash", json!({}));
    let expect = "the program ended with exit status: 7, and it cannot be resumed";
    assert_eq!(unknown(within("the crash", crashing.answer()).await), expect);
    assert_eq!(unknown(within("the other", hanging.answer()).await), expect);
}

#[tokio::test]
async fn a_crash_breaks_a_stream_that_has_begun() {
    let alone = alone("good").await;
    let hanging = begin(&alone.client, "hang", json!({}));
    // The head of its stream is out by then.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let crashing = begin(&alone.client, "crash", json!({}));
    assert!(unknown(within("the crash", crashing.answer()).await).contains("status: 7"));
    assert!(unknown(within("the other", hanging.answer()).await).contains("status: 7"));
}

#[tokio::test]
async fn the_last_line_needs_no_end() {
    let alone = alone("good").await;
    assert_eq!(value(call(&alone.client, "last", json!({})).await), json!({"last": true}));
    assert!(unknown(call(&alone.client, "half", json!({})).await).contains("exit status: 0"));
}

#[tokio::test]
async fn garbage_is_skipped() {
    let alone = alone("good").await;
    let first = value(call(&alone.client, "garbage", json!({})).await);
    let second = value(call(&alone.client, "echo", json!({})).await);
    assert_eq!(first["pid"], second["pid"]);
}

#[tokio::test]
async fn nothing_but_garbage_ends_the_program() {
    let alone = alone("good").await;
    let expect =
        "the program was ended: it wrote 1000 lines in a row that are no messages, and it cannot be resumed";
    assert_eq!(unknown(call(&alone.client, "flood", json!({})).await), expect);
}

#[tokio::test]
async fn a_line_may_be_as_long_as_the_limit() {
    let alone = alone("good").await;
    let limit = 64 << 10;
    value(call(&alone.client, "long", json!({"bytes": limit})).await);
    let expect = "the program was ended: it wrote a line of more than 65536 bytes, and it cannot be resumed";
    assert_eq!(unknown(call(&alone.client, "long", json!({"bytes": limit + 1})).await), expect);
}

#[tokio::test]
async fn an_answer_that_is_no_message_is_not_waited_for() {
    let alone = alone("good").await;
    let answer = call(&alone.client, "unmarked", json!({})).await;
    assert!(matches!(answer, Err(Error::BadAnswer(_))), "{answer:?}");
}

#[tokio::test]
async fn a_flood_on_the_side_does_not_affect_calls() {
    let alone = alone("good").await;
    value(call(&alone.client, "chatter", json!({})).await);
    value(call(&alone.client, "echo", json!({})).await);
}

#[tokio::test]
async fn a_program_that_does_not_read_refuses_what_finds_no_room() {
    let alone = alone("deaf").await;
    let large = json!({"text": "x".repeat(1 << 20)});
    let waiting: Vec<_> = (0..20).map(|_| begin(&alone.client, "echo", large.clone())).collect();
    let mut refused = 0;
    for call in waiting {
        match tokio::time::timeout(Duration::from_millis(50), call.answer()).await {
            Ok(Ok(Answer::Error(text))) => {
                let error: Value = serde_json::from_slice(&text).unwrap();
                assert_eq!(error["message"], "the program does not read its input");
                refused += 1;
            }
            Ok(other) => panic!("neither refused nor waiting: {other:?}"),
            Err(_) => {}
        }
    }
    assert!((4..=5).contains(&refused), "{refused}");
}

#[tokio::test]
async fn a_closed_session_ends_its_program() {
    let programs = programs(stdio("good"));
    let child = programs.transport("alone");
    let client = connect(child.clone(), config(), ()).await.unwrap();
    let pid = value(call(&client, "echo", json!({})).await)["pid"].as_u64().unwrap();
    within("the end", client.close()).await.unwrap();
    gone(pid).await;
    drop(child);
}

#[tokio::test]
async fn a_dropped_client_ends_its_program_and_what_that_started() {
    let Alone { client, programs } = alone("good").await;
    let answer = value(call(&client, "grandchild", json!({})).await);
    let pids = [&answer["pid"], &answer["grandchild"]].map(|pid| pid.as_u64().unwrap());
    assert!(pids.iter().all(|pid| is_running(*pid)));
    drop(client);
    for pid in pids {
        gone(pid).await;
    }
    drop(programs);
}

#[tokio::test]
async fn closing_waits_for_the_most_stubborn() {
    for mode in ["good", "polite", "stubborn"] {
        let Alone { client, programs } = alone(mode).await;
        let hanging = begin(&client, "hang", json!({}));
        let pid = value(call(&client, "echo", json!({})).await)["pid"].as_u64().unwrap();
        within("the end of all", programs.close()).await;
        assert!(!is_running(pid), "{mode}");
        assert_eq!(
            unknown(within("its end", hanging.answer()).await),
            "the program was ended, and it cannot be resumed"
        );
        let answer = call(&client, "echo", json!({})).await;
        assert!(matches!(answer, Err(Error::Refused { status: 503, .. })), "{answer:?}");
    }
}
