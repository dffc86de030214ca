//! Rules of this repository that no other tool checks.
//!
//! A rule is a function from the [`Repo`] to its findings, and a row of [`RULES`]. It reads nothing else, so each is
//! tested on a few lines of text.

use std::fmt;
use std::io::Write;
use std::path::Path;

mod architecture;
mod behaviour;
mod code;
mod dependencies;
mod licences;
mod repo;
mod source;
mod workspace;

use crate::failure::Failure;
use repo::Repo;

type Rule = fn(&Repo) -> Vec<Finding>;

const RULES: &[Rule] = &[
    source::files_are_short,
    source::time_is_injected,
    source::nothing_is_unfinished,
    source::no_home_paths,
    source::unsafe_is_forbidden,
    dependencies::point_one_way,
    dependencies::pure_crates_stay_pure,
    dependencies::one_version_each,
    licences::are_allowed,
    architecture::names_every_crate,
    behaviour::names_tests_that_are_there,
];

/// `cargo xtask tidy`.
pub(crate) fn command(root: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let report = report(root).map_err(Failure::Broken)?;
    write!(out, "{report}")?;
    if report.problems().next().is_some() { Err(Failure::Reported) } else { Ok(()) }
}

/// The same as a step of a test suite.
pub(crate) fn step(root: &Path) -> Result<String, String> {
    let report = report(root)?;
    if report.problems().next().is_some() { Err(report.to_string()) } else { Ok(report.to_string()) }
}

fn report(root: &Path) -> Result<Report, String> {
    let repo = Repo::read(root)?;
    let findings = RULES.iter().flat_map(|rule| rule(&repo)).collect();
    Ok(Report { files: repo.files.len(), findings })
}

#[derive(Debug)]
struct Report {
    files: usize,
    findings: Vec<Finding>,
}

impl Report {
    fn problems(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.remedy.is_some())
    }

    fn notes(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.remedy.is_none())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for note in self.notes() {
            writeln!(f, "note:    {note}")?;
        }
        for problem in self.problems() {
            writeln!(f, "problem: {problem}")?;
            writeln!(f, "         remedy: {}", problem.remedy.unwrap_or_default())?;
        }
        match self.problems().count() {
            0 => writeln!(f, "tidy: {} rules hold in {} files", RULES.len(), self.files),
            1 => writeln!(f, "tidy: 1 problem"),
            count => writeln!(f, "tidy: {count} problems"),
        }
    }
}

/// Something that a rule has to say about a place.
#[derive(Debug)]
struct Finding {
    path: String,
    line: Option<usize>,
    what: String,
    /// What to do about it. Without one it is a note, which fails nothing.
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

/// The one way in which rules are tested: `expect` holds each finding as it is printed, notes with `note: ` before.
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
    fn a_report_is_quiet_when_fine_and_gives_a_remedy_when_not() {
        let note = || Finding::note("a.rs", "is long".to_owned());
        let problem = || Finding::problem("b.rs", Some(3), "is wrong".to_owned(), "mend it");
        let show = |findings| Report { files: 7, findings }.to_string();
        let holds = format!("tidy: {} rules hold in 7 files\n", RULES.len());
        assert_eq!(show(vec![]), holds);
        assert_eq!(show(vec![note()]), format!("note:    a.rs: is long\n{holds}"));
        assert_eq!(
            show(vec![problem(), note()]),
            "note:    a.rs: is long\nproblem: b.rs:3: is wrong\n         remedy: mend it\ntidy: 1 problem\n"
        );
    }
}
