//! The report of a run: outcomes of calls, faults and promises, as tables or as JSON.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use steadfast_verify::{Digest, Entry, Fate, Verdict};

use crate::failure::Failure;

/// How many violations of one promise the report explains.
const EXPLAINED: usize = 5;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    seed: u64,
    seconds: u64,
    calls: u64,
    sessions: u64,
    outcomes: BTreeMap<String, u64>,
    faults: BTreeMap<String, u64>,
    promises: Vec<Verdict>,
}

impl Report {
    pub(crate) fn new(
        seed: u64,
        took: u64,
        history: &[Entry],
        faults: BTreeMap<String, u64>,
        promises: Vec<Verdict>,
    ) -> Self {
        let digest = Digest::of(history);
        let mut outcomes = BTreeMap::new();
        for call in digest.calls.values() {
            let kind = match (call.answers.first(), call.fate) {
                (Some(answer), _) => answer.said.kind().to_owned(),
                (None, Fate::Refused { status: 0, .. }) => "refused: no connection".to_owned(),
                (None, Fate::Refused { status, .. }) => format!("refused: {status}"),
                (None, Fate::Unheard) => "unheard: no response".to_owned(),
                (None, _) if call.cancelled => "cancelled".to_owned(),
                (None, _) if call.abandoned => "session ended by its client".to_owned(),
                (None, _) => "none".to_owned(),
            };
            *outcomes.entry(kind).or_default() += 1;
        }
        let (calls, sessions) = (digest.calls.len() as u64, digest.sessions.len() as u64);
        Self { seed, seconds: took / 1000, calls, sessions, outcomes, faults, promises }
    }

    /// Returns true if no promise was violated.
    pub(crate) fn holds(&self) -> bool {
        self.promises.iter().all(Verdict::holds)
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// `history` is the file of the history, if the run keeps it.
    pub(crate) fn print(&self, json: bool, history: Option<&Path>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            serde_json::to_writer(&mut out, self)?;
            return writeln!(out);
        }
        let Self { seed, seconds, calls, sessions, .. } = self;
        writeln!(out, "seed {seed}: {calls} calls in {sessions} sessions, {seconds} s\n")?;
        writeln!(out, "{}\n", counts("outcome", &self.outcomes))?;
        if !self.faults.is_empty() {
            writeln!(out, "{}\n", counts("fault", &self.faults))?;
        }
        writeln!(out, "{}", self.promises_table())?;
        for verdict in self.promises.iter().filter(|verdict| !verdict.holds()) {
            writeln!(out, "\n{}: {}", verdict.name, verdict.promise)?;
            for violation in verdict.violations.iter().take(EXPLAINED) {
                writeln!(out, "  {violation}")?;
            }
            if verdict.violations.len() > EXPLAINED {
                writeln!(out, "  and {} more", verdict.violations.len() - EXPLAINED)?;
            }
        }
        match history {
            Some(path) => writeln!(out, "\nthe history is in {}", path.display()),
            None => Ok(()),
        }
    }

    fn promises_table(&self) -> String {
        let row = |verdict: &Verdict| {
            let result = match (verdict.holds(), verdict.checks) {
                (true, 0) => "not checked",
                (true, _) => "ok",
                (false, _) => "VIOLATED",
            };
            let name = format!("{:<17} {}", verdict.name, verdict.promise);
            format!("{name:<84} {:>8} {:>10}  {result}", verdict.checks, verdict.violations.len())
        };
        let head = format!("{:<84} {:>8} {:>10}", "promise", "checks", "violations");
        let rows = self.promises.iter().map(row);
        std::iter::once(head).chain(rows).collect::<Vec<_>>().join("\n")
    }
}

/// Prints why there is no report.
pub(crate) fn print_failure(failure: &Failure) {
    // If stderr is closed, there is no other place for the message.
    let _ = writeln!(io::stderr(), "chaos: {failure}");
}

fn counts(title: &str, counts: &BTreeMap<String, u64>) -> String {
    let row = |(name, count): (&String, &u64)| format!("{name:<84} {count:>8}");
    let rows = std::iter::once(format!("{title:<84} {:>8}", "times")).chain(counts.iter().map(row));
    rows.collect::<Vec<_>>().join("\n")
}
