//! A client process. It reads a line for each call that it must make, and writes a line for each
//! result. `interop/README.md` describes the lines.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use steadfast_test_setup::{Failure, now};

/// How long a client may take to connect. Several of them start at the same time.
const CONNECT_LIMIT: Duration = Duration::from_secs(90);
/// How long a client may take to end when its input has ended.
const END_LIMIT: Duration = Duration::from_secs(2);

/// What a client says about a call: the text of its result, or its error.
pub(super) type Answer = Result<String, String>;

/// The process is killed when this value is dropped.
#[derive(Debug)]
pub(super) struct ClientProcess {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<Value>,
    answers: HashMap<String, Answer>,
}

impl ClientProcess {
    /// Starts a client. Returns `None` if it does not connect.
    pub(super) fn start(command: &mut Command, log: &Path) -> Result<Option<Self>, Failure> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .spawn()
            .map_err(|error| Failure::Broken(format!("cannot start `{program}`: {error}")))?;
        let (line, lines) = mpsc::channel();
        let output = child.stdout.take();
        thread::spawn(move || {
            let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
            let mut lines = lines.map_while(Result::ok).filter_map(|text| serde_json::from_str(&text).ok());
            // The receiver is gone when the scenario is over.
            lines.all(|text| line.send(text).is_ok())
        });
        let input = child.stdin.take();
        let client = Self { child, input, lines, answers: HashMap::new() };
        let is_ready =
            client.lines.recv_timeout(CONNECT_LIMIT).is_ok_and(|line: Value| line["ready"] == true);
        Ok(is_ready.then_some(client))
    }

    /// Makes a call without waiting for its result.
    pub(super) fn call(&mut self, tool: &str, key: &str) {
        if let Some(input) = &mut self.input {
            // Fails if the client has ended, so there will be no answer.
            let _ = writeln!(input, "{}", json!({"tool": tool, "key": key}));
        }
    }

    /// Waits until all these calls have an answer, at most for this time.
    pub(super) fn wait(&mut self, keys: &[String], limit: Duration) {
        let started = now();
        while !keys.iter().all(|key| self.answers.contains_key(key)) {
            let rest = limit.saturating_sub(started.elapsed());
            let Ok(line) = self.lines.recv_timeout(rest) else { return };
            let field = |name| line.get(name).and_then(Value::as_str).map(str::to_owned);
            let answer = field("text").map(Ok).or_else(|| field("error").map(Err));
            if let (Some(key), Some(answer)) = (field("key"), answer) {
                self.answers.insert(key, answer);
            }
        }
    }

    pub(super) fn answer(&self, key: &str) -> Option<&Answer> {
        self.answers.get(key)
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        self.input = None;
        let ending = now();
        while matches!(self.child.try_wait(), Ok(None)) && ending.elapsed() < END_LIMIT {
            thread::sleep(Duration::from_millis(20));
        }
        // Fails if the client has ended by itself, as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
