//! The clients, and how one is run.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::Places;
use super::control::Stage;
use super::program::Program;
use super::report::{Outcome, Verdict};
use super::scripts::{ASKS, DEMO, DEMO_ERAS, ERAS, Script};
use crate::failure::Failure;
use crate::runner::{now, seconds};
use crate::served::Served;

/// For one step; the slowest takes a few seconds.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// How long a client may take to end after its last step.
const END_LIMIT: Duration = Duration::from_secs(10);
/// How much of the log of a client that failed is shown.
const TAIL_LINES: usize = 40;

pub(super) const CLIENTS: &[Client] = &[
    Client::new("typescript", Program::node("typescript", "client.mjs"), &DEMO),
    Client::new("python", Program::python("python", "client.py"), &DEMO),
    Client::new("rmcp", Program::rust("steadfast-interop-rmcp"), &DEMO),
    Client::new("go", Program::Go { folder: "go" }, &DEMO),
    Client {
        // Cut off, it never comes back, and its caller hears nothing.
        cannot: &["dropped-early", "dropped-midway", "dropped-twice"],
        ..Client::new("java", Program::Java { folder: "java", class: "Client" }, &DEMO)
    },
    Client::new("typescript-2", Program::node("typescript-2", "client.mjs"), &ERAS),
    Client::new("python-2", Program::python("python-2", "client.py"), &ERAS),
    Client::new("rmcp-eras", Program::rust("steadfast-interop-rmcp"), &ERAS),
    Client::new("demo-eras", Program::node("typescript-2", "demo.mjs"), &DEMO_ERAS),
    Client::new("python-asks", Program::python("python", "asks.py"), &ASKS),
];

#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: &'static str,
    program: Program,
    pub(super) script: &'static Script,
    /// Steps that are beyond its SDK: it has to say so itself, and to show what becomes of them.
    cannot: &'static [&'static str],
}

/// What stands between a client and its server, besides the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    None,
    Gateway,
}

impl Client {
    const fn new(name: &'static str, program: Program, script: &'static Script) -> Self {
        Self { name, program, script, cannot: &[] }
    }

    pub(super) fn plays(&self, script: &Script) -> bool {
        self.script.name == script.name
    }

    pub(super) fn missing_tools(&self) -> Option<String> {
        self.program.missing_tools()
    }

    /// Prepares it, gives it a server of its own, and watches it play.
    pub(super) fn run(
        &self,
        front: Front,
        root: &Path,
        places: &Places,
        out: &mut dyn Write,
    ) -> Result<Vec<Outcome>, Failure> {
        let folder = places.run.join(self.name);
        fs::create_dir_all(&folder)?;
        let mut command = self.program.prepare(root, places, &folder.join("prepare.log"), out)?;
        if matches!(self.program, Program::Rust { .. }) {
            command.arg(self.script.name);
        }
        let stage = self.stage(front, places, &folder)?;
        let log = folder.join("client.log");
        command.arg(format!("http://{}/mcp", stage.address())).arg(format!("http://{}", stage.control()?));
        let outcomes = self.play(&mut command, &log, out)?;
        if outcomes.iter().any(|outcome| outcome.verdict == Verdict::Failed) {
            let text = fs::read_to_string(&log)?;
            let lines: Vec<&str> = text.lines().collect();
            for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
                writeln!(out, "      {line}")?;
            }
            writeln!(out, "{}: its log and the server's are in {}", self.name, folder.display())?;
        }
        Ok(outcomes)
    }

    fn stage(&self, front: Front, places: &Places, folder: &Path) -> Result<Arc<Stage>, Failure> {
        let program = places.programs.join(self.script.program);
        match front {
            Front::None => Stage::open(Served::new(program, self.script.arguments, folder.to_owned()), None),
            Front::Gateway => {
                let inner = folder.join("behind");
                fs::create_dir_all(&inner)?;
                let mut behind = Served::new(program, self.script.arguments, inner);
                let upstream = format!("http://{}/mcp", behind.start()?);
                let gateway = places.programs.join("steadfast");
                let gateway = Served::new(gateway, &["serve", "--upstream", &upstream], folder.to_owned());
                Stage::open(gateway, Some(behind))
            }
        }
    }

    fn play(&self, command: &mut Command, log: &Path, out: &mut dyn Write) -> Result<Vec<Outcome>, Failure> {
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
            stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok).all(
                // Nobody listens any more: the client took too long.
                |text| line.send(text).is_ok(),
            )
        });
        let mut outcomes = Vec::new();
        for name in self.script.steps {
            let started = now();
            let outcome = match lines.recv_timeout(STEP_LIMIT) {
                Ok(text) => Outcome::read(name, &text, self.cannot.contains(name), started.elapsed()),
                Err(_) => Outcome::lost(name, started.elapsed()),
            };
            let verdict = outcome.verdict.word();
            let took = seconds(outcome.took);
            writeln!(out, "{:12} {name:15} {verdict:7} {took:>6}  {}", self.name, outcome.detail)?;
            out.flush()?;
            let lost = outcome.lost;
            outcomes.push(outcome);
            if lost {
                break;
            }
        }
        let ending = now();
        while child.try_wait()?.is_none() && ending.elapsed() < END_LIMIT && !outcomes.iter().any(|o| o.lost)
        {
            thread::sleep(Duration::from_millis(20));
        }
        // Over already, or overdue.
        let _ = child.kill();
        child.wait()?;
        Ok(outcomes)
    }
}

