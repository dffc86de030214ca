//! How each server fared, without the gateway and with it.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use super::Side;
use super::catalogue::STEPS;
use crate::failure::Failure;

/// What the driver says about a step: `ok`, a fault in a word, or `-` if it does not apply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    pub(super) word: String,
    pub(super) detail: String,
}

impl Verdict {
    pub(super) fn new(word: &str, detail: &str) -> Self {
        Self { word: word.to_owned(), detail: detail.to_owned() }
    }

    /// A line of the driver; its steps come in order.
    pub(super) fn read(step: &str, line: &str) -> Self {
        let said: Value = serde_json::from_str(line).unwrap_or_default();
        let text = |name: &str| said.get(name).and_then(Value::as_str);
        match (text("step"), text("verdict"), text("detail")) {
            (Some(name), Some(word), Some(detail)) if name == step => Self::new(word, detail),
            _ => Self::new("broken", line),
        }
    }

    pub(super) fn silence() -> Self {
        Self::new("broken", "the driver said nothing")
    }
}

/// One server.
#[derive(Debug)]
pub(super) struct Row {
    name: &'static str,
    sdk: String,
    cells: Vec<Cell>,
}

#[derive(Clone, Debug, Default)]
struct Cell {
    direct: Option<Verdict>,
    gateway: Option<Verdict>,
}

impl Row {
    pub(super) fn new(name: &'static str, sdk: String) -> Self {
        Self { name, sdk, cells: vec![Cell::default(); STEPS.len()] }
    }

    pub(super) fn set(&mut self, step: &str, side: Side, verdict: Verdict) {
        if let Some(at) = STEPS.iter().position(|name| *name == step) {
            let cell = &mut self.cells[at];
            *(if side == Side::Direct { &mut cell.direct } else { &mut cell.gateway }) = Some(verdict);
        }
    }
}

impl Cell {
    /// Direct → through the gateway; what was not tried is a dash.
    fn text(&self) -> String {
        let direct = self.direct.as_ref().map_or("-", |verdict| verdict.word.as_str());
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

    /// The table and the evidence beneath it. Fails if anything did that went through the gateway.
    pub(super) fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut lines = vec![vec![String::new()]];
        lines[0].extend(STEPS.iter().map(|step| (*step).to_owned()));
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
                for (side, verdict) in [("direct", &cell.direct), ("gateway", &cell.gateway)] {
                    if let Some(verdict) = verdict {
                        writeln!(out, "  {step:15} {side:8} {:10} {}", verdict.word, verdict.detail)?;
                    }
                }
            }
        }
        self.summarise(out)
    }

    /// The same as data.
    pub(super) fn write(&self, path: &Path, out: &mut dyn Write) -> Result<(), Failure> {
        let side = |verdict: &Option<Verdict>| match verdict {
            None => Value::Null,
            Some(verdict) => json!({"verdict": verdict.word, "detail": verdict.detail}),
        };
        let cell = |(step, cell): (&&str, &Cell)| json!({"step": step, "direct": side(&cell.direct), "gateway": side(&cell.gateway)});
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
        let count = |side: fn(&Cell) -> &Option<Verdict>| {
            let tried = self.rows.iter().flat_map(|row| &row.cells).filter_map(|cell| side(cell).as_ref());
            let tried: Vec<_> = tried.filter(|verdict| verdict.word != "-").collect();
            (tried.iter().filter(|verdict| verdict.word == "ok").count(), tried.len())
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
    fn lines_of_the_driver_are_read() {
        let check = |line, word, detail| assert_eq!(Verdict::read("cut", line), Verdict::new(word, detail));
        check(r#"{"step":"cut","verdict":"ok","detail":"fine"}"#, "ok", "fine");
        check(r#"{"step":"cut","verdict":"lost","detail":"gone"}"#, "lost", "gone");
        let other = r#"{"step":"big","verdict":"ok","detail":"fine"}"#;
        check(other, "broken", other);
        check("what?", "broken", "what?");
    }

    #[test]
    fn only_the_gateway_can_fail_a_run() {
        let check = |direct: Option<&str>, gateway: Option<&str>, cell: &str, expect: bool| {
            let mut row = Row::new("s", "1".to_owned());
            for (side, word) in [(Side::Direct, direct), (Side::Gateway, gateway)] {
                if let Some(word) = word {
                    row.set("cut", side, Verdict::new(word, "why"));
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
