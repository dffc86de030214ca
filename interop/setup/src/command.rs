//! Runs a command with a time limit and a log, or with the output of this process.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::Failure;

/// How often [`run`] prints a dot while a command works.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Succeeded,
    Failed,
    /// The command exceeded its time limit and was killed.
    TimedOut,
}

/// Runs a command and prints `what` it does and how long it took. Its output goes to the log, which
/// is printed if the command fails.
pub fn run(
    what: &str,
    command: &mut Command,
    log: &Path,
    limit: Duration,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    write!(out, "{what} ")?;
    out.flush()?;
    let started = now();
    let mut printed = started;
    let ended = wait(command, log, limit, || {
        if printed.elapsed() > PROGRESS_INTERVAL {
            printed = now();
            write!(out, ".")?;
            out.flush()?;
        }
        Ok(())
    })?;
    let took = seconds(started.elapsed());
    match ended {
        Ended::Succeeded => Ok(writeln!(out, " {took}")?),
        Ended::Failed => {
            writeln!(out, " FAILED after {took}\n{}", fs::read_to_string(log)?)?;
            Err(Failure::Reported)
        }
        Ended::TimedOut => {
            Err(Failure::Broken(format!("{what}: not done after {took}; see {}", log.display())))
        }
    }
}

/// Starts a command, appends its output to the log and waits for its end. Kills it after `limit`.
/// Calls `meanwhile` at short intervals.
pub fn wait(
    command: &mut Command,
    log: &Path,
    limit: Duration,
    mut meanwhile: impl FnMut() -> Result<(), Failure>,
) -> Result<Ended, Failure> {
    let file = File::options().create(true).append(true).open(log)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let started = now();
    let mut child = command.spawn().map_err(|error| cannot_start(command, &error))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() { Ended::Succeeded } else { Ended::Failed });
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::TimedOut);
        }
        meanwhile()?;
        thread::sleep(POLL_INTERVAL);
    }
}

/// Runs a command that prints its own results to the output of this process.
pub fn execute(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    match status.code() {
        Some(0) => Ok(()),
        code => Err(Failure::Child(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))),
    }
}

pub fn seconds(elapsed: Duration) -> String {
    format!("{:.1}s", elapsed.as_secs_f64())
}

#[expect(clippy::disallowed_methods, reason = "test tools measure real time; the product never does")]
pub fn now() -> Instant {
    Instant::now()
}

fn cannot_start(command: &Command, error: &std::io::Error) -> Failure {
    Failure::Broken(format!("cannot start `{}`: {error}", command.get_program().to_string_lossy()))
}
