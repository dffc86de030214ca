//! How each client fared.

use std::io::Write;
use std::time::Duration;

use super::client::Client;
use super::scripts::SCRIPTS;
use crate::failure::Failure;
use crate::runner::seconds;

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// The SDK has no way to do it, and the client has shown what becomes of it.
    Cannot,
    Failed,
}

impl Verdict {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Cannot => "cannot",
            Self::Failed => "FAILED",
        }
    }
}

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) step: &'static str,
    pub(super) verdict: Verdict,
    /// Nothing was heard of the client any more.
    pub(super) lost: bool,
    pub(super) detail: String,
    pub(super) took: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Report {
    columns: Vec<(&'static Client, Vec<Outcome>)>,
    skipped: Vec<(&'static str, String)>,
}

impl Report {
    pub(super) fn add(&mut self, client: &'static Client, outcomes: Vec<Outcome>) {
        self.columns.push((client, outcomes));
    }

    pub(super) fn skip(&mut self, client: &Client, reason: String) {
        self.skipped.push((client.name, reason));
    }

    /// A table for each script. Fails if anything did.
    pub(super) fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let (mut passed, mut beyond, mut failed) = (0, 0, 0);
        for script in SCRIPTS {
            let columns: Vec<_> = self.columns.iter().filter(|(client, _)| client.plays(script)).collect();
            if columns.is_empty() {
                continue;
            }
            write!(out, "\n{:15}", script.name)?;
            for (client, _) in &columns {
                write!(out, "  {:14}", client.name)?;
            }
            writeln!(out)?;
            for step in script.steps {
                write!(out, "{step:15}")?;
                for (_, outcomes) in &columns {
                    let outcome = outcomes.iter().find(|outcome| outcome.step == *step);
                    let verdict = outcome.map_or(Verdict::Failed, |outcome| outcome.verdict);
                    *match verdict {
                        Verdict::Passed => &mut passed,
                        Verdict::Cannot => &mut beyond,
                        Verdict::Failed => &mut failed,
                    } += 1;
                    let took = outcome.map(|outcome| seconds(outcome.took)).unwrap_or_default();
                    write!(out, "  {:6} {took:>7}", verdict.word())?;
                }
                writeln!(out)?;
            }
        }
        for (name, reason) in &self.skipped {
            writeln!(out, "skipped: {name} ({reason})")?;
        }
        let skipped = self.skipped.len();
        writeln!(
            out,
            "{passed} passed, {beyond} beyond an SDK, {failed} failed, {skipped} client(s) skipped"
        )?;
        if failed > 0 { Err(Failure::Reported) } else { Ok(()) }
    }
}
