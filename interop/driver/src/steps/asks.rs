//! The server asks the client.

use std::time::Duration;

use serde_json::{Value, json};

use super::ears::{Ears, Said};
use crate::messages::{answer, call, sample};
use crate::outcome::{Fault, Outcome, Word};
use crate::session::{PATIENCE, Session};
use crate::target::Target;

const ASKS: usize = 5;
/// How long to wait for more asks before those that came are answered.
const QUIET: Duration = Duration::from_millis(400);

pub(super) async fn asks(target: &Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let mut ears = Ears::new();
    ears.get("standalone", &session).await;
    one(&session, &mut ears, json!({"action": "accept", "content": {"answer": "forty-two"}}), "forty-two")
        .await?;
    one(&session, &mut ears, json!({"action": "decline"}), "decline").await?;
    let peak = many(&session, &mut ears).await?;
    Ok(format!("accepted, declined; {ASKS} samples answered out of order, {peak} of them asked for at once"))
}

/// A form, filled in or not.
async fn one(session: &Session, ears: &mut Ears, reply: Value, expect: &str) -> Result<(), Fault> {
    let id = format!("ask {expect}");
    ears.post("ask", session, call(id.as_str(), "ask", json!({"question": expect})));
    let ask = match next(ears, &id, PATIENCE).await? {
        Some(Next::Ask(ask)) => ask,
        Some(Next::Outcome(outcome)) => return Err(outcome.fault("ask, before anything was asked")),
        None => return Err(Outcome::Hangs.fault("ask, before anything was asked")),
    };
    if ask["method"] != "elicitation/create" || ask["params"]["message"] != expect {
        return Err(Fault::new(Word::Wrong, format!("asked {ask}")));
    }
    session.say(&answer(&ask, reply)).await?;
    match next(ears, &id, PATIENCE).await? {
        Some(Next::Outcome(outcome)) => outcome.expect_text(expect, "ask"),
        Some(Next::Ask(ask)) => Err(Fault::new(Word::Twice, format!("asked again: {ask}"))),
        None => Err(Outcome::Hangs.fault("ask, after the answer")),
    }
}

/// As many as come at once are answered last to first. Gives how many that was at most.
async fn many(session: &Session, ears: &mut Ears) -> Result<usize, Fault> {
    ears.post("asks", session, call("asks", "asks", json!({"n": ASKS})));
    let (mut waiting, mut seen, mut peak) = (Vec::new(), 0, 0);
    loop {
        let all = waiting.len() == ASKS;
        let limit = if waiting.is_empty() { PATIENCE } else { QUIET };
        match if all { None } else { next(ears, "asks", limit).await? } {
            Some(Next::Ask(ask)) => {
                seen += 1;
                waiting.push(ask);
                peak = peak.max(waiting.len());
            }
            Some(Next::Outcome(outcome)) => {
                let expect: Vec<String> = (1..=ASKS).map(|i| format!("sample {i}")).collect();
                outcome.expect_text(&expect.join(","), &format!("asks, after {seen} samples"))?;
                return Ok(peak);
            }
            None if waiting.is_empty() => {
                return Err(Outcome::Hangs.fault(&format!("asks, after {seen} samples")));
            }
            None => {
                for ask in waiting.drain(..).rev() {
                    let text = ask.pointer("/params/messages/0/content/text").and_then(Value::as_str);
                    let text = format!("sample {}", text.unwrap_or_default());
                    session.say(&answer(&ask, sample(&text))).await?;
                }
            }
        }
    }
}

enum Next {
    Ask(Value),
    Outcome(Outcome),
}

/// The next ask, wherever it comes, or the end of the call; `None` if there is silence.
async fn next(ears: &mut Ears, id: &str, limit: Duration) -> Result<Option<Next>, Fault> {
    while let Some(heard) = ears.hear(limit).await {
        match heard.said {
            Said::Message(message) if message.get("method").is_some() && message.get("id").is_some() => {
                return Ok(Some(Next::Ask(message)));
            }
            Said::Message(message) if message["id"] == id => {
                return Ok(Some(Next::Outcome(Outcome::of(&message))));
            }
            Said::End(outcome) if heard.on != "standalone" && !matches!(outcome, Outcome::Lost(_)) => {
                return Err(outcome.fault(heard.on));
            }
            _ => {}
        }
    }
    Ok(None)
}
