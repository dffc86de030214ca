//! Reads the results that the suite has written: a folder for each scenario, at any depth, with its
//! checks as JSON.

use std::fs;
use std::path::Path;

use serde_json::Value;

use steadfast_test_setup::Failure;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Results {
    pub(super) scenarios: usize,
    pub(super) passed: usize,
    /// The checks that did not pass, in the order of the names of the scenarios.
    pub(super) findings: Vec<Finding>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    /// The scenario, the check, and the message of the suite.
    pub(super) what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Failure,
    Warning,
}

impl Results {
    /// Returns empty results if the folder does not exist, because the suite did not start.
    pub(super) fn read(folder: &Path) -> Result<Self, Failure> {
        let mut results = Self::default();
        if folder.exists() {
            results.read_folder(folder, "")?;
        }
        Ok(results)
    }

    fn read_folder(&mut self, folder: &Path, name: &str) -> Result<(), Failure> {
        let checks = folder.join("checks.json");
        if checks.exists() {
            self.add(name, &fs::read_to_string(&checks)?);
            return Ok(());
        }
        let mut inner = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        inner.sort_by_key(fs::DirEntry::file_name);
        for entry in inner.into_iter().filter(|entry| entry.path().is_dir()) {
            let own = entry.file_name().to_string_lossy().into_owned();
            let name = if name.is_empty() { own } else { format!("{name}/{own}") };
            self.read_folder(&entry.path(), &name)?;
        }
        Ok(())
    }

    pub(super) fn failures(&self) -> usize {
        self.count(Kind::Failure)
    }

    pub(super) fn warnings(&self) -> usize {
        self.count(Kind::Warning)
    }

    fn count(&self, kind: Kind) -> usize {
        self.findings.iter().filter(|finding| finding.kind == kind).count()
    }

    fn add(&mut self, folder: &str, checks: &str) {
        self.scenarios += 1;
        let scenario = scenario_of(folder);
        let mut add = |kind, what| self.findings.push(Finding { kind, what });
        let Ok(Value::Array(checks)) = serde_json::from_str(checks) else {
            return add(Kind::Failure, format!("{scenario}: the checks cannot be read"));
        };
        if checks.is_empty() {
            return add(Kind::Failure, format!("{scenario}: no check ran"));
        }
        let mut passed = 0;
        for check in &checks {
            let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
            // A failed check without error message has a description of the requirement.
            let message =
                ["errorMessage", "description"].map(text).into_iter().find(|message| !message.is_empty());
            let what = || format!("{scenario}: {}: {}", text("id"), message.clone().unwrap_or_default());
            match &*text("status") {
                "SUCCESS" => passed += 1,
                "INFO" | "SKIPPED" => {}
                "WARNING" => add(Kind::Warning, what()),
                _ => add(Kind::Failure, what()),
            }
        }
        self.passed += passed;
    }
}

/// Removes the time: `server-tools-list-2026-01-31T10-00-00-000Z` is a run of `server-tools-list`.
fn scenario_of(folder: &str) -> &str {
    const TIME: &str = "-2026-01-31T10-00-00-000Z";
    match folder.len().checked_sub(TIME.len()) {
        Some(at) if folder.is_char_boundary(at) && folder[at..].starts_with("-2") => &folder[..at],
        _ => folder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_counted() {
        check("[]", 0, &["FAILED ping: no check ran"]);
        check("{", 0, &["FAILED ping: the checks cannot be read"]);
        let some = r#"[{"id": "a", "status": "SUCCESS"}, {"id": "b", "status": "INFO"}, {"id": "c", "status": "SKIPPED"},
            {"id": "d", "status": "WARNING", "errorMessage": "hm"}, {"id": "e", "status": "FAILURE", "errorMessage": "no"},
            {"id": "f", "status": "?", "description": "yes"}, {"id": "g", "status": "SUCCESS"}]"#;
        check(some, 2, &["warning ping: d: hm", "FAILED ping: e: no", "FAILED ping: f: yes"]);
    }

    #[test]
    fn folders_are_read_at_any_depth() {
        let folder = std::env::temp_dir().join(format!("xtask-conformance-{}", std::process::id()));
        for (scenario, status) in [("ping", "SUCCESS"), ("auth/basic", "FAILURE"), ("auth/more", "SUCCESS")] {
            let scenario = folder.join(format!("{scenario}-2026-01-31T10-00-00-000Z"));
            fs::create_dir_all(&scenario).unwrap();
            fs::write(scenario.join("checks.json"), format!(r#"[{{"id": "a", "status": "{status}"}}]"#))
                .unwrap();
        }
        let results = Results::read(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((results.scenarios, results.passed, results.failures()), (3, 2, 1));
        assert_eq!(results.findings[0].what, "auth/basic: a: ");
        assert_eq!(Results::read(&folder).unwrap(), Results::default());
    }

    #[test]
    fn scenarios_are_named_without_the_time() {
        assert_eq!(scenario_of("server-tools-list-2026-01-31T10-00-00-000Z"), "server-tools-list");
        assert_eq!(scenario_of("server-tools-list"), "server-tools-list");
    }

    fn check(checks: &str, passed: usize, findings: &[&str]) {
        let mut results = Results::default();
        results.add("ping-2026-01-31T10-00-00-000Z", checks);
        let label = |kind| if kind == Kind::Failure { "FAILED" } else { "warning" };
        let got =
            results.findings.iter().map(|t| format!("{} {}", label(t.kind), t.what)).collect::<Vec<_>>();
        assert_eq!((results.scenarios, results.passed), (1, passed), "{checks}");
        assert_eq!(got, findings, "{checks}");
    }
}
