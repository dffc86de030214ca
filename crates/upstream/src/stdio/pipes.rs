//! The pipes of a process. No task here waits for whoever uses the process: what is to be written waits in a bounded queue
//! or was refused, and what was read goes to bounded mailboxes.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_wire::{Body, Message};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::lines::{Line, Lines};
use super::process::{Process, Written};
use super::quota::{May, Quota};
use super::router::{Received, Trouble};

/// How much of a line is logged or quoted.
const MAX_QUOTE: usize = 1024;
/// How much of a line that is no message is logged.
const MAX_EXCERPT: usize = 200;
/// Lines in a row that are no messages, after which the process is ended.
const MAX_GARBAGE: u32 = 1000;
/// Messages on one line.
const MAX_BATCH: usize = 1024;

/// What is wrong with the output.
struct Faults {
    /// Lines in a row that are no messages.
    garbage: u32,
    /// How much of it may be logged.
    quota: Quota,
}

pub(super) async fn write(process: Arc<Process>, mut stdin: ChildStdin, mut lines: mpsc::Receiver<Written>) {
    while let Some(line) = lines.recv().await {
        let mut text = Vec::with_capacity(line.text.len() + 1);
        text.extend_from_slice(&line.text);
        text.push(b'\n');
        if let Err(error) = stdin.write_all(&text).await {
            tracing::debug!(session = &*process.name(), %error, "the program takes no input");
            return;
        }
    }
}

/// Reads messages to the end of the output.
pub(super) async fn read(process: Arc<Process>, stdout: ChildStdout, line_bytes: usize) {
    let mut lines = Lines::new(stdout, line_bytes);
    let mut faults = Faults { garbage: 0, quota: Quota::new(Instant::now()) };
    loop {
        match lines.next().await {
            Ok(Some(Line::Whole(line))) if line.trim_ascii().is_empty() => {}
            Ok(Some(Line::Whole(line))) => {
                if take(&process, &line, &mut faults).is_none() {
                    let what = format!("it wrote {MAX_GARBAGE} lines in a row that are no messages");
                    return process.expel(what);
                }
            }
            Ok(Some(Line::TooLong(start))) => {
                tracing::warn!(
                    session = &*process.name(),
                    line = quote(&start),
                    "the program wrote too long a line"
                );
                let what = format!("it wrote a line of more than {line_bytes} bytes");
                return process.expel(what);
            }
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(session = &*process.name(), %error, "the program cannot be read");
                return;
            }
        }
    }
}

/// Takes one line of output. `None` if it is enough.
fn take(process: &Process, line: &Bytes, faults: &mut Faults) -> Option<()> {
    let error = match Body::parse(line, MAX_BATCH) {
        Ok(Body::One(message)) => {
            faults.garbage = 0;
            receive(process, &message, faults);
            return Some(());
        }
        Ok(Body::Batch(list)) => {
            faults.garbage = 0;
            list.iter().for_each(|message| receive(process, message, faults));
            return Some(());
        }
        Err(error) => error,
    };
    let is_answer = std::str::from_utf8(line).is_ok_and(|text| process.router().receive_garbage(text));
    faults.garbage += 1;
    if let May::Log(dropped) = faults.quota.take(Instant::now()) {
        let (session, line) = (&*process.name(), quote(&line[..line.len().min(MAX_EXCERPT)]));
        tracing::warn!(session, %error, is_answer, dropped, "the program wrote a line that is no message; `debug` logs it");
        tracing::debug!(session, line, "what the program wrote");
    }
    (faults.garbage < MAX_GARBAGE).then_some(())
}

fn receive(process: &Process, message: &Message<'_>, faults: &mut Faults) {
    let Received { reply, trouble } = process.router().receive(message);
    if let Some(reply) = reply {
        process.reply(reply);
    }
    let Some(trouble) = trouble else { return };
    let May::Log(dropped) = faults.quota.take(Instant::now()) else { return };
    let (session, method) = (&*process.name(), quote(message.method.as_bytes()));
    match trouble {
        Trouble::UnknownAnswer => {
            let id = message.id().map(ToString::to_string);
            tracing::debug!(session, id, dropped, "an answer that nobody waits for");
        }
        Trouble::Nobody => tracing::debug!(session, method, dropped, "a notification that concerns nobody"),
        Trouble::Missed(count) => {
            tracing::warn!(session, method, count, dropped, "notifications are dropped: nobody reads them");
        }
        Trouble::AskRefused(why) => tracing::warn!(session, method, why, dropped, "an ask was refused"),
    }
}

/// Logs what it writes on the side.
pub(super) async fn read_side(process: Arc<Process>, stderr: ChildStderr) {
    let mut lines = Lines::new(stderr, MAX_QUOTE);
    let mut quota = Quota::new(Instant::now());
    while let Ok(Some(Line::Whole(line) | Line::TooLong(line))) = lines.next().await {
        let line = quote(&line);
        if line.trim().is_empty() {
            continue;
        }
        if let May::Log(dropped) = quota.take(Instant::now()) {
            tracing::info!(session = &*process.name(), dropped, "{line}");
        }
        process.set_last_words(line);
    }
}

/// The beginning of a line, without what would disturb a log.
fn quote(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(MAX_QUOTE)]);
    text.chars().map(|char| if char.is_control() && char != '\t' { '·' } else { char }).collect()
}
