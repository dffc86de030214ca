//! The table of all clients and scenarios, on the terminal and in `docs/clients.md`.

use std::fs;
use std::io::Write;
use std::path::Path;

use super::catalogue::Client;
use super::run::Cell;
use super::scenarios::SCENARIOS;
use steadfast_test_setup::Failure;

const PAGE: &str = "docs/clients.md";
const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// The results of one client. A column that was not measured has no cell.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) client: &'static Client,
    pub(super) version: String,
    pub(super) revision: Option<String>,
    pub(super) cells: Vec<(String, Cell)>,
}

#[derive(Debug, Default)]
pub(super) struct Report {
    rows: Vec<Row>,
    skipped: Vec<(&'static str, String)>,
}

impl Row {
    fn text(&self, column: &str) -> String {
        let cell = self.cells.iter().find(|(name, _)| name == column);
        cell.map_or_else(|| "–".to_owned(), |(_, cell)| cell.to_string())
    }

    /// Returns what is wrong with a cell: it breaks a promise, or it differs from the known fault
    /// of the client.
    pub(super) fn fault(&self, column: &str, cell: &Cell) -> Option<String> {
        match self.client.known(column) {
            Some(known) if known.cell == cell.to_string() => None,
            Some(known) => Some(format!("the table of clients says {:?}", known.cell)),
            None => cell.is_failure().then(|| cell.error.clone()),
        }
    }
}

impl Report {
    pub(super) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    pub(super) fn skip(&mut self, client: &'static Client, reason: String) {
        self.skipped.push((client.name, reason));
    }

    /// Prints the table. Fails if a cell breaks a promise.
    pub(super) fn print(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut table = self.table();
        let heading =
            ["client", "version", "revision"].map(str::to_owned).into_iter().chain(columns()).collect();
        table.insert(0, heading);
        let widths: Vec<usize> = (0..table[0].len())
            .map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or_default())
            .collect();
        writeln!(out)?;
        for row in table {
            for (text, width) in row.iter().zip(&widths) {
                write!(out, "{text:width$}  ")?;
            }
            writeln!(out)?;
        }
        for (name, reason) in &self.skipped {
            writeln!(out, "skipped: {name} ({reason})")?;
        }
        let faults = self.rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell)));
        let faults = faults.filter(|(row, (column, cell))| row.fault(column, cell).is_some()).count();
        let cells: usize = self.rows.iter().map(|row| row.cells.len()).sum();
        writeln!(out, "{cells} cells, {faults} failed, {} client(s) skipped", self.skipped.len())?;
        if faults > 0 { Err(Failure::Reported) } else { Ok(()) }
    }

    /// Replaces the measured section of the page.
    pub(super) fn write(&self, root: &Path) -> Result<(), Failure> {
        let path = root.join(PAGE);
        let page = fs::read_to_string(&path).unwrap_or_else(|_| format!("# Clients\n\n{BEGIN}\n{END}\n"));
        let sections = page.split_once(BEGIN).and_then(|(top, rest)| Some((top, rest.split_once(END)?.1)));
        let Some((top, bottom)) = sections else {
            return Err(Failure::Broken(format!("{PAGE} has no line {BEGIN:?} and {END:?}")));
        };
        Ok(fs::write(&path, format!("{top}{BEGIN}\n{}{END}{bottom}", self.section()))?)
    }

    fn section(&self) -> String {
        let mut lines = vec![
            String::new(),
            "`cargo xtask interop --clients --write` measures this table and writes it here. [The README of"
                .to_owned(),
            "the driver](../interop/README.md#the-clients) explains the columns and the words.".to_owned(),
            String::new(),
        ];
        let heading = ["client", "version", "revision"].map(str::to_owned).into_iter().chain(columns());
        let heading: Vec<String> = heading.collect();
        lines.push(format!("| {} |", heading.join(" | ")));
        lines.push(format!("|{}", "---|".repeat(heading.len())));
        lines.extend(self.table().into_iter().map(|row| format!("| {} |", row.join(" | "))));
        lines.extend(["", "What a client throws away itself:", ""].map(str::to_owned));
        lines.extend(["| client | when | what its user can do |", "|---|---|---|"].map(str::to_owned));
        for row in &self.rows {
            for known in row.client.known.chunk_by(|a, b| a.advice == b.advice) {
                let columns: Vec<&str> = known.iter().map(|known| known.column).collect();
                let advice = known.first().map_or("", |known| known.advice);
                lines.push(format!("| {} | {} | {advice} |", row.client.name, columns.join("; ")));
            }
        }
        lines.join("\n") + "\n\n"
    }

    fn table(&self) -> Vec<Vec<String>> {
        let row = |row: &Row| {
            let revision = row.revision.clone().unwrap_or_else(|| "–".to_owned());
            let head = [row.client.name.to_owned(), row.version.clone(), revision];
            head.into_iter().chain(columns().map(|column| row.text(&column))).collect()
        };
        self.rows.iter().map(row).collect()
    }
}

fn columns() -> impl Iterator<Item = String> {
    SCENARIOS.iter().flat_map(super::scenarios::Scenario::columns)
}
