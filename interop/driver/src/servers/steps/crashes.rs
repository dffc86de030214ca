//! Steps in which a process ends during a call: `gateway_killed`, `server_killed`, `crash`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::listener::{Listener, What};
use crate::servers::client::messages::{call, call_with_token};
use crate::servers::client::{RESPONSE_LIMIT, Session, Stream};
use crate::servers::outcome::{Fault, FaultKind, Outcome};
use crate::servers::target::Target;

/// How long a log message may take to arrive.
const LOG_LIMIT: Duration = Duration::from_secs(4);

/// The gateway is killed and started again on its store and port. The client resumes both calls and
/// gets a response or an error for each. The session at the server must still exist.
pub(super) async fn gateway_killed(target: &mut Target) -> Result<String, Fault> {
    if target.gateway().is_none() {
        return Err(Fault::new(FaultKind::NotApplicable, "there is no gateway"));
    }
    let session = target.session().await?;
    for expect in ["1", "2"] {
        let counter = session.text_of("counter", json!({})).await?;
        Outcome::Text(counter).expect_text(expect, "counter")?;
    }
    let chatty = call_with_token("chatty", json!("t"), "progress", json!({"steps": 10, "ms": 300}));
    let silent = call("silent", "slow", json!({"ms": 3000, "text": "silent"}));
    let (mut chatty, mut silent) = (begin(&session, &chatty).await?, begin(&session, &silent).await?);
    let first = chatty.next().await.map_err(|how| Fault::new(FaultKind::Lost, how))?;
    let mut messages: Vec<Value> = first.into_iter().collect();
    if !silent.wait_for_event_id(RESPONSE_LIMIT).await {
        return Err(Fault::new(
            FaultKind::NoResume,
            "a call without messages has no event id to resume from",
        ));
    }
    if let Some(gateway) = target.gateway() {
        gateway.kill();
    }
    for stream in [&mut chatty, &mut silent] {
        while let Ok(Some(message)) = stream.next().await {
            messages.push(message);
        }
    }
    target.ready().await?;
    let chatty = resumed(&session, &chatty, "chatty", &mut messages).await?;
    let silent = resumed(&session, &silent, "silent", &mut messages).await?;
    let steps: Vec<_> = messages.iter().filter_map(|message| message.pointer("/params/progress")).collect();
    if steps.iter().enumerate().any(|(i, step)| steps[..i].contains(step)) {
        return Err(Fault::new(FaultKind::Twice, format!("progress {steps:?}")));
    }
    let counter = session.text_of("counter", json!({})).await?;
    let evidence = format!("calls in flight: {chatty}, {silent}; then counter {counter}");
    if counter != "3" && !target.is_child_of_gateway() {
        return Err(Fault::new(FaultKind::Wrong, evidence));
    }
    Ok(evidence)
}

async fn begin(session: &Session, request: &Value) -> Result<Stream, Fault> {
    session.post(request).await.map_err(|outcome| outcome.fault("the call"))
}

/// Resumes a call and returns its outcome. Fails unless that is a result or an error.
async fn resumed(
    session: &Session,
    cut: &Stream,
    id: &str,
    messages: &mut Vec<Value>,
) -> Result<Outcome, Fault> {
    let Some(last) = cut.last_event_id() else {
        return Err(Fault::new(FaultKind::NoResume, format!("no event of {id} had an id")));
    };
    let mut stream = session.get(Some(last)).await.map_err(|outcome| outcome.fault("resuming"))?;
    let outcome = stream.outcome(&json!(id), RESPONSE_LIMIT, messages).await;
    let is_explicit = matches!(outcome, Outcome::Text(_)) || outcome.is_explicit_error();
    if is_explicit { Ok(outcome) } else { Err(outcome.fault(id)) }
}

/// The server is killed and started again. A call in flight must get an error; the read-only call
/// may get its result instead. The session must still work, with the log level that the client had
/// set.
pub(super) async fn server_killed(target: &mut Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let unsafe_call = call("unsafe", "slow", json!({"ms": 3000, "text": "unsafe"}));
    let safe_call = call("safe", "safe_slow", json!({"ms": 800, "text": "safe"}));
    let unsafe_call = tokio::spawn(end_of(session.clone(), unsafe_call));
    let safe_call = tokio::spawn(end_of(session.clone(), safe_call));
    sleep(Duration::from_millis(300)).await;
    target.kill_server()?;
    target.ready().await?;
    let broken = |error: tokio::task::JoinError| Fault::new(FaultKind::Broken, error.to_string());
    // A client that has received the error may expect the next call to succeed.
    let unsafe_call = unsafe_call.await.map_err(broken)?;
    let again = end_of(session.clone(), call("again", "slow", json!({"ms": 10, "text": "again"}))).await;
    let safe_call = safe_call.await.map_err(broken)?;
    let evidence = format!("in flight: {unsafe_call}, read-only: {safe_call}; then: {again}");
    if !unsafe_call.is_explicit_error() {
        return Err(Fault::new(unsafe_call.fault("").kind, evidence));
    }
    if !safe_call.is_text("safe") && !safe_call.is_explicit_error() {
        return Err(Fault::new(safe_call.fault("").kind, evidence));
    }
    if !again.is_text("again") {
        return Err(Fault::new(again.fault("").kind, evidence));
    }
    if !receives_logs(&session).await {
        return Err(Fault::new(
            FaultKind::Lost,
            format!("{evidence}; and no logs: the log level that the client had set is lost"),
        ));
    }
    Ok(format!("{evidence}, and logs"))
}

/// Returns true if the client receives the log messages of the server.
async fn receives_logs(session: &Session) -> bool {
    let mut listener = Listener::new();
    listener.get("standalone", session).await;
    listener.post("log", session, call("log", "log", json!({"n": 1})));
    while let Some(received) = listener.next(LOG_LIMIT).await {
        if matches!(received.what, What::Message(message) if message["method"] == "notifications/message") {
            return true;
        }
    }
    false
}

/// The server exits instead of responding, and is started again.
pub(super) async fn crash(target: &mut Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let crash = end_of(session.clone(), call("crash", "crash", json!({})));
    let (crash, restarted) = tokio::join!(crash, target.restart_after_exit());
    restarted?;
    let counter = end_of(session, call("counter", "counter", json!({}))).await;
    let evidence = format!("crash: {crash}; then counter: {counter}");
    if !crash.is_explicit_error() {
        return Err(Fault::new(crash.fault("").kind, evidence));
    }
    if !counter.is_text("1") {
        return Err(Fault::new(counter.fault("").kind, evidence));
    }
    Ok(evidence)
}

async fn end_of(session: Session, request: Value) -> Outcome {
    session.outcome(&request).await
}
