//! Steps about the messages of a running call: `cut`, `progress_logs`.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::listener::{Listener, What};
use crate::servers::client::messages::{call, call_with_token};
use crate::servers::client::{RESPONSE_LIMIT, Stream};
use crate::servers::outcome::{Fault, FaultKind, Outcome};
use crate::servers::target::Target;

/// The progress notifications of the call that is cut, and the pause before each.
const STEPS: u64 = 9;
const MS: u64 = 60;
/// How many messages are read before each cut.
const CUT_AFTER: usize = 2;
const LOG: &str = "notifications/message";
/// The streams that may carry the lines of the call `log`.
const LOG_STREAMS: [&str; 2] = ["log", "standalone"];
/// How long a resumed stream may be silent.
const SILENCE: Duration = Duration::from_secs(3);

/// The stream of a call is cut and resumed at once, then cut again and resumed when the call has
/// finished.
pub(super) async fn cut(target: &Target) -> Result<String, Fault> {
    let session = target.session().await?;
    let arguments = json!({"steps": STEPS, "ms": MS});
    let request = call_with_token("cut", json!("cut"), "progress", arguments);
    let mut stream = session.post(&request).await.map_err(|outcome| outcome.fault("the call"))?;
    let mut messages = Vec::new();
    for pause in [0, STEPS * MS] {
        let wanted = messages.len() + CUT_AFTER;
        read(&mut stream, &mut messages, wanted).await?;
        let Some(last) = stream.last_event_id().map(str::to_owned) else {
            return Err(Fault::new(
                FaultKind::NoResume,
                "events have no ids, so the messages after a cut are lost",
            ));
        };
        drop(stream);
        sleep(Duration::from_millis(pause)).await;
        let resumed = timeout(SILENCE, session.get(Some(&last))).await.unwrap_or(Err(Outcome::Hangs));
        stream = resumed.map_err(|outcome| outcome.fault("resuming"))?;
    }
    read(&mut stream, &mut messages, usize::MAX).await?;
    let answers = messages.iter().filter(|message| message["id"] == "cut").map(Outcome::of);
    let answers: Vec<Outcome> = answers.collect();
    let progress: Vec<u64> = messages.iter().filter_map(progress_of).collect();
    let evidence = format!("cut twice; progress {progress:?}, {} answer(s)", answers.len());
    let mut once = progress.clone();
    once.sort_unstable();
    once.dedup();
    if once.len() < progress.len() || answers.len() > 1 {
        return Err(Fault::new(FaultKind::Twice, evidence));
    }
    if progress != (1..=STEPS).collect::<Vec<_>>() || answers.is_empty() {
        return Err(Fault::new(FaultKind::Lost, evidence));
    }
    answers.into_iter().try_for_each(|answer| answer.expect_text("done", &evidence))?;
    Ok(evidence)
}

/// Reads until `messages` has the `wanted` number or the response, or the stream ends or is silent.
async fn read(stream: &mut Stream, messages: &mut Vec<Value>, wanted: usize) -> Result<(), Fault> {
    while messages.len() < wanted && messages.last().is_none_or(|message| message["id"] != "cut") {
        match timeout(SILENCE, stream.next()).await {
            Ok(Ok(Some(message))) => messages.push(message),
            Ok(Err(how)) => return Err(Fault::new(FaultKind::Lost, how)),
            // The caller reports what is missing.
            Ok(Ok(None)) | Err(_) => break,
        }
    }
    Ok(())
}

