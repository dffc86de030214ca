//! Steps about calls: `parallel`, `duplicates`, `cancel`, `big`.

use std::pin::pin;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::servers::client::messages::{call, notification};
use crate::servers::client::{Session, Stream};
use crate::servers::outcome::{Fault, FaultKind, Outcome};
use crate::servers::target::Target;

const PARALLEL: u64 = 200;
const BIG: usize = 2_000_000;
/// The time for a call to arrive before the next one is sent.
const HEAD_START: Duration = Duration::from_millis(300);
/// Longer than any call of this file takes that is answered.
const HANGS_AFTER: Duration = Duration::from_secs(3);

/// Many calls at once, each with its own text.
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
            Err(if is_crossed { Fault::new(FaultKind::Crossed, fault.detail) } else { fault })
        }
    }
}

/// Two calls in flight with one id, twice: first the second call finishes first, then the first
/// call does. The second call may be refused. Neither may get the response of the other, and
/// neither may hang.
pub(super) async fn duplicates(target: &Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let (overtaking, overtaken) = (pair(&session, 7, 10), pair(&session, 8, 900));
    let (overtaking, overtaken) = tokio::join!(overtaking, overtaken);
    let evidence = format!("{}, {} | {}, {}", overtaking.0, overtaking.1, overtaken.0, overtaken.1);
    let outcomes = [overtaking, overtaken];
    if outcomes.iter().any(|(first, second)| first.is_text("second") || second.is_text("first")) {
        return Err(Fault::new(FaultKind::Crossed, evidence));
    }
    for (first, second) in outcomes {
        let second_is_fine = second.is_text("second") || second.is_explicit_error();
        if !first.is_text("first") || !second_is_fine {
            let culprit = if second_is_fine { first } else { second };
            return Err(Fault::new(culprit.fault("").kind, evidence));
        }
    }
    Ok(evidence)
}

/// Returns the outcomes of two calls with one id. The first takes 600 ms.
async fn pair(session: &Session, id: u64, second_ms: u64) -> (Outcome, Outcome) {
    let slow = |ms, text| call(id, "slow", json!({"ms": ms, "text": text}));
    let (first, second) = (slow(600, "first"), slow(second_ms, "second"));
    let mut posting = pin!(session.post(&first));
    // Some servers send the head of a response only with its first message.
    let early = timeout(HEAD_START, &mut posting).await;
    let first = async {
        let posted = match early {
            Ok(posted) => posted,
            Err(_) => posting.await,
        };
        end(posted, &json!(id)).await
    };
    tokio::join!(first, end_of(session.clone(), second))
}

async fn end_of(session: Session, request: Value) -> Outcome {
    end(session.post(&request).await, &request["id"]).await
}

async fn end(posted: Result<Stream, Outcome>, id: &Value) -> Outcome {
    match posted {
        Ok(mut stream) => stream.outcome(id, HANGS_AFTER, &mut Vec::new()).await,
        Err(outcome) => outcome,
    }
}

/// One of two calls is cancelled. Its stream must end, with or without a response. The other call
/// must succeed.
pub(super) async fn cancel(target: &Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let cancelled = call("cancelled", "slow", json!({"ms": 1500, "text": "late"}));
    let kept = call("kept", "slow", json!({"ms": 500, "text": "kept"}));
    let cancelled = tokio::spawn(end_of(session.clone(), cancelled));
    let kept = tokio::spawn(end_of(session.clone(), kept));
    sleep(Duration::from_millis(200)).await;
    let params = json!({"requestId": "cancelled", "reason": "no longer wanted"});
    session.notify(&notification("notifications/cancelled", params)).await?;
    let broken = |error: tokio::task::JoinError| Fault::new(FaultKind::Broken, error.to_string());
    let (cancelled, kept) = (cancelled.await.map_err(broken)?, kept.await.map_err(broken)?);
    kept.clone().expect_text("kept", "the call that was not cancelled")?;
    if cancelled == Outcome::Hangs {
        return Err(cancelled.fault("the stream of the cancelled call stays open"));
    }
    session.text_of("slow", json!({"ms": 0, "text": "after"})).await?;
    Ok(format!("cancelled: {cancelled}; the other: {kept}"))
}

/// A large result.
pub(super) async fn big(target: &Target) -> Result<String, Fault> {
    let text = target.session().await?.text_of("big", json!({"bytes": BIG})).await?;
    let whole = text.len() == BIG && text.bytes().all(|byte| byte == b'x');
    let evidence = format!("{} of {BIG} bytes", text.len());
    if whole { Ok(evidence) } else { Err(Fault::new(FaultKind::Wrong, evidence)) }
}
