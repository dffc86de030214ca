//! One injected bug: a patch file with a header that says what the bug is and which promise it
//! violates.
//!
//! ```text
//! Bug: a resumed stream starts with the event that the client already has
//! Violates: order
//! Options: --calls 300
//!
//! diff --git a/crates/session/src/calls.rs b/crates/session/src/calls.rs
//! ```
//!
//! `Violates` lists promises of `steadfast-verify`, separated by commas. One of them must be
//! violated. `Options` is optional: options of the chaos run.
//!
//! Patches have no context lines, so a patch survives edits of the lines around it. Therefore each
//! hunk must replace at least one line, and the replaced lines must occur once in their file.

use std::fs;
use std::path::{Path, PathBuf};

use super::source_copy;
use crate::failure::Failure;
use crate::run;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bug {
    pub(super) name: String,
    /// What the gateway does wrong.
    pub(super) summary: String,
    /// The promises of which one must be violated.
    pub(super) violates: Vec<String>,
    /// Additional options of the chaos run.
    pub(super) options: Vec<String>,
    text: String,
}

/// Lines that a patch replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk<'a> {
    /// The path of the file, relative to the root of the source tree.
    path: &'a str,
    old: Vec<&'a str>,
}

impl Bug {
    /// Reads all patches of a source tree, in the order of their names.
    pub(super) fn load_all(source: &Path) -> Result<Vec<Self>, Failure> {
        let mut bugs = Vec::new();
        for entry in fs::read_dir(folder(source))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "patch") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                bugs.push(Self::parse(&name, fs::read_to_string(&path)?)?);
            }
        }
        bugs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(bugs)
    }

    fn parse(name: &str, text: String) -> Result<Self, Failure> {
        let field = |key: &str| {
            let mut header = text.lines().take_while(|line| !line.starts_with("diff "));
            header.find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))
        };
        let required = |key: &str| {
            field(key).ok_or_else(|| Failure::bug(name, format!("the header has no line `{key}: `")))
        };
        let summary = required("Bug")?.to_owned();
        let violates: Vec<String> = required("Violates")?.split(", ").map(str::to_owned).collect();
        let promises = run::promises();
        if let Some(unknown) = violates.iter().find(|promise| !promises.contains(&promise.as_str())) {
            let known = promises.join(", ");
            return Err(Failure::bug(name, format!("there is no promise `{unknown}`; promises: {known}")));
        }
        let options = field("Options").unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        Ok(Self { name: name.to_owned(), summary, violates, options, text })
    }

    /// Returns why the patch does not apply to the source tree, as a text that names the bug.
    pub(super) fn check(&self, source: &Path) -> Result<(), String> {
        let fails = |why: String| Failure::bug(&self.name, why).to_string();
        let hunks = self.hunks();
        if hunks.is_empty() {
            return Err(fails("the patch changes nothing".to_owned()));
        }
        for Hunk { path, old } in hunks {
            let text = fs::read_to_string(source.join(path))
                .map_err(|error| fails(format!("{path} cannot be read: {error}")))?;
            let lines: Vec<&str> = text.lines().collect();
            let places =
                if old.is_empty() { 0 } else { lines.windows(old.len()).filter(|at| *at == old).count() };
            if places != 1 {
                let old = old.join("\n");
                return Err(fails(format!("{path} must have these lines once, not {places} times:\n{old}")));
            }
        }
        source_copy::check(source, self).map_err(|failure| failure.to_string())
    }

    pub(super) fn has_diff(&self) -> bool {
        !self.diff().is_empty()
    }

    pub(super) fn diff(&self) -> &str {
        self.text.find("diff --git ").map_or("", |at| &self.text[at..])
    }

    /// Returns this bug with another diff.
    pub(super) fn with_diff(&self, diff: &str) -> Result<Self, Failure> {
        let header = &self.text[..self.text.len() - self.diff().len()];
        // The hashes of the files would change with every edit of the files.
        let lines = diff.lines().filter(|line| !line.starts_with("index "));
        let diff: String = lines.flat_map(|line| [line, "\n"]).collect();
        Self::parse(&self.name, format!("{}\n\n{diff}", header.trim_end()))
    }

    pub(super) fn write(&self, source: &Path) -> Result<(), Failure> {
        Ok(fs::write(self.path(source), &self.text)?)
    }

    pub(super) fn path(&self, source: &Path) -> PathBuf {
        folder(source).join(format!("{}.patch", self.name))
    }

    fn hunks(&self) -> Vec<Hunk<'_>> {
        let mut hunks: Vec<Hunk<'_>> = Vec::new();
        let mut path = "";
        for line in self.diff().lines() {
            if let Some(file) = line.strip_prefix("--- a/") {
                path = file;
            } else if line.starts_with("@@ ") {
                hunks.push(Hunk { path, old: Vec::new() });
            } else if let (Some(old), Some(hunk)) = (line.strip_prefix(['-', ' ']), hunks.last_mut()) {
                hunk.old.push(old);
            }
        }
        hunks
    }
}

fn folder(source: &Path) -> PathBuf {
    source.join("chaos").join("bugs")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "\
Bug: two is three
Violates: order, duplicates
Options: --calls 7

diff --git a/src/a.rs b/src/a.rs
index 0123456..789abcd 100644
--- a/src/a.rs
+++ b/src/a.rs
@@ -2 +2 @@ fn f() {
-two
+three
";

    #[test]
    fn a_header_is_parsed() {
        let bug = Bug::parse("b", PATCH.to_owned()).unwrap();
        assert_eq!(bug.summary, "two is three");
        assert_eq!(bug.violates, ["order", "duplicates"]);
        assert_eq!(bug.options, ["--calls", "7"]);
        assert_eq!(bug.hunks(), [Hunk { path: "src/a.rs", old: vec!["two"] }]);
        for (wrong, why) in [
            (PATCH.replace("Bug: ", ""), "bug b: the header has no line `Bug: `"),
            (PATCH.replace("order", "beauty"), "bug b: there is no promise `beauty`; promises: outcomes"),
        ] {
            let failure = Bug::parse("b", wrong).unwrap_err().to_string();
            assert!(failure.starts_with(why), "{failure}");
        }
    }

    #[test]
    fn a_patch_applies_where_its_old_lines_occur_once() {
        let folder = std::env::temp_dir().join(format!("steadfast-bug-{}", std::process::id()));
        fs::create_dir_all(folder.join("src")).unwrap();
        let bug = Bug::parse("b", PATCH.to_owned()).unwrap();
        let check = |text: &str, expect: Result<(), &str>| {
            fs::write(folder.join("src/a.rs"), text).unwrap();
            assert_eq!(bug.check(&folder), expect.map_err(str::to_owned), "{text:?}");
        };
        check("one\ntwo\nend\n", Ok(()));
        check("one\nmore\nthan\nbefore\ntwo\n", Ok(()));
        check("one\n", Err("bug b: src/a.rs must have these lines once, not 0 times:\ntwo"));
        check("two\ntwo\n", Err("bug b: src/a.rs must have these lines once, not 2 times:\ntwo"));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_new_diff_keeps_the_header() {
        let bug = Bug::parse("b", "Bug: x\nViolates: duplicates\n".to_owned()).unwrap();
        assert!(!bug.has_diff());
        let saved = bug.with_diff("diff --git a/a b/a\nindex 1..2\n--- a/a\n").unwrap();
        assert_eq!(saved.text, "Bug: x\nViolates: duplicates\n\ndiff --git a/a b/a\n--- a/a\n");
    }
}
