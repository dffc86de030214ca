//! The steps of the script, and how each client fared.

use std::io::Write;
use std::time::Duration;

use super::client::Client;
use crate::failure::Failure;
use crate::runner::seconds;

/// Every client plays these, in this order. `interop/README.md` says what each is about.
pub(super) const STEPS: &[&str] = &[
    "initialize",
    "progress",
    "logs",
    "notebook",
    "parallel",
    "refused",
    "dropped-early",
    "dropped-midway",
    "dropped-twice",
    "cancelled",
    "restarted",
    "terminated",
];

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) step: &'static str,
    pub(super) ok: bool,
    /// Nothing was heard of the client any more.
    pub(super) lost: bool,
    pub(super) detail: String,
    pub(super) took: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Report {
    columns: Vec<(&'static str, Vec<Outcome>)>,
    skipped: Vec<(&'static str, String)>,
}

impl Report {
    pub(super) fn add(&mut self, client: &Client, outcomes: Vec<Outcome>) {
        self.columns.push((client.name, outcomes));
    }

    pub(super) fn skip(&mut self, client: &Client, reason: String) {
        self.skipped.push((client.name, reason));
    }

    /// Fails if anything did.
    pub(super) fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        write!(out, "\n{:15}", "")?;
        for (name, _) in &self.columns {
            write!(out, "  {name:14}")?;
        }
        writeln!(out)?;
        let mut failed = 0;
        for step in STEPS {
            write!(out, "{step:15}")?;
            for (_, outcomes) in &self.columns {
                let outcome = outcomes.iter().find(|outcome| outcome.step == *step);
                let ok = outcome.is_some_and(|outcome| outcome.ok);
                failed += usize::from(!ok);
                let took = outcome.map(|outcome| seconds(outcome.took)).unwrap_or_default();
                write!(out, "  {:6} {took:>7}", if ok { "ok" } else { "FAILED" })?;
            }
            writeln!(out)?;
        }
        for (name, reason) in &self.skipped {
            writeln!(out, "skipped: {name} ({reason})")?;
        }
        let passed = self.columns.len() * STEPS.len() - failed;
        writeln!(out, "{passed} passed, {failed} failed, {} client(s) skipped", self.skipped.len())?;
        if failed > 0 { Err(Failure::Reported) } else { Ok(()) }
    }
}
