//! Rules of this repository that no other tool checks.
//!
//! A rule is a function from the [`Repo`] to its findings, and a row of [`RULES`]. It reads nothing
//! else, so each rule is tested on a few lines of text.

use std::fmt;
use std::io::Write;
use std::path::Path;

use steadfast_test_setup::Failure;

mod architecture;
mod behaviour;
mod dependencies;
mod layout;
mod licences;
mod production_lines;
mod repo;
mod rust_source;
mod source;
mod words;
mod workspace;

use repo::Repo;

type Rule = fn(&Repo) -> Vec<Finding>;

/// Each rule, and what the counts call its problems.
const RULES: &[(&str, Rule)] = &[
    ("files over 600 lines", source::files_are_short),
    ("lines of prose over 100 columns", layout::prose_is_narrow),
    ("forbidden words", words::are_plain),
    ("module files beside their folder", layout::modules_are_folders),
    ("clocks in pure code", source::time_is_injected),
    ("unfinished places", source::nothing_is_unfinished),
    ("paths of one machine", source::no_home_paths),
    ("crates that allow unsafe code", source::unsafe_is_forbidden),
    ("dependencies in the wrong direction", dependencies::point_one_way),
    ("impure dependencies of pure crates", dependencies::pure_crates_stay_pure),
    ("doubled versions (notes only)", dependencies::one_version_each),
    ("licences that are not allowed", licences::are_allowed),
    ("crates missing in the architecture", architecture::names_every_crate),
    ("tests missing for a behaviour", behaviour::names_tests_that_exist),
];

/// `cargo xtask tidy`.
pub(crate) fn command(root: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let report = report(root).map_err(Failure::Broken)?;
    write!(out, "{report}")?;
    if report.problems() > 0 { Err(Failure::Reported) } else { Ok(()) }
}

/// Runs the rules as a step of a test suite.
pub(crate) fn step(root: &Path) -> Result<String, String> {
    let report = report(root)?;
    if report.problems() > 0 { Err(report.to_string()) } else { Ok(report.to_string()) }
}

fn report(root: &Path) -> Result<Report, String> {
    let repo = Repo::read(root)?;
    let findings = RULES.iter().map(|(name, rule)| (*name, rule(&repo))).collect();
    Ok(Report { files: repo.files.len(), production_lines: production_lines::count(&repo), findings })
}

#[derive(Debug)]
struct Report {
    files: usize,
    production_lines: usize,
    /// The findings of each rule.
    findings: Vec<(&'static str, Vec<Finding>)>,
}

impl Report {
    fn problems(&self) -> usize {
        self.findings.iter().map(|(_, findings)| problems(findings)).sum()
    }
}

fn problems(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.remedy.is_some()).count()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = || self.findings.iter().flat_map(|(_, findings)| findings);
        for note in all().filter(|finding| finding.remedy.is_none()) {
            writeln!(f, "note:    {note}")?;
        }
        for finding in all() {
            if let Some(remedy) = finding.remedy {
                writeln!(f, "problem: {finding}\n         remedy: {remedy}")?;
            }
        }
        for (name, findings) in &self.findings {
            writeln!(f, "{:>8} {name}", problems(findings))?;
        }
        writeln!(f, "tidy: {} lines of production code", self.production_lines)?;
        match self.problems() {
            0 => writeln!(f, "tidy: {} rules hold in {} files", RULES.len(), self.files),
            1 => writeln!(f, "tidy: 1 problem"),
            count => writeln!(f, "tidy: {count} problems"),
        }
    }
}

/// A problem or a note about a place.
#[derive(Debug)]
struct Finding {
    path: String,
    line: Option<usize>,
    what: String,
    /// How to mend the problem. A finding without remedy is a note, which fails nothing.
    remedy: Option<&'static str>,
}

impl Finding {
    fn problem(path: &str, line: Option<usize>, what: String, remedy: &'static str) -> Self {
        Self { path: path.to_owned(), line, what, remedy: Some(remedy) }
    }

    fn note(path: &str, what: String) -> Self {
        Self { path: path.to_owned(), line: None, what, remedy: None }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.what),
            None => write!(f, "{}: {}", self.path, self.what),
        }
    }
}

/// Runs a rule in a test. `expect` contains each finding as it is printed, notes after `note: `.
#[cfg(test)]
#[track_caller]
fn check(rule: Rule, repo: &Repo, expect: &[&str]) {
    let prefix = |finding: &Finding| if finding.remedy.is_none() { "note: " } else { "" };
    let got: Vec<String> = rule(repo).iter().map(|finding| format!("{}{finding}", prefix(finding))).collect();
    assert_eq!(got, expect);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_notes_then_problems_with_remedies_then_counts() {
        let note = || Finding::note("a.rs", "is long".to_owned());
        let problem = || Finding::problem("b.rs", Some(3), "is wrong".to_owned(), "mend it");
        let show = |findings| {
            Report { files: 7, production_lines: 9, findings: vec![("faults", findings)] }.to_string()
        };
        let lines = "tidy: 9 lines of production code\n";
        let holds = format!("       0 faults\n{lines}tidy: {} rules hold in 7 files\n", RULES.len());
        assert_eq!(show(vec![]), holds);
        assert_eq!(show(vec![note()]), format!("note:    a.rs: is long\n{holds}"));
        let expect = "note:    a.rs: is long\nproblem: b.rs:3: is wrong\n         remedy: mend it\n";
        let expect = format!("{expect}       1 faults\n{lines}tidy: 1 problem\n");
        assert_eq!(show(vec![problem(), note()]), expect);
    }
}
