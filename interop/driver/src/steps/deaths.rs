//! Somebody dies in the middle of a call.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::ears::{Ears, Said};
use crate::messages::{call, call_with_token};
use crate::outcome::{Fault, Outcome, Word};
use crate::session::{PATIENCE, Session};
use crate::stream::Stream;
use crate::target::Target;

const HEARD_WITHIN: Duration = Duration::from_secs(4);

/// The gateway is killed and started again on the same store and port. Whoever waits resumes, and is told something; what the
/// server remembers of the session is still there.
pub(super) async fn gateway_killed(target: &mut Target) -> Result<String, Fault> {
    if target.gateway().is_none() {
        return Err(Fault::new(Word::None, "there is no gateway"));
    }
    let session = target.session().await?;
    for expect in ["1", "2"] {
        let counter = session.text_of("counter", json!({})).await?;
        Outcome::Text(counter).expect_text(expect, "counter")?;
    }
    let talks = call_with_token("talks", json!("t"), "progress", json!({"steps": 10, "ms": 300}));
    let silent = call("silent", "slow", json!({"ms": 3000, "text": "silent"}));
    let (mut talks, mut silent) = (begin(&session, &talks).await?, begin(&session, &silent).await?);
    let first = talks.next().await.map_err(|how| Fault::new(Word::Lost, how))?;
    let mut heard: Vec<Value> = first.into_iter().collect();
    if !silent.primed(PATIENCE).await {
        return Err(Fault::new(Word::NoResume, "nothing says where to resume a call that is silent"));
    }
    if let Some(gateway) = target.gateway() {
        gateway.kill();
    }
    for stream in [&mut talks, &mut silent] {
        while let Ok(Some(message)) = stream.next().await {
            heard.push(message);
        }
    }
    target.ready().await?;
    let talks = resumed(&session, &talks, "talks", &mut heard).await?;
    let silent = resumed(&session, &silent, "silent", &mut heard).await?;
    let steps: Vec<_> = heard.iter().filter_map(|message| message.pointer("/params/progress")).collect();
    if steps.iter().enumerate().any(|(i, step)| steps[..i].contains(step)) {
        return Err(Fault::new(Word::Twice, format!("progress {steps:?}")));
    }
    let counter = session.text_of("counter", json!({})).await?;
    let evidence = format!("calls in flight: {talks}, {silent}; then counter {counter}");
    if counter != "3" && !target.is_child_of_gateway() {
        return Err(Fault::new(Word::Wrong, evidence));
    }
    Ok(evidence)
}

async fn begin(session: &Session, request: &Value) -> Result<Stream, Fault> {
    session.post(request).await.map_err(|outcome| outcome.fault("the call"))
}

/// A call that was resumed must end with its answer or with an error.
async fn resumed(
    session: &Session,
    cut: &Stream,
    id: &str,
    heard: &mut Vec<Value>,
) -> Result<Outcome, Fault> {
    let Some(last) = cut.last_event_id() else {
        return Err(Fault::new(Word::NoResume, format!("no event of {id} had an id")));
    };
    let mut stream = session.get(Some(last)).await.map_err(|outcome| outcome.fault("resuming"))?;
    let outcome = stream.outcome(&json!(id), PATIENCE, heard).await;
    let is_told = matches!(outcome, Outcome::Text(_)) || outcome.is_explicit_error();
    if is_told { Ok(outcome) } else { Err(outcome.fault(id)) }
}

/// The server is killed and started again. Calls in flight are told so, or, where that is safe, answered all the same; the
/// session goes on, with what the client has set in it.
pub(super) async fn server_killed(target: &mut Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let unsafe_call = call("unsafe", "slow", json!({"ms": 3000, "text": "unsafe"}));
    let safe_call = call("safe", "safe_slow", json!({"ms": 800, "text": "safe"}));
    let unsafe_call = tokio::spawn(end_of(session.clone(), unsafe_call));
    let safe_call = tokio::spawn(end_of(session.clone(), safe_call));
    sleep(Duration::from_millis(300)).await;
    target.kill_server()?;
    target.ready().await?;
    let broken = |error: tokio::task::JoinError| Fault::new(Word::Broken, error.to_string());
    // Whoever has heard of the server's end may expect the next call to be served.
    let unsafe_call = unsafe_call.await.map_err(broken)?;
    let again = end_of(session.clone(), call("again", "slow", json!({"ms": 10, "text": "again"}))).await;
    let safe_call = safe_call.await.map_err(broken)?;
    let evidence = format!("in flight: {unsafe_call}, read-only: {safe_call}; then: {again}");
    if !unsafe_call.is_explicit_error() {
        return Err(Fault::new(unsafe_call.fault("").word, evidence));
    }
    if !safe_call.is_text("safe") && !safe_call.is_explicit_error() {
        return Err(Fault::new(safe_call.fault("").word, evidence));
    }
    if !again.is_text("again") {
        return Err(Fault::new(again.fault("").word, evidence));
    }
    if !logs(&session).await {
        return Err(Fault::new(
            Word::Lost,
            format!("{evidence}; and no logs: the level that the client had set is forgotten"),
        ));
    }
    Ok(format!("{evidence}, and logs"))
}

/// Whether the client still hears what the server logs.
async fn logs(session: &Session) -> bool {
    let mut ears = Ears::new();
    ears.get("standalone", session).await;
    ears.post("log", session, call("log", "log", json!({"n": 1})));
    while let Some(heard) = ears.hear(HEARD_WITHIN).await {
        if matches!(heard.said, Said::Message(message) if message["method"] == "notifications/message") {
            return true;
        }
    }
    false
}

/// The server exits instead of answering; whoever supervises it starts it again.
pub(super) async fn crash(target: &mut Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let crash = end_of(session.clone(), call("crash", "crash", json!({})));
    let (crash, supervised) = tokio::join!(crash, target.supervise());
    supervised?;
    let counter = end_of(session, call("counter", "counter", json!({}))).await;
    let evidence = format!("crash: {crash}; then counter: {counter}");
    if !crash.is_explicit_error() {
        return Err(Fault::new(crash.fault("").word, evidence));
    }
    if !counter.is_text("1") {
        return Err(Fault::new(counter.fault("").word, evidence));
    }
    Ok(evidence)
}

async fn end_of(session: Session, request: Value) -> Outcome {
    session.outcome(&request).await
}
