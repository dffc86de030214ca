//! The tasks that write to and read from the pipes of a process. They never wait for clients: lines
//! to write are in a bounded queue, and lines that were read go to bounded outboxes.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_wire::{Body, Message};
use tokio::io::AsyncWriteExt as _;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::stdio::process::lifecycle::{InputLine, Process};
use crate::stdio::process::line_reader::{Line, LineReader};
use crate::stdio::process::log_rate_limit::{Decision, LogRateLimit};
use crate::stdio::routing::receive::{Problem, Received};

/// How much of a line on standard error is logged.
const MAX_QUOTE: usize = 1024;
/// How much of a line that is not a message is logged.
const MAX_EXCERPT: usize = 200;
/// The number of consecutive lines that are not messages after which the process is ended.
const MAX_INVALID_LINES: u32 = 1000;
/// The number of messages on one line.
const MAX_BATCH: usize = 1024;

/// The faults in the output of a process.
struct OutputFaults {
    /// The number of consecutive lines that are not messages.
    invalid_lines: u32,
    rate_limit: LogRateLimit,
}

pub(crate) async fn write(
    process: Arc<Process>,
    mut stdin: ChildStdin,
    mut lines: mpsc::Receiver<InputLine>,
) {
    while let Some(line) = lines.recv().await {
        let mut text = Vec::with_capacity(line.text.len() + 1);
        text.extend_from_slice(&line.text);
        text.push(b'\n');
        if let Err(error) = stdin.write_all(&text).await {
            tracing::debug!(session = &*process.name(), %error, "could not write to the input of a program");
            return;
        }
    }
}

/// Reads messages until the end of the output.
pub(crate) async fn read(process: Arc<Process>, stdout: ChildStdout, line_bytes: usize) {
    let mut lines = LineReader::new(stdout, line_bytes);
    let mut faults = OutputFaults { invalid_lines: 0, rate_limit: LogRateLimit::new(Instant::now()) };
    loop {
        match lines.next().await {
            Ok(Some(Line::Whole(line))) if line.trim_ascii().is_empty() => {}
            Ok(Some(Line::Whole(line))) => {
                if handle_line(&process, &line, &mut faults).is_none() {
                    let what = format!("it wrote {MAX_INVALID_LINES} lines in a row that are no messages");
                    return process.end_misbehaving(what);
                }
            }
            Ok(Some(Line::TooLong(start))) => {
                tracing::warn!(
                    session = &*process.name(),
                    line = quote(&start),
                    "a program wrote a line that is too long"
                );
                let what = format!("it wrote a line of more than {line_bytes} bytes");
                return process.end_misbehaving(what);
            }
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(session = &*process.name(), %error, "could not read the output of a program");
                return;
            }
        }
    }
}

/// Handles one line of output. Returns `None` if the process has written too many invalid lines.
fn handle_line(process: &Process, line: &Bytes, faults: &mut OutputFaults) -> Option<()> {
    let error = match Body::parse(line, MAX_BATCH) {
        Ok(Body::One(message)) => {
            faults.invalid_lines = 0;
            receive(process, &message, faults);
            return Some(());
        }
        Ok(Body::Batch(list)) => {
            faults.invalid_lines = 0;
            list.iter().for_each(|message| receive(process, message, faults));
            return Some(());
        }
        Err(error) => error,
    };
    let is_answer = std::str::from_utf8(line).is_ok_and(|text| process.router().receive_invalid(text));
    faults.invalid_lines += 1;
    if let Decision::Log(dropped) = faults.rate_limit.take(Instant::now()) {
        let (session, line) = (&*process.name(), quote(&line[..line.len().min(MAX_EXCERPT)]));
        tracing::warn!(session, %error, is_answer, dropped, "a program wrote a line that is not a message; `debug` logs it");
        tracing::debug!(session, line, "the line that the program wrote");
    }
    (faults.invalid_lines < MAX_INVALID_LINES).then_some(())
}

fn receive(process: &Process, message: &Message<'_>, faults: &mut OutputFaults) {
    let Received { reply, problem } = process.router().receive(message);
    if let Some(reply) = reply {
        process.reply(reply);
    }
    let Some(problem) = problem else { return };
    let Decision::Log(dropped) = faults.rate_limit.take(Instant::now()) else { return };
    let (session, method) = (&*process.name(), quote(message.method.as_bytes()));
    match problem {
        Problem::UnknownAnswer => {
            let id = message.id().map(ToString::to_string);
            tracing::debug!(session, id, dropped, "a program answered an unknown request");
        }
        Problem::NoRecipient => {
            tracing::debug!(
                session,
                method,
                dropped,
                "dropped a notification: no request or session is concerned"
            )
        }
        Problem::Dropped(count) => {
            tracing::warn!(session, method, count, dropped, "dropped notifications: no client reads them");
        }
        Problem::ServerRequestRefused(why) => {
            tracing::warn!(session, method, why, dropped, "refused a server request of a program")
        }
    }
}

/// Logs the lines on standard error.
pub(crate) async fn read_stderr(process: Arc<Process>, stderr: ChildStderr) {
    let mut lines = LineReader::new(stderr, MAX_QUOTE);
    let mut rate_limit = LogRateLimit::new(Instant::now());
    while let Ok(Some(Line::Whole(line) | Line::TooLong(line))) = lines.next().await {
        let line = quote(&line);
        if line.trim().is_empty() {
            continue;
        }
        if let Decision::Log(dropped) = rate_limit.take(Instant::now()) {
            tracing::info!(session = &*process.name(), dropped, "{line}");
        }
        process.set_last_stderr_line(line);
    }
}

/// Returns the beginning of a line without control characters.
fn quote(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(&line[..line.len().min(MAX_QUOTE)]);
    text.chars().map(|char| if char.is_control() && char != '\t' { '·' } else { char }).collect()
}
