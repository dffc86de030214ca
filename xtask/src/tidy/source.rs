//! Rules about source files: length, clocks, unfinished code, paths of a machine, `unsafe`.

use super::Finding;
use super::repo::{Repo, TextFile, numbered};
use super::rust_source::{RustSource, has_word};

const MAX_LINES: usize = 600;
const LONG_LINES: usize = 400;

/// Folders in which time is an argument.
const TIMELESS: &[&str] = &["crates/wire/", "crates/session/", "crates/store/src/"];
const CLOCKS: &[&str] = &["Instant::now", "SystemTime::now"];

/// Signs of unfinished code. The marker is split, so that the rule does not find this file.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "#[ignore"];
const MARKER: &str = concat!("FIX", "ME");

/// Prefixes of home folders, split like the marker.
const HOMES: &[&str] =
    &[concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/ro", "ot/"), concat!("\\Us", "ers\\")];

const FORBID_UNSAFE: &str = "#![forbid(unsafe_code)]";

pub(super) fn files_are_short(repo: &Repo) -> Vec<Finding> {
    let judge = |file: &TextFile| match file.text.lines().count() {
        lines if lines > MAX_LINES => Some(Finding::problem(
            &file.path,
            None,
            format!("has {lines} lines, more than {MAX_LINES}"),
            "split it: one type with its error per file, long tests in NAME/tests.rs",
        )),
        lines if lines > LONG_LINES => {
            Some(Finding::note(&file.path, format!("has {lines} lines, more than {LONG_LINES}")))
        }
        _ => None,
    };
    repo.rust_files().filter_map(judge).collect()
}

pub(super) fn time_is_injected(repo: &Repo) -> Vec<Finding> {
    let is_timeless = |file: &&TextFile| TIMELESS.iter().any(|folder| file.path.starts_with(folder));
    let remedy = "take `now` as an argument; the engine's clock is the only one";
    let clocks = |file| words_in_code(file, CLOCKS, "reads a clock", remedy);
    repo.rust_files().filter(is_timeless).flat_map(clocks).collect()
}

pub(super) fn nothing_is_unfinished(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repo.rust_files() {
        let remedy = "finish it or remove it; what is left for later belongs in an issue";
        findings.extend(words_in_code(file, UNFINISHED, "is unfinished", remedy));
        for (line, text) in numbered(&file.text) {
            if text.contains(MARKER) {
                let what = format!("is unfinished: `{MARKER}`");
                findings.push(Finding::problem(&file.path, Some(line), what, remedy));
            }
        }
    }
    findings
}

pub(super) fn no_home_paths(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &repo.files {
        for (line, text) in numbered(&file.text) {
            if let Some(home) = HOMES.iter().find(|home| names_path_under(text, home)) {
                let what = format!("names a path of one machine: `{home}...`");
                let remedy = "write it relative to the repository, or use ~, $HOME or a temporary folder";
                findings.push(Finding::problem(&file.path, Some(line), what, remedy));
            }
        }
    }
    findings
}

pub(super) fn unsafe_is_forbidden(repo: &Repo) -> Vec<Finding> {
    let roots = repo.workspace.members.iter().flat_map(|member| &member.roots);
    let unguarded = roots.filter(|root| {
        let text = repo.text(root).unwrap_or_default();
        !RustSource::new(text).code.lines().any(|line| line.trim() == FORBID_UNSAFE)
    });
    let finding = |root: &String| {
        let what = "does not forbid unsafe code".to_owned();
        Finding::problem(root, Some(1), what, "put `#![forbid(unsafe_code)]` after the crate's documentation")
    };
    unguarded.map(finding).collect()
}

fn words_in_code(file: &TextFile, words: &[&str], complaint: &str, remedy: &'static str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, text) in numbered(&RustSource::new(&file.text).code) {
        for word in words.iter().filter(|word| has_word(text, word)) {
            findings.push(Finding::problem(&file.path, Some(line), format!("{complaint}: `{word}`"), remedy));
        }
    }
    findings
}

