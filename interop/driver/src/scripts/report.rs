//! The results of all clients: one table for each script, and a summary.

use std::io::Write;
use std::time::Duration;

use super::catalogue::Client;
use super::definitions::SCRIPTS;
use steadfast_test_setup::{Failure, seconds};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// The SDK cannot do the step, and the client has shown what happens instead.
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
pub(super) struct StepResult {
    pub(super) step: &'static str,
    pub(super) verdict: Verdict,
    pub(super) detail: String,
    pub(super) took: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Report {
    columns: Vec<(&'static Client, Vec<StepResult>)>,
    skipped: Vec<(&'static str, String)>,
}

impl Report {
    pub(super) fn add(&mut self, client: &'static Client, results: Vec<StepResult>) {
        self.columns.push((client, results));
    }

    pub(super) fn skip(&mut self, client: &Client, reason: String) {
        self.skipped.push((client.name, reason));
    }

    /// Prints a table for each script. Fails if a step failed.
    pub(super) fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let (mut passed, mut beyond, mut failed) = (0, 0, 0);
        for script in SCRIPTS {
            let columns: Vec<_> = self.columns.iter().filter(|(client, _)| client.runs(script)).collect();
            if columns.is_empty() {
                continue;
            }
            write!(out, "\n{:17}", script.name)?;
            for (client, _) in &columns {
                write!(out, "  {:15}", client.name)?;
            }
            writeln!(out)?;
            for step in script.steps {
                write!(out, "{step:17}")?;
                for (_, results) in &columns {
                    let result = results.iter().find(|result| result.step == *step);
                    let verdict = result.map_or(Verdict::Failed, |result| result.verdict);
                    *match verdict {
                        Verdict::Passed => &mut passed,
                        Verdict::Cannot => &mut beyond,
                        Verdict::Failed => &mut failed,
                    } += 1;
                    let took = result.map(|result| seconds(result.took)).unwrap_or_default();
                    write!(out, "  {:6} {took:>8}", verdict.word())?;
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
