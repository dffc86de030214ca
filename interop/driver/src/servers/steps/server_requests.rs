//! The step `server_requests`: the server sends requests to the client.

use std::time::Duration;

use serde_json::{Value, json};

use super::listener::{Listener, What};
use crate::servers::client::messages::{call, response, sample};
use crate::servers::client::{RESPONSE_LIMIT, Session};
use crate::servers::outcome::{Fault, FaultKind, Outcome};
use crate::servers::target::Target;

const SAMPLES: usize = 5;
/// How long to wait for more requests before the client responds to those that it has.
const QUIET: Duration = Duration::from_millis(400);

pub(super) async fn server_requests(target: &Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let mut listener = Listener::new();
    listener.get("standalone", &session).await;
    let accepted = json!({"action": "accept", "content": {"answer": "forty-two"}});
    elicitation(&session, &mut listener, accepted, "forty-two").await?;
    elicitation(&session, &mut listener, json!({"action": "decline"}), "decline").await?;
    let peak = sampling(&session, &mut listener).await?;
    Ok(format!(
        "accepted, declined; {SAMPLES} samples answered out of order, at most {peak} requested at once"
    ))
}

/// Calls the tool that sends a form to the client, and responds to it.
async fn elicitation(
    session: &Session,
    listener: &mut Listener,
    reply: Value,
    expect: &str,
) -> Result<(), Fault> {
    let id = format!("elicit {expect}");
    listener.post("elicit", session, call(id.as_str(), "elicit", json!({"question": expect})));
    let request = match next(listener, &id, RESPONSE_LIMIT).await? {
        Some(Next::Request(request)) => request,
        Some(Next::Outcome(outcome)) => return Err(outcome.fault("elicit, before any request")),
        None => return Err(Outcome::Hangs.fault("elicit, before any request")),
    };
    if request["method"] != "elicitation/create" || request["params"]["message"] != expect {
        return Err(Fault::new(FaultKind::Wrong, format!("the server requested {request}")));
    }
    session.notify(&response(&request, reply)).await?;
    match next(listener, &id, RESPONSE_LIMIT).await? {
        Some(Next::Outcome(outcome)) => outcome.expect_text(expect, "elicit"),
        Some(Next::Request(request)) => {
            Err(Fault::new(FaultKind::Twice, format!("requested again: {request}")))
        }
        None => Err(Outcome::Hangs.fault("elicit, after the response")),
    }
}

/// Calls the tool that requests several samples. Responds to those that wait, last to first.
/// Returns the highest number of requests that waited at the same time.
async fn sampling(session: &Session, listener: &mut Listener) -> Result<usize, Fault> {
    listener.post("samples", session, call("samples", "samples", json!({"n": SAMPLES})));
    let (mut waiting, mut seen, mut peak) = (Vec::new(), 0, 0);
    loop {
        let all = waiting.len() == SAMPLES;
        let limit = if waiting.is_empty() { RESPONSE_LIMIT } else { QUIET };
        match if all { None } else { next(listener, "samples", limit).await? } {
            Some(Next::Request(request)) => {
                seen += 1;
                waiting.push(request);
                peak = peak.max(waiting.len());
            }
            Some(Next::Outcome(outcome)) => {
                let expect: Vec<String> = (1..=SAMPLES).map(|i| format!("sample {i}")).collect();
                outcome.expect_text(&expect.join(","), &format!("samples, after {seen} requests"))?;
                return Ok(peak);
            }
            None if waiting.is_empty() => {
                return Err(Outcome::Hangs.fault(&format!("samples, after {seen} requests")));
            }
            None => {
                for request in waiting.drain(..).rev() {
                    let text = request.pointer("/params/messages/0/content/text").and_then(Value::as_str);
                    let text = format!("sample {}", text.unwrap_or_default());
                    session.notify(&response(&request, sample(&text))).await?;
                }
            }
        }
    }
}

enum Next {
    Request(Value),
    Outcome(Outcome),
}

/// Returns the next server request on any stream, or the outcome of the call, or `None` if neither
/// arrives in time.
async fn next(listener: &mut Listener, id: &str, limit: Duration) -> Result<Option<Next>, Fault> {
    while let Some(received) = listener.next(limit).await {
        match received.what {
            What::Message(message) if message.get("method").is_some() && message.get("id").is_some() => {
                return Ok(Some(Next::Request(message)));
            }
            What::Message(message) if message["id"] == id => {
                return Ok(Some(Next::Outcome(Outcome::of(&message))));
            }
            What::End(outcome) if received.stream != "standalone" && !matches!(outcome, Outcome::Lost(_)) => {
                return Err(outcome.fault(received.stream));
            }
            _ => {}
        }
    }
    Ok(None)
}
