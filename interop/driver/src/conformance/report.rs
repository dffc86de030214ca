//! The results of all runs: a table, the failed checks, and a summary.

use std::io::Write;
use std::time::Duration;

use super::results::{Kind, Results};
use super::runs::Run;
use steadfast_test_setup::{Failure, seconds};

#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Row>,
}

#[derive(Debug)]
pub(super) struct Row {
    name: &'static str,
    pub(super) results: Results,
    took: Duration,
    /// Faults of the run itself.
    faults: Vec<String>,
}

impl Row {
    pub(super) fn new(run: &'static Run, results: Results, took: Duration) -> Self {
        let mut row = Self { name: run.name, results, took, faults: Vec::new() };
        if row.results.scenarios < run.scenarios {
            row.add_fault(format!(
                "only {} of {} scenarios were tried",
                row.results.scenarios, run.scenarios
            ));
        }
        row
    }

    pub(super) fn add_fault(&mut self, fault: String) {
        self.faults.push(fault);
    }

    fn has_failed(&self) -> bool {
        self.results.failures() > 0 || !self.faults.is_empty()
    }
}

impl Report {
    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Adds a fault to each run through the gateway that passed another number of checks than the
    /// corresponding run without gateway.
    pub(super) fn compare_with_and_without(&mut self, with: &str, without: &str) {
        let direct: Vec<(&str, usize)> = self
            .rows
            .iter()
            .filter_map(|row| Some((row.name.strip_prefix(without)?, row.results.passed)))
            .collect();
        for row in &mut self.rows {
            let Some(name) = row.name.strip_prefix(with) else { continue };
            let expect = direct.iter().find(|(other, _)| *other == name).map(|(_, passed)| *passed);
            if let Some(expect) = expect.filter(|expect| *expect != row.results.passed) {
                row.add_fault(format!(
                    "{} checks passed, but {expect} without the gateway",
                    row.results.passed
                ));
            }
        }
    }

    /// Prints the results. Fails if a check failed, scored by the suite or not.
    pub(super) fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
        writeln!(
            out,
            "\n{:width$}  {:>9}  {:>6}  {:>6}  {:>8}  {:>6}",
            "run", "scenarios", "passed", "failed", "warnings", "time"
        )?;
        for Row { name, results, took, .. } in &self.rows {
            let (failures, warnings) = (results.failures(), results.warnings());
            write!(out, "{name:width$}  {:>9}  {:>6}", results.scenarios, results.passed)?;
            writeln!(out, "  {failures:>6}  {warnings:>8}  {:>6}", seconds(*took))?;
        }
        for row in &self.rows {
            for finding in &row.results.findings {
                let label = if finding.kind == Kind::Failure { "FAILED " } else { "warning" };
                writeln!(out, "{label} {}: {}", row.name, finding.what)?;
            }
            for fault in &row.faults {
                writeln!(out, "FAILED  {}: {fault}", row.name)?;
            }
        }
        let failed = self.rows.iter().filter(|row| row.has_failed()).count();
        writeln!(out, "{} passed, {failed} failed", self.rows.len() - failed)?;
        if failed > 0 { Err(Failure::Reported) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::Finding;
    use super::super::runs::Subject;
    use super::*;

    const RUN: Run = Run { name: "run", version: "", subject: Subject::Server, arguments: &[], scenarios: 2 };

    #[test]
    fn a_run_passes_if_enough_scenarios_ran_and_no_check_failed() {
        check(2, None, None, Ok("1 passed, 0 failed"));
        check(3, Some(Kind::Warning), None, Ok("1 passed, 0 failed"));
        check(2, Some(Kind::Failure), None, Err("0 passed, 1 failed"));
        check(1, None, None, Err("0 passed, 1 failed"));
        check(2, None, Some("it did not end"), Err("0 passed, 1 failed"));
    }

    #[test]
    fn a_gateway_must_not_change_the_number_of_passed_checks() {
        let row = |name, passed| {
            let run: &'static Run = Box::leak(Box::new(Run { name, ..RUN }));
            Row::new(run, Results { scenarios: 2, passed, findings: Vec::new() }, Duration::ZERO)
        };
        for (with, faults) in [(7, 0), (6, 1), (8, 1)] {
            let mut report =
                Report { rows: vec![row("server-a", 7), row("gateway-a", with), row("gateway-b", 1)] };
            report.compare_with_and_without("gateway-", "server-");
            assert_eq!(report.rows.iter().map(|row| row.faults.len()).sum::<usize>(), faults, "{with}");
        }
    }

    fn check(scenarios: usize, finding: Option<Kind>, fault: Option<&str>, expect: Result<&str, &str>) {
        let findings = finding.into_iter().map(|kind| Finding { kind, what: "it".to_owned() }).collect();
        let results = Results { scenarios, passed: 1, findings };
        let mut row = Row::new(&RUN, results, Duration::ZERO);
        fault.into_iter().for_each(|fault| row.add_fault(fault.to_owned()));
        let mut out = Vec::new();
        let done = Report { rows: vec![row] }.print(&mut out);
        let text = String::from_utf8(out).unwrap();
        let last = text.lines().last().unwrap_or_default();
        assert_eq!(if done.is_ok() { Ok(last) } else { Err(last) }, expect, "{text}");
    }
}
