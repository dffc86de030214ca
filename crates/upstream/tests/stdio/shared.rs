//! One process for several sessions.

use std::sync::Arc;

use steadfast_client::{
    BoxFuture, Bytes, CallEvent, CallOptions, ClientHandler, Config, Error, ErrorObject, ServerRequest,
};
use tokio::sync::Notify;

use super::support::*;

/// A client with a name.
fn named(name: &str) -> Config {
    let mut config = config();
    config.info = json!({"name": name, "version": "1"}).to_string();
    config
}

#[tokio::test]
async fn sessions_share_one_process_that_is_initialised_once() {
    let programs = shared("good");
    let one = connect(programs.transport("one"), named("one"), ()).await.unwrap();
    let two = connect(programs.transport("two"), named("two"), ()).await.unwrap();
    let pid = |answer: Value| answer["pid"].as_u64().unwrap();
    let pids =
        (pid(value(call(&one, "echo", json!({})).await)), pid(value(call(&two, "echo", json!({})).await)));
    assert_eq!(pids.0, pids.1);
    assert_eq!(one.server(), two.server());
    assert!(String::from_utf8_lossy(&two.server()).contains(r#""name": "one""#));
    let seen = value(call(&two, "seen", json!({})).await);
    let seen: Vec<_> = seen["seen"].as_array().unwrap().iter().filter(|one| **one != "tools/call").collect();
    assert_eq!(
        seen,
        [&json!("initialize"), &json!({"jsonrpc": "2.0", "method": "notifications/initialized"})]
    );
    assert_eq!(
        (one.session_id().as_deref(), two.session_id().as_deref()),
        (Some("b007-1-1"), Some("b007-1-2"))
    );
}

#[tokio::test]
async fn equal_ids_and_tokens_do_not_collide() {
    let programs = shared("good");
    let one = connect(programs.transport("one"), config(), ()).await.unwrap();
    let two = connect(programs.transport("two"), config(), ()).await.unwrap();
    let options = CallOptions { progress: true, ..CallOptions::default() };
    let begin = |client: &steadfast_client::Client, who: &str| {
        let params = json!({"name": "progress", "arguments": {"ms": 30, "who": who}}).to_string();
        client.call_with("tools/call", Some(&params), options).unwrap()
    };
    let (first, second) = (begin(&one, "one"), begin(&two, "two"));
    assert_eq!(first.id(), second.id());
    for (mut call, who) in [(first, "one"), (second, "two")] {
        let mut progress = 0;
        let answer = loop {
            match within("a step", call.next()).await {
                CallEvent::Notification(note) => {
                    let params = String::from_utf8(note.params.unwrap().to_vec()).unwrap();
                    assert!(params.contains(&format!(r#""progressToken": {},"#, call.id())), "{params}");
                    progress += 1;
                }
                CallEvent::Done(answer) => break value(answer),
            }
        };
        assert_eq!((progress, &answer["arguments"]["who"]), (2, &json!(who)));
    }
}

#[tokio::test]
async fn an_ask_goes_to_the_session_of_the_only_call() {
    let programs = shared("good");
    let (one_ear, mut one_hears) = ear(r#"{"who":"one"}"#);
    let (two_ear, mut two_hears) = ear(r#"{"who":"two"}"#);
    let one = connect(programs.transport("one"), config(), one_ear).await.unwrap();
    let two = connect(programs.transport("two"), config(), two_ear).await.unwrap();
    let answer = value(call(&two, "ask", json!({"id": "a"})).await);
    assert_eq!(answer["answer"], json!({"result": {"who": "two"}}));
    assert!(one_hears.try_recv().is_err());
    assert!(two_hears.try_recv().is_ok());
    // With a call of each client in flight, the gateway cannot tell which client the request
    // concerns.
    let hanging = begin(&one, "hang", json!({}));
    let answer = value(call(&two, "ask", json!({"id": "b"})).await);
    let refusal = json!({"error": {"code": -32603, "message": "the gateway cannot tell which client this request concerns"}});
    assert_eq!(answer["answer"], refusal);
    drop(hanging);
}

/// Answers when the test says so.
struct Patient {
    asked: Arc<Notify>,
    leave: Arc<Notify>,
}

impl ClientHandler for Patient {
    fn on_server_request(&self, _: ServerRequest) -> BoxFuture<'_, Result<Bytes, ErrorObject>> {
        self.asked.notify_one();
        Box::pin(async {
            self.leave.notified().await;
            Ok(Bytes::from_static(br#"{"genuine":true}"#))
        })
    }
}

#[tokio::test]
async fn no_client_answers_the_asks_of_another() {
    let programs = shared("good");
    let child = programs.transport("any");
    let (asked, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let patient = Patient { asked: Arc::clone(&asked), leave: Arc::clone(&leave) };
    let one = connect(child.clone(), config(), patient).await.unwrap();
    let two = connect(child.clone(), config(), ()).await.unwrap();
    let call = begin(&one, "ask", json!({"id": "mine"}));
    within("the ask", asked.notified()).await;
    let forged = json!({"jsonrpc": "2.0", "id": "mine", "result": {"forged": true}});
    assert_eq!(send(&child, "POST", two.session_id().as_deref(), forged).await.status(), 202);
    leave.notify_one();
    let answer = value(within("the answer", call.answer()).await);
    assert_eq!(answer["answer"], json!({"result": {"genuine": true}}));
}

#[tokio::test]
async fn news_of_lists_go_to_all_sessions() {
    let programs = shared("good");
    let (one, mut one_hears) = listening(programs.transport("one")).await;
    let (_two, mut two_hears) = listening(programs.transport("two")).await;
    value(call(&one, "announce", json!({})).await);
    let expect = Some(Heard::Notification("notifications/tools/list_changed".to_owned()));
    assert_eq!(within("the news", one_hears.recv()).await, expect);
    assert_eq!(within("the news", two_hears.recv()).await, expect);
    // What one is told by its call is not for the other.
    value(call(&one, "log", json!({})).await);
    value(call(&one, "announce", json!({})).await);
    assert_eq!(within("the news", two_hears.recv()).await, expect);
}

#[tokio::test]
async fn a_session_that_ends_leaves_the_others_alone() {
    let programs = shared("good");
    let one = connect(programs.transport("one"), config(), ()).await.unwrap();
    let two = connect(programs.transport("two"), config(), ()).await.unwrap();
    let hanging = begin(&one, "hang", json!({}));
    let before = value(call(&two, "echo", json!({})).await);
    within("the end", one.close()).await.unwrap();
    // Whichever comes first.
    let end = within("its call", hanging.answer()).await;
    assert!(matches!(end, Err(Error::Closed | Error::OutcomeUnknown { .. })), "{end:?}");
    let seen = value(call(&two, "seen", json!({})).await);
    assert_eq!(seen["pid"], before["pid"]);
    // No client waits for the call that was in flight, so the gateway has cancelled it.
    let cancelled =
        seen["seen"].as_array().unwrap().iter().any(|one| one["method"] == "notifications/cancelled");
    assert!(cancelled, "{seen}");
}

#[tokio::test]
async fn a_crash_is_healed_for_every_session() {
    let programs = shared("good");
    let one = connect(programs.transport("one"), config(), ()).await.unwrap();
    let two = connect(programs.transport("two"), config(), ()).await.unwrap();
    let hanging = begin(&one, "hang", json!({}));
    unknown(call(&two, "crash", json!({})).await);
    unknown(within("the other", hanging.answer()).await);
    let pid = |answer: Value| answer["pid"].as_u64().unwrap();
    let pids = tokio::join!(call(&one, "echo", json!({})), call(&two, "echo", json!({})));
    assert_eq!(pid(value(pids.0)), pid(value(pids.1)));
}

/// The text that a shared program writes when it dies may concern any client.
#[tokio::test]
async fn the_last_words_of_a_program_are_not_for_its_callers() {
    let programs = shared("good");
    let one = connect(programs.transport("one"), config(), ()).await.unwrap();
    let two = connect(programs.transport("two"), config(), ()).await.unwrap();
    let hanging = begin(&two, "hang", json!({}));
    let crashing = begin(&one, "crash", json!({"words": "KeyError: 'the token of one'"}));
    let expect = "the program ended with exit status: 7, and it cannot be resumed";
    assert_eq!(unknown(within("the crash", crashing.answer()).await), expect);
    assert_eq!(unknown(within("the other", hanging.answer()).await), expect);
}
