//! What is said while a call runs: on which stream, and how often.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::ears::{Ears, Said};
use crate::messages::{call, call_with_token};
use crate::outcome::{Fault, Outcome, Word};
use crate::session::PATIENCE;
use crate::stream::Stream;
use crate::target::Target;

/// Of the call that is cut.
const STEPS: u64 = 9;
const MS: u64 = 60;
/// How many messages are read before each cut.
const CUT_AFTER: usize = 2;
const LOG: &str = "notifications/message";
/// The streams that may carry the lines of the call `log`.
const PLACES: [&str; 2] = ["log", "standalone"];
/// How long a stream that was resumed may be silent.
const SILENCE: Duration = Duration::from_secs(3);

/// A call's stream is cut and resumed at once, then cut again and resumed when the call is over.
pub(super) async fn cut(target: &Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let arguments = json!({"steps": STEPS, "ms": MS});
    let request = call_with_token("cut", json!("cut"), "progress", arguments);
    let mut stream = session.post(&request).await.map_err(|outcome| outcome.fault("the call"))?;
    let mut heard = Vec::new();
    for pause in [0, STEPS * MS] {
        let wanted = heard.len() + CUT_AFTER;
        listen(&mut stream, &mut heard, wanted).await?;
        let Some(last) = stream.last_event_id().map(str::to_owned) else {
            return Err(Fault::new(Word::NoResume, "events have no ids: what was cut is lost"));
        };
        drop(stream);
        sleep(Duration::from_millis(pause)).await;
        let resumed = timeout(SILENCE, session.get(Some(&last))).await.unwrap_or(Err(Outcome::Hangs));
        stream = resumed.map_err(|outcome| outcome.fault("resuming"))?;
    }
    listen(&mut stream, &mut heard, usize::MAX).await?;
    let answers = heard.iter().filter(|message| message["id"] == "cut").map(Outcome::of);
    let answers: Vec<Outcome> = answers.collect();
    let progress: Vec<u64> = heard.iter().filter_map(progress_of).collect();
    let evidence = format!("cut twice; progress {progress:?}, {} answer(s)", answers.len());
    let mut once = progress.clone();
    once.sort_unstable();
    once.dedup();
    if once.len() < progress.len() || answers.len() > 1 {
        return Err(Fault::new(Word::Twice, evidence));
    }
    if progress != (1..=STEPS).collect::<Vec<_>>() || answers.is_empty() {
        return Err(Fault::new(Word::Lost, evidence));
    }
    answers.into_iter().try_for_each(|answer| answer.expect_text("done", &evidence))?;
    Ok(evidence)
}

/// Until there are so many messages, or the answer, or the stream ends or is silent for too long.
async fn listen(stream: &mut Stream, heard: &mut Vec<Value>, wanted: usize) -> Result<(), Fault> {
    while heard.len() < wanted && heard.last().is_none_or(|message| message["id"] != "cut") {
        match timeout(SILENCE, stream.next()).await {
            Ok(Ok(Some(message))) => heard.push(message),
            Ok(Err(how)) => return Err(Fault::new(Word::Lost, how)),
            // What is missing then is the caller's to say.
            Ok(Ok(None)) | Err(_) => break,
        }
    }
    Ok(())
}

