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
use super::report::Outcome;
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
    Client { name: "typescript", program: Program::node("typescript", "client.mjs"), script: &DEMO },
    Client { name: "python", program: Program::python("python", "client.py"), script: &DEMO },
    Client { name: "rmcp", program: Program::rust("steadfast-interop-rmcp"), script: &DEMO },
    Client { name: "typescript-2", program: Program::node("typescript-2", "client.mjs"), script: &ERAS },
    Client { name: "python-2", program: Program::python("python-2", "client.py"), script: &ERAS },
    Client { name: "rmcp-eras", program: Program::rust("steadfast-interop-rmcp"), script: &ERAS },
    Client { name: "demo-eras", program: Program::node("typescript-2", "demo.mjs"), script: &DEMO_ERAS },
    Client { name: "python-asks", program: Program::python("python", "asks.py"), script: &ASKS },
];

#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: &'static str,
    program: Program,
    pub(super) script: &'static Script,
}

/// What stands between a client and its server, besides the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    None,
    Gateway,
}

impl Client {
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
        if outcomes.iter().any(|outcome| !outcome.ok) {
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
                Ok(text) => Outcome::read(name, &text, started.elapsed()),
                Err(_) => Outcome::lost(name, started.elapsed()),
            };
            let verdict = if outcome.ok { "ok" } else { "FAILED" };
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
    fn read(step: &'static str, line: &str, took: Duration) -> Self {
        let said: Value = serde_json::from_str(line).unwrap_or_default();
        let detail = said.get("detail").and_then(Value::as_str).unwrap_or(line).to_owned();
        let ok = said.get("step").and_then(Value::as_str) == Some(step)
            && said.get("ok").and_then(Value::as_bool) == Some(true);
        Self { step, ok, lost: false, detail, took }
    }

    fn lost(step: &'static str, took: Duration) -> Self {
        Self { step, ok: false, lost: true, detail: "the client said nothing".to_owned(), took }
    }
}
