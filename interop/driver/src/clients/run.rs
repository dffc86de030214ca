//! Runs one scenario with one client and judges each call.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::catalogue::{Client, Kind};
use super::outcome::Outcome;
use super::process::{Answer, ClientProcess};
use super::rig::Rig;
use super::scenarios::{Calls, Fault, HOLD, Scenario};
use crate::folders::Checkout;
use steadfast_test_setup::Failure;

/// How long a client may take to get an answer after the fault is over and the server has one. Some
/// clients start a program for each call.
const ANSWER_LIMIT: Duration = Duration::from_secs(45);
/// Held while a client starts that will pause.
static STARTING: Mutex<()> = Mutex::new(());
/// The calls before and after the fault.
const FIRST: &str = "first";
const AFTER: &str = "after";

/// How to start a client. `$URL` in an argument stands for the endpoint.
#[derive(Clone, Debug)]
pub(super) struct Start {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
}

/// A cell of the table.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) outcome: Outcome,
    /// False if a call after the fault got no result.
    pub(super) works_after: bool,
    /// The error that the client reports.
    pub(super) error: String,
}

/// The cells of a scenario, the revision of its calls and the record of the wire.
#[derive(Debug)]
pub(super) struct ScenarioResult {
    pub(super) cells: Vec<Cell>,
    pub(super) revision: Option<String>,
    pub(super) wire: Vec<String>,
}

impl Cell {
    fn without_calls(outcome: Outcome) -> Self {
        Self { outcome, works_after: true, error: String::new() }
    }

    pub(super) fn is_failure(&self) -> bool {
        self.outcome.is_failure() || !self.works_after
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.outcome, if self.works_after { "" } else { ", then dead" })
    }
}

impl Start {
    fn command(&self, url: &str, home: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(self.arguments.iter().map(|word| word.replace("$URL", url)));
        // Some clients keep settings and credentials in the home folder.
        command.env("HOME", home).env("PYTHONDONTWRITEBYTECODE", "1").current_dir(home);
        command
    }
}

pub(super) fn run(
    scenario: &Scenario,
    client: &Client,
    start: &Start,
    checkout: &Checkout,
    folder: &Path,
) -> Result<ScenarioResult, Failure> {
    let same = |outcome: &Outcome| {
        let cells = scenario.columns().iter().map(|_| Cell::without_calls(outcome.clone())).collect();
        ScenarioResult { cells, revision: None, wire: Vec::new() }
    };
    if !scenario.applies_to(client.kind) {
        return Ok(same(&Outcome::NotApplicable));
    }
    if scenario.fault == Fault::NotYet {
        return Ok(same(&Outcome::NotYet));
    }
    fs::create_dir_all(folder)?;
    let mut rig = Rig::start(checkout, folder)?;
    let mut command = start.command(&rig.url(), folder);
    // All clients pause at the same time. If all started at the same time, some would take minutes.
    let turn = scenario.is_pause().then(|| STARTING.lock().unwrap_or_else(PoisonError::into_inner));
    let Some(mut process) = ClientProcess::start(&mut command, &folder.join("client.log"))? else {
        return Ok(ScenarioResult { wire: rig.proxy.exchanges().describe(), ..same(&Outcome::NotConnected) });
    };
    drop(turn);
    make_calls(scenario, &mut rig, &mut process)?;
    process.call(HOLD.name, AFTER);
    process.wait(&[AFTER.to_owned()], ANSWER_LIMIT);
    let mut result = judge(scenario, client, &rig, &process);
    result.wire = rig.proxy.exchanges().describe();
    fs::write(folder.join("wire.txt"), result.wire.join("\n"))?;
    Ok(result)
}

fn make_calls(scenario: &Scenario, rig: &mut Rig, process: &mut ClientProcess) -> Result<(), Failure> {
    let calls = scenario.keys();
    let keys: Vec<String> = calls.iter().map(|(key, _)| key.clone()).collect();
    if scenario.fault.is_between_calls() {
        rig.release()?;
        process.call(HOLD.name, FIRST);
        process.wait(&[FIRST.to_owned()], ANSWER_LIMIT);
        rig.inject(scenario.fault)?;
    }
    for (key, tool) in &calls {
        process.call(tool.name, key);
    }
    if !scenario.fault.is_between_calls() {
        rig.wait_until_running(&keys);
        rig.inject(scenario.fault)?;
        rig.release()?;
    }
    process.wait(&keys, ANSWER_LIMIT);
    Ok(())
}

fn judge(scenario: &Scenario, client: &Client, rig: &Rig, process: &ClientProcess) -> ScenarioResult {
    let works_after = process.answer(AFTER).is_some_and(Answer::is_ok);
    let cell = |(key, tool): &(String, super::scenarios::Tool)| {
        let answer = process.answer(key);
        // A health check calls no tool.
        let executions = if client.kind == Kind::HealthCheck { 1 } else { rig.executions(key) };
        let reason = rig.proxy.exchanges().reason(key);
        let outcome = Outcome::judge(key, answer, reason, executions, tool.repeat);
        let error = answer.and_then(|answer| answer.clone().err()).unwrap_or_default();
        Cell { outcome, works_after, error }
    };
    let calls = scenario.keys();
    let mut cells: Vec<Cell> = calls.iter().map(cell).collect();
    if matches!(scenario.calls, Calls::Parallel(_)) {
        cells = cells.into_iter().max_by(|a, b| a.outcome.cmp(&b.outcome)).into_iter().collect();
    }
    let revision = calls.iter().find_map(|(key, _)| rig.proxy.exchanges().revision(key));
    ScenarioResult { cells, revision, wire: Vec::new() }
}