/// Two calls that report progress and one that logs, at once: each says it on its own stream, with its own token.
pub(super) async fn progress_logs(target: &Target) -> Result<String, Fault> {
    const STEPS: u64 = 5;
    let session = target.session().await?;
    let mut ears = Ears::new();
    ears.get("standalone", &session).await;
    let tokens = [("red", json!("red")), ("blue", json!(7))];
    for (name, token) in &tokens {
        let arguments = json!({"steps": STEPS, "ms": 40});
        ears.post(name, &session, call_with_token(*name, token.clone(), "progress", arguments));
    }
    ears.post("log", &session, call("log", "log", json!({"n": STEPS})));

    let mut notices: Vec<(&str, Value)> = Vec::new();
    let (mut answered, mut lines) = (0, 0);
    loop {
        let limit = match (answered, lines) {
            (..3, _) => PATIENCE,
            // A log may take another stream than the answer, and come after it.
            (_, ..STEPS) => SILENCE,
            // What comes now is too much.
            _ => Duration::from_millis(200),
        };
        let Some(heard) = ears.hear(limit).await else { break };
        match heard.said {
            Said::Message(message) if message.get("method").is_some() => {
                lines += u64::from(message["method"] == LOG);
                notices.push((heard.on, message));
            }
            Said::Message(message) => {
                let expect = if heard.on == "log" { "logged" } else { "done" };
                Outcome::of(&message).expect_text(expect, heard.on)?;
                answered += 1;
            }
            Said::End(Outcome::Lost(_)) => {}
            Said::End(_) if heard.on == "standalone" => {}
            Said::End(outcome) => return Err(outcome.fault(heard.on)),
        }
    }
    if answered < 3 {
        return Err(Outcome::Hangs.fault(&format!("{answered} of 3 calls were answered")));
    }
    for (name, token) in &tokens {
        let own: Vec<_> = notices.iter().filter(|(_, n)| n["params"]["progressToken"] == *token).collect();
        if let Some((on, _)) = own.iter().find(|(on, _)| on != name) {
            return Err(Fault::new(Word::Crossed, format!("progress of {name} came on {on}")));
        }
        let steps: Vec<u64> = own.iter().filter_map(|(_, notice)| progress_of(notice)).collect();
        if steps != (1..=STEPS).collect::<Vec<_>>() {
            return Err(Fault::new(Word::Lost, format!("progress of {name}: {steps:?}")));
        }
    }
    let on = logs(&notices, STEPS)?;
    Ok(format!("each on its own stream with its own token; {STEPS} log lines on {on}"))
}

/// Where the lines came: each once, on the stream of its call or on the one that belongs to no call. What two streams carry
/// has no order among them: a program on stdio does not say which call a line is of, so that its lines may be parted.
fn logs(notices: &[(&'static str, Value)], count: u64) -> Result<String, Fault> {
    let lines: Vec<_> = notices.iter().filter(|(_, n)| n["method"] == LOG).collect();
    if let Some((on, _)) = lines.iter().find(|(on, _)| !PLACES.contains(on)) {
        return Err(Fault::new(Word::Crossed, format!("a log line came on {on}")));
    }
    let on_place = |place: &str| -> Vec<u64> {
        lines.iter().filter(|(on, _)| *on == place).map(|(_, line)| line_number(line)).collect()
    };
    let by_place = PLACES.map(on_place);
    let mut all = by_place.concat();
    all.sort_unstable();
    if all == (1..=count).collect::<Vec<_>>() && by_place.iter().all(|numbers| numbers.is_sorted()) {
        let used: Vec<&str> =
            PLACES.into_iter().zip(&by_place).filter(|(_, n)| !n.is_empty()).map(|(p, _)| p).collect();
        return Ok(used.join(" and "));
    }
    all.dedup();
    let word = if (all.len() as u64) < count { Word::Lost } else { Word::Wrong };
    Err(Fault::new(word, format!("log lines on {PLACES:?}: {by_place:?}")))
}

/// The number in `line 3`. Some put the text into an object.
fn line_number(message: &Value) -> u64 {
    let text = message["params"]["data"].to_string();
    let digits = text.rsplit_once("line ").map_or("", |(_, rest)| rest);
    digits.chars().map_while(|c| c.to_digit(10)).fold(0, |number, digit| number * 10 + u64::from(digit))
}

/// The step that a progress notification tells of.
fn progress_of(message: &Value) -> Option<u64> {
    let is_progress = message["method"] == "notifications/progress";
    is_progress.then(|| message["params"]["progress"].as_f64().unwrap_or_default().round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_complete_in_order_and_in_their_place() {
        let check = |lines: &[(&'static str, &str)], expect: &str| {
            let line = |(on, text): &(&'static str, &str)| {
                (*on, json!({"method": "notifications/message", "params": {"data": text}}))
            };
            let notices: Vec<_> = lines.iter().map(line).collect();
            let got = logs(&notices, 2).unwrap_or_else(|fault| fault.word.to_string());
            assert_eq!(got, expect, "{lines:?}");
        };
        check(&[("log", "line 1"), ("log", "line 2")], "log");
        check(&[("standalone", "line 1"), ("standalone", "line 2")], "standalone");
        check(&[("standalone", "line 2"), ("log", "line 1")], "log and standalone");
        check(&[], "lost");
        check(&[("log", "line 1")], "lost");
        check(&[("log", "line 2"), ("log", "line 1")], "wrong");
        check(&[("log", "line 1"), ("log", "line 2"), ("log", "line 2")], "wrong");
        check(&[("log", "line 1"), ("log", "line 2"), ("standalone", "line 2")], "wrong");
        check(&[("log", "line 1"), ("red", "line 2")], "crossed");
    }
}
