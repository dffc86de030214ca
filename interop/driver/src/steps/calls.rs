//! Calls that go their way beside each other.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::messages::{call, notification};
use crate::outcome::{Fault, Outcome, Word};
use crate::session::Session;
use crate::target::Target;

const PARALLEL: u64 = 200;
const BIG: usize = 2_000_000;
/// Longer than anything takes here that is ever answered.
const HANGS_AFTER: Duration = Duration::from_secs(3);

/// Many calls at once, each with a text of its own.
pub(super) async fn parallel(target: &Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let mut calls = JoinSet::new();
    for i in 0..PARALLEL {
        let session = session.clone();
        let (ms, text) = (20 + i * 37 % 181, format!("text {i}"));
        calls.spawn(async move {
            let outcome = session.outcome(&call(i + 1, "slow", json!({"ms": ms, "text": text}))).await;
            (text, outcome)
        });
    }
    let ended = calls.join_all().await;
    let wrong: Vec<_> = ended.iter().filter(|(text, outcome)| !outcome.is_text(text)).collect();
    match wrong.first() {
        None => Ok(format!("{PARALLEL} of {PARALLEL} answers are right")),
        Some((text, outcome)) => {
            let what = format!("{} of {PARALLEL} are not right, such as {text:?}", wrong.len());
            let is_crossed = matches!(outcome, Outcome::Text(_));
            let fault = outcome.fault(&what);
            Err(if is_crossed { Fault::new(Word::Crossed, fault.detail) } else { fault })
        }
    }
}

/// Two calls in flight with one id: the second may be refused, but nobody gets the other's answer, and nobody hangs.
pub(super) async fn duplicates(target: &Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let slow = |ms, text| call(7, "slow", json!({"ms": ms, "text": text}));
    let first = tokio::spawn(end_of(session.clone(), slow(300, "first")));
    sleep(Duration::from_millis(100)).await;
    let second = end_of(session, slow(10, "second")).await;
    let first = first.await.map_err(|error| Fault::new(Word::Broken, error.to_string()))?;
    let evidence = format!("first: {first}; second: {second}");
    if first.is_text("second") || second.is_text("first") {
        return Err(Fault::new(Word::Crossed, evidence));
    }
    for outcome in [&first, &second] {
        if matches!(outcome, Outcome::Hangs | Outcome::Lost(_)) {
            return Err(Fault::new(outcome.fault("").word, evidence));
        }
    }
    first.expect_text("first", &evidence)?;
    Ok(evidence)
}

async fn end_of(session: Session, request: serde_json::Value) -> Outcome {
    match session.post(&request).await {
        Ok(mut stream) => stream.outcome(&request["id"], HANGS_AFTER, &mut Vec::new()).await,
        Err(outcome) => outcome,
    }
}

/// One of two calls is cancelled. Its stream must end, with or without an answer; the other call must not notice.
pub(super) async fn cancel(target: &Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let doomed = call("doomed", "slow", json!({"ms": 1500, "text": "late"}));
    let kept = call("kept", "slow", json!({"ms": 500, "text": "kept"}));
    let doomed = tokio::spawn(end_of(session.clone(), doomed));
    let kept = tokio::spawn(end_of(session.clone(), kept));
    sleep(Duration::from_millis(200)).await;
    let params = json!({"requestId": "doomed", "reason": "no longer wanted"});
    session.say(&notification("notifications/cancelled", params)).await?;
    let broken = |error: tokio::task::JoinError| Fault::new(Word::Broken, error.to_string());
    let (doomed, kept) = (doomed.await.map_err(broken)?, kept.await.map_err(broken)?);
    kept.clone().expect_text("kept", "the call that was not cancelled")?;
    if doomed == Outcome::Hangs {
        return Err(doomed.fault("the cancelled call's stream stays open"));
    }
    session.text_of("slow", json!({"ms": 0, "text": "after"})).await?;
    Ok(format!("cancelled: {doomed}; the other: {kept}"))
}

/// A large result.
pub(super) async fn big(target: &Target) -> Result<String, Fault> {
    let text = target.session().await?.text_of("big", json!({"bytes": BIG})).await?;
    let whole = text.len() == BIG && text.bytes().all(|byte| byte == b'x');
    let evidence = format!("{} of {BIG} bytes", text.len());
    if whole { Ok(evidence) } else { Err(Fault::new(Word::Wrong, evidence)) }
}