/// Returns true if `home` is followed by a name and is not a later part of a longer path or
/// address.
fn names_path_under(line: &str, home: &str) -> bool {
    line.match_indices(home).any(|(at, _)| {
        let is_part = line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.~})>*".contains(c));
        let is_named = line[at + home.len()..].starts_with(|c: char| c.is_alphanumeric() || "._".contains(c));
        is_named && !is_part
    })
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::super::workspace::Package;
    use super::*;

    #[test]
    fn length_of_files() {
        let case = |path, lines, expect: &[&str]| {
            check(files_are_short, &Repo::of_files(&[(path, &"x\n".repeat(lines))]), expect);
        };
        case("a.rs", 400, &[]);
        case("a.rs", 401, &["note: a.rs: has 401 lines, more than 400"]);
        case("a.rs", 600, &["note: a.rs: has 600 lines, more than 400"]);
        case("a.rs", 601, &["a.rs: has 601 lines, more than 600"]);
        case("a.md", 601, &[]);
    }

    #[test]
    fn clocks() {
        let case = |path, text, expect: &[&str]| {
            check(time_is_injected, &Repo::of_files(&[(path, text)]), expect);
        };
        let clock = "fn f() {\n  let x = std::time::Instant::now();\n}";
        case("crates/wire/src/a.rs", clock, &["crates/wire/src/a.rs:2: reads a clock: `Instant::now`"]);
        case(
            "crates/session/tests/a.rs",
            clock,
            &["crates/session/tests/a.rs:2: reads a clock: `Instant::now`"],
        );
        case(
            "crates/store/src/a.rs",
            "SystemTime::now()",
            &["crates/store/src/a.rs:1: reads a clock: `SystemTime::now`"],
        );
        case("crates/store/tests/a.rs", clock, &[]);
        case("crates/engine/src/a.rs", clock, &[]);
        case("crates/wire/src/a.rs", "/// like Instant::now()\nfn f(now: Instant) {}", &[]);
    }

    #[test]
    fn unfinished_code() {
        let case = |text: &str, expect: &[&str]| {
            check(nothing_is_unfinished, &Repo::of_files(&[("a.rs", text)]), expect);
        };
        case("fn f() { todo!() }", &["a.rs:1: is unfinished: `todo!`"]);
        case("fn f() {\n  unimplemented!(\"x\") }", &["a.rs:2: is unfinished: `unimplemented!`"]);
        case("#[test]\n#[ignore = \"slow\"]", &["a.rs:2: is unfinished: `#[ignore`"]);
        case(&format!("// {MARKER} later"), &[&format!("a.rs:1: is unfinished: `{MARKER}`")]);
        case("// no todo! here\nlet x = \"#[ignore]\"; not_todo!();", &[]);
    }

    #[test]
    fn home_paths() {
        let case = |text: String, expect: &[&str]| {
            check(no_home_paths, &Repo::of_files(&[("a.toml", &text)]), expect);
        };
        for home in HOMES {
            let expect = format!("a.toml:2: names a path of one machine: `{home}...`");
            case(format!("x\ny = \"{home}ana/x\""), &[&expect]);
            case(format!("file://{home}ana"), &[&expect.replace(":2:", ":1:")]);
            case(format!("`{home}`"), &[]);
            case(format!("https://example.org{home}ana and $X}}{home}ana"), &[]);
        }
    }

    #[test]
    fn forbidden_unsafe() {
        let case = |text, expect: &[&str]| {
            let repo = Repo::of_files(&[("crates/a/src/lib.rs", text)]);
            check(unsafe_is_forbidden, &repo.with_member(Package::sample("a", "crates/a", &[])), expect);
        };
        case("//! Doc.\n\n#![forbid(unsafe_code)]\n", &[]);
        case("//! #![forbid(unsafe_code)]\n", &["crates/a/src/lib.rs:1: does not forbid unsafe code"]);
        case("#![deny(unsafe_code)]\n", &["crates/a/src/lib.rs:1: does not forbid unsafe code"]);
    }
}
