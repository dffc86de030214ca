//! The results of all servers, direct and through the gateway: a table, the evidence, JSON.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::Route;
use super::outcome::Fault;
use super::steps::{STEPS, Step};
use steadfast_test_setup::Failure;

/// The result of a step: `ok`, a kind of fault, or `-` if the step does not apply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StepResult {
    pub(super) word: String,
    pub(super) detail: String,
}

impl StepResult {
    fn new(word: &str, detail: &str) -> Self {
        Self { word: word.to_owned(), detail: detail.to_owned() }
    }

    pub(super) fn of(result: Result<String, Fault>) -> Self {
        match result {
            Ok(evidence) => Self::new("ok", &evidence),
            Err(fault) => Self::new(&fault.kind.to_string(), &fault.detail),
        }
    }
}

/// The results of one server, a cell for each step.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    sdk: String,
    cells: Vec<Cell>,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    direct: Option<StepResult>,
    gateway: Option<StepResult>,
}

impl Row {
    pub(super) fn new(name: &'static str, sdk: String) -> Self {
        Self { name, sdk, cells: vec![Cell::default(); STEPS.len()] }
    }

    /// Sets the result of the step with this number.
    pub(super) fn set(&mut self, step: usize, route: Route, result: StepResult) {
        let cell = &mut self.cells[step];
        *(if route == Route::Direct { &mut cell.direct } else { &mut cell.gateway }) = Some(result);
    }
}

impl Cell {
    /// Direct → through the gateway. A route that was not tried is a dash.
    fn text(&self) -> String {
        let direct = self.direct.as_ref().map_or("-", |result| result.word.as_str());
        match &self.gateway {
            None => direct.to_owned(),
            Some(gateway) => format!("{direct} → {}", gateway.word),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Row>,
    skipped: Vec<(&'static str, String)>,
}

impl Report {
    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(super) fn skip(&mut self, name: &'static str, reason: String) {
        self.skipped.push((name, reason));
    }

    /// Prints the table and the evidence below it. Fails if a step through the gateway failed.
    pub(super) fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut lines = vec![vec![String::new()]];
        lines[0].extend(STEPS.iter().map(|step| step.name.to_owned()));
        for row in &self.rows {
            let cells = row.cells.iter().map(Cell::text);
            lines.push([row.name.to_owned()].into_iter().chain(cells).collect());
        }
        writeln!(out)?;
        let columns = 0..=STEPS.len();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: Vec<usize> = columns.map(|column| width(column).unwrap_or_default()).collect();
        for line in &lines {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        for row in &self.rows {
            writeln!(out, "\n{} (SDK {})", row.name, row.sdk)?;
            for (step, cell) in STEPS.iter().zip(&row.cells) {
                for (route, result) in [("direct", &cell.direct), ("gateway", &cell.gateway)] {
                    if let Some(StepResult { word, detail }) = result {
                        writeln!(out, "  {:15} {route:8} {word:10} {detail}", step.name)?;
                    }
                }
            }
        }
        self.summarise(out)
    }

    /// Writes the results to a JSON file.
    pub(super) fn write(&self, path: &Path, out: &mut dyn Write) -> Result<(), Failure> {
        let result = |result: &Option<StepResult>| match result {
            None => Value::Null,
            Some(StepResult { word, detail }) => json!({"verdict": word, "detail": detail}),
        };
        let cell = |(step, cell): (&Step, &Cell)| {
            let (direct, gateway) = (result(&cell.direct), result(&cell.gateway));
            json!({"step": step.name, "direct": direct, "gateway": gateway})
        };
        let row = |row: &Row| {
            let steps: Vec<Value> = STEPS.iter().zip(&row.cells).map(cell).collect();
            json!({"server": row.name, "sdk": row.sdk, "steps": steps})
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        fs::write(path, format!("{:#}\n", json!({"servers": rows})))?;
        Ok(writeln!(out, "results: {}", path.display())?)
    }

    fn summarise(&self, out: &mut dyn Write) -> Result<(), Failure> {
        for (name, reason) in &self.skipped {
            writeln!(out, "skipped: {name} ({reason})")?;
        }
        let count = |route: fn(&Cell) -> &Option<StepResult>| {
            let tried = self.rows.iter().flat_map(|row| &row.cells).filter_map(|cell| route(cell).as_ref());
            let tried: Vec<_> = tried.filter(|result| result.word != "-").collect();
            (tried.iter().filter(|result| result.word == "ok").count(), tried.len())
        };
        let (direct, of_direct) = count(|cell| &cell.direct);
        let (gateway, of_gateway) = count(|cell| &cell.gateway);
        let skipped = self.skipped.len();
        writeln!(
            out,
            "\n{direct} of {of_direct} ok directly, {gateway} of {of_gateway} through steadfast, {skipped} server(s) skipped"
        )?;
        if gateway < of_gateway { Err(Failure::Reported) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_gateway_can_fail_a_run() {
        let check = |direct: Option<&str>, gateway: Option<&str>, cell: &str, expect: bool| {
            let mut row = Row::new("s", "1".to_owned());
            for (route, word) in [(Route::Direct, direct), (Route::ThroughGateway, gateway)] {
                if let Some(word) = word {
                    row.set(2, route, StepResult::new(word, "why"));
                }
            }
            let mut report = Report::default();
            report.add(row);
            let mut out = Vec::new();
            let ended = report.print(&mut out).is_ok();
            let text = String::from_utf8(out).unwrap();
            assert!(ended == expect && text.contains(cell), "{cell}: {text}");
        };
        check(Some("hangs"), Some("ok"), "hangs → ok", true);
        check(Some("ok"), Some("lost"), "ok → lost", false);
        check(Some("ok"), Some("broken"), "ok → broken", false);
        check(Some("hangs"), None, "hangs", true);
        check(None, Some("ok"), "- → ok", true);
        check(Some("-"), Some("-"), "- → -", true);
    }
}