/// Two calls that report progress and one that logs, at once. Each progress notification must be on
/// the stream of its call, with the token of its call.
pub(super) async fn progress_logs(target: &Target) -> Result<String, Fault> {
    const STEPS: u64 = 5;
    let session = target.session().await?;
    let mut listener = Listener::new();
    listener.get("standalone", &session).await;
    let tokens = [("red", json!("red")), ("blue", json!(7))];
    for (name, token) in &tokens {
        let arguments = json!({"steps": STEPS, "ms": 40});
        listener.post(name, &session, call_with_token(*name, token.clone(), "progress", arguments));
    }
    listener.post("log", &session, call("log", "log", json!({"n": STEPS})));

    let mut notifications: Vec<(&str, Value)> = Vec::new();
    let (mut answered, mut lines) = (0, 0);
    loop {
        let limit = match (answered, lines) {
            (..3, _) => RESPONSE_LIMIT,
            // A log may be on another stream than the response, and arrive after it.
            (_, ..STEPS) => SILENCE,
            // Any message that arrives now is one too many.
            _ => Duration::from_millis(200),
        };
        let Some(received) = listener.next(limit).await else { break };
        match received.what {
            What::Message(message) if message.get("method").is_some() => {
                lines += u64::from(message["method"] == LOG);
                notifications.push((received.stream, message));
            }
            What::Message(message) => {
                let expect = if received.stream == "log" { "logged" } else { "done" };
                Outcome::of(&message).expect_text(expect, received.stream)?;
                answered += 1;
            }
            What::End(Outcome::Lost(_)) => {}
            What::End(_) if received.stream == "standalone" => {}
            What::End(outcome) => return Err(outcome.fault(received.stream)),
        }
    }
    if answered < 3 {
        return Err(Outcome::Hangs.fault(&format!("{answered} of 3 calls were answered")));
    }
    for (name, token) in &tokens {
        let own: Vec<_> =
            notifications.iter().filter(|(_, n)| n["params"]["progressToken"] == *token).collect();
        if let Some((on, _)) = own.iter().find(|(on, _)| on != name) {
            return Err(Fault::new(FaultKind::Crossed, format!("progress of {name} came on {on}")));
        }
        let steps: Vec<u64> = own.iter().filter_map(|(_, notification)| progress_of(notification)).collect();
        if steps != (1..=STEPS).collect::<Vec<_>>() {
            return Err(Fault::new(FaultKind::Lost, format!("progress of {name}: {steps:?}")));
        }
    }
    let on = log_streams(&notifications, STEPS)?;
    Ok(format!("each on its own stream with its own token; {STEPS} log lines on {on}"))
}

/// Returns the streams that carried the log lines. Fails unless each line arrived once, on the
/// stream of its call or on the standalone stream, in order within each stream. A stdio server does
/// not say which call a line belongs to, so its lines may be on both streams.
fn log_streams(notifications: &[(&'static str, Value)], count: u64) -> Result<String, Fault> {
    let lines: Vec<_> = notifications.iter().filter(|(_, n)| n["method"] == LOG).collect();
    if let Some((on, _)) = lines.iter().find(|(on, _)| !LOG_STREAMS.contains(on)) {
        return Err(Fault::new(FaultKind::Crossed, format!("a log line came on {on}")));
    }
    let lines_on = |stream: &str| -> Vec<u64> {
        lines.iter().filter(|(on, _)| *on == stream).map(|(_, line)| line_number(line)).collect()
    };
    let by_stream = LOG_STREAMS.map(lines_on);
    let mut all = by_stream.concat();
    all.sort_unstable();
    if all == (1..=count).collect::<Vec<_>>() && by_stream.iter().all(|numbers| numbers.is_sorted()) {
        let used: Vec<&str> =
            LOG_STREAMS.into_iter().zip(&by_stream).filter(|(_, n)| !n.is_empty()).map(|(p, _)| p).collect();
        return Ok(used.join(" and "));
    }
    all.dedup();
    let kind = if (all.len() as u64) < count { FaultKind::Lost } else { FaultKind::Wrong };
    Err(Fault::new(kind, format!("log lines on {LOG_STREAMS:?}: {by_stream:?}")))
}

/// Returns the number in `line 3`. Some servers put the text into an object.
fn line_number(message: &Value) -> u64 {
    let text = message["params"]["data"].to_string();
    let digits = text.rsplit_once("line ").map_or("", |(_, rest)| rest);
    digits.chars().map_while(|c| c.to_digit(10)).fold(0, |number, digit| number * 10 + u64::from(digit))
}

/// Returns the number in a progress notification.
fn progress_of(message: &Value) -> Option<u64> {
    let is_progress = message["method"] == "notifications/progress";
    is_progress.then(|| message["params"]["progress"].as_f64().unwrap_or_default().round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_are_complete_in_order_and_on_an_expected_stream() {
        let check = |lines: &[(&'static str, &str)], expect: &str| {
            let line = |(on, text): &(&'static str, &str)| {
                (*on, json!({"method": "notifications/message", "params": {"data": text}}))
            };
            let notifications: Vec<_> = lines.iter().map(line).collect();
            let got = log_streams(&notifications, 2).unwrap_or_else(|fault| fault.kind.to_string());
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