impl Outcome {
    /// What a client said about a step; its steps come in the order of its script.
    fn read(step: &'static str, line: &str, beyond_sdk: bool, took: Duration) -> Self {
        let said: Value = serde_json::from_str(line).unwrap_or_default();
        let detail = said.get("detail").and_then(Value::as_str).unwrap_or(line).to_owned();
        let is = |word| said.get(word).and_then(Value::as_bool) == Some(true);
        let verdict = match said.get("step").and_then(Value::as_str) == Some(step) {
            // What it can do by now should not be called impossible any longer.
            true if is("ok") && !beyond_sdk => Verdict::Passed,
            true if is("cannot") && beyond_sdk => Verdict::Cannot,
            _ => Verdict::Failed,
        };
        Self { step, verdict, lost: false, detail, took }
    }

    fn lost(step: &'static str, took: Duration) -> Self {
        let detail = "the client said nothing".to_owned();
        Self { step, verdict: Verdict::Failed, lost: true, detail, took }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_of_a_client_are_read() {
        let check = |line, beyond_sdk, verdict, detail: &str| {
            let outcome = Outcome::read("logs", line, beyond_sdk, Duration::ZERO);
            assert_eq!((outcome.verdict, &*outcome.detail), (verdict, detail), "{line}");
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

    #[test]
    fn what_is_beyond_an_sdk_is_a_step() {
        for client in CLIENTS {
            for step in client.cannot {
                assert!(client.script.steps.contains(step), "{} has no {step}", client.name);
            }
        }
    }

    /// What is fetched and built for one is there for the other.
    #[test]
    fn clients_and_servers_of_an_sdk_have_one_version() {
        let read = |path: &str| fs::read_to_string(crate::root().join("interop").join(path)).unwrap();
        let after = |text: String, mark: &str| text.split_once(mark).unwrap().1.to_owned();
        let go = |side: &str| {
            after(read(&format!("{side}/go/go.mod")), "\n\n") + &read(&format!("{side}/go/go.sum"))
        };
        assert_eq!(go("clients"), go("servers"));
        let java = |side: &str| {
            let sdk = after(read(&format!("{side}/java/pom.xml")), "<artifactId>mcp</artifactId>");
            sdk.split_once("</version>").unwrap().0.trim().to_owned()
        };
        assert_eq!(java("clients"), java("servers"));
    }
}
