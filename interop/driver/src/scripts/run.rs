//! Runs one client and reads the results of its steps.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::catalogue::Client;
use super::control::ControlledServer;
use super::report::{StepResult, Verdict};
use crate::child_server::ChildServer;
use crate::folders::{Checkout, Folders};
use crate::program::Program;
use steadfast_test_setup::{Failure, now, seconds};

/// The limit for one step. The slowest takes a few seconds.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// How long a client may run after its last step.
const END_LIMIT: Duration = Duration::from_secs(10);
/// How many lines of the log of a failed client are shown.
const TAIL_LINES: usize = 40;

/// How a client reaches its server. The proxy that cuts connections is on both routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Direct,
    ThroughGateway,
}

/// Prepares a client, starts a server for it, runs the client and prints each step.
pub(super) fn run(
    client: &Client,
    route: Route,
    checkout: &Checkout,
    folders: &Folders,
    out: &mut dyn Write,
) -> Result<Vec<StepResult>, Failure> {
    let folder = folders.run.join(client.name);
    fs::create_dir_all(&folder)?;
    let mut command = client.program.prepare(checkout, folders, &folder.join("prepare.log"), out)?;
    if matches!(client.program, Program::Rust { .. }) {
        command.arg(client.script.name);
    }
    let server = start_server(client, route, checkout, &folder)?;
    let log = folder.join("client.log");
    command.arg(format!("http://{}/mcp", server.address())).arg(format!("http://{}", server.control()?));
    let results = run_steps(client, &mut command, &log, out)?;
    if results.iter().any(|result| result.verdict == Verdict::Failed) {
        let text = fs::read_to_string(&log)?;
        let lines: Vec<&str> = text.lines().collect();
        for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
            writeln!(out, "      {line}")?;
        }
        writeln!(out, "{}: the logs of client and server are in {}", client.name, folder.display())?;
    }
    Ok(results)
}

fn start_server(
    client: &Client,
    route: Route,
    checkout: &Checkout,
    folder: &Path,
) -> Result<Arc<ControlledServer>, Failure> {
    let (program, arguments) = (checkout.program(client.script.program), client.script.arguments);
    match route {
        Route::Direct => {
            ControlledServer::start(ChildServer::new(program, arguments, folder.to_owned()), None)
        }
        Route::ThroughGateway => {
            let inner = folder.join("behind");
            fs::create_dir_all(&inner)?;
            let mut upstream = ChildServer::new(program, arguments, inner);
            let url = format!("http://{}/mcp", upstream.start()?);
            let gateway = checkout.program("steadfast");
            let gateway = ChildServer::new(gateway, &["serve", "--upstream", &url], folder.to_owned());
            ControlledServer::start(gateway, Some(upstream))
        }
    }
}

fn run_steps(
    client: &Client,
    command: &mut Command,
    log: &Path,
    out: &mut dyn Write,
) -> Result<Vec<StepResult>, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(log)?)
        .spawn()
        .map_err(|error| Failure::Broken(format!("cannot start `{program}`: {error}")))?;
    let (line, lines) = mpsc::channel();
    let stdout = child.stdout.take();
    thread::spawn(move || {
        let mut lines =
            stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok);
        // The receiver is gone if a step took too long.
        lines.all(|text| line.send(text).is_ok())
    });
    let mut results = Vec::new();
    let mut timed_out = false;
    for step in client.script.steps {
        let started = now();
        let received = lines.recv_timeout(STEP_LIMIT);
        timed_out = received.is_err();
        let result = match received {
            Ok(text) => StepResult::parse(step, &text, client.cannot.contains(step), started.elapsed()),
            Err(_) => StepResult::missing(step, started.elapsed()),
        };
        let (verdict, took) = (result.verdict.word(), seconds(result.took));
        writeln!(out, "{:15} {step:17} {verdict:7} {took:>6}  {}", client.name, result.detail)?;
        out.flush()?;
        results.push(result);
        if timed_out {
            break;
        }
    }
    let ending = now();
    while child.try_wait()?.is_none() && ending.elapsed() < END_LIMIT && !timed_out {
        thread::sleep(Duration::from_millis(20));
    }
    // Fails if the client has ended by itself, as it should.
    let _ = child.kill();
    child.wait()?;
    Ok(results)
}

impl StepResult {
    /// Reads the line that a client prints for a step. Steps come in the order of the script.
    fn parse(step: &'static str, line: &str, beyond_sdk: bool, took: Duration) -> Self {
        let fields: Value = serde_json::from_str(line).unwrap_or_default();
        let detail = fields.get("detail").and_then(Value::as_str).unwrap_or(line).to_owned();
        let is = |word| fields.get(word).and_then(Value::as_bool) == Some(true);
        let verdict = match fields.get("step").and_then(Value::as_str) == Some(step) {
            // A step that the SDK can do by now must not stay in the list of what it cannot do.
            true if is("ok") && !beyond_sdk => Verdict::Passed,
            true if is("cannot") && beyond_sdk => Verdict::Cannot,
            _ => Verdict::Failed,
        };
        Self { step, verdict, detail, took }
    }

    fn missing(step: &'static str, took: Duration) -> Self {
        let detail = "the client printed no result".to_owned();
        Self { step, verdict: Verdict::Failed, detail, took }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_client_are_read() {
        let check = |line, beyond_sdk, verdict, detail: &str| {
            let result = StepResult::parse("logs", line, beyond_sdk, Duration::ZERO);
            assert_eq!((result.verdict, &*result.detail), (verdict, detail), "{line}");
        };
        let (ok, failed, cannot) = (
            r#"{"step":"logs","ok":true,"detail":"d"}"#,
            r#"{"step":"logs","ok":false,"detail":"d"}"#,
            r#"{"step":"logs","cannot":true,"detail":"d"}"#,
        );
        check(ok, false, Verdict::Passed, "d");
        check(failed, false, Verdict::Failed, "d");
        check(cannot, false, Verdict::Failed, "d");
        check(ok, true, Verdict::Failed, "d");
        check(failed, true, Verdict::Failed, "d");
        check(cannot, true, Verdict::Cannot, "d");
        check(r#"{"step":"council","ok":true,"detail":"d"}"#, false, Verdict::Failed, "d");
        check("what?", false, Verdict::Failed, "what?");
    }
}
