//! The rule that `docs/behaviour.md` names tests that exist.

use super::Finding;
use super::repo::Repo;

const PAGE: &str = "docs/behaviour.md";
const REMEDY: &str = "name the test that shows the behaviour, after the file that contains it";

pub(super) fn names_tests_that_exist(repo: &Repo) -> Vec<Finding> {
    let Some(page) = repo.text(PAGE) else { return Vec::new() };
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        let Some((_, shown_by)) = line.trim_end_matches([' ', '|']).rsplit_once(" | ") else { continue };
        // Every other piece is between two backticks.
        let mut file: Option<(&str, &str)> = None;
        let mut tests = 0;
        for word in shown_by.split('`').skip(1).step_by(2) {
            let what = if word.ends_with(".rs") {
                file = repo.text(word).map(|text| (word, text));
                file.is_none().then(|| format!("names `{word}`, which does not exist"))
            } else {
                tests += 1;
                let is_there = file.is_some_and(|(_, text)| text.contains(&format!("fn {word}(")));
                let place = file.map_or("an existing file", |(path, _)| path);
                (!is_there).then(|| format!("names `{word}`, which is not in {place}"))
            };
            findings.extend(what.map(|what| Finding::problem(PAGE, Some(number), what, REMEDY)));
        }
        if tests == 0 && !is_frame(line) {
            findings.push(Finding::problem(PAGE, Some(number), "names no test".to_owned(), REMEDY));
        }
    }
    findings
}

/// Returns true for the head of a table and the line below it.
fn is_frame(line: &str) -> bool {
    line == "| what | shown by |" || line.starts_with("|---")
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn names_are_looked_up() {
        let case = |row: &str, expect: &[&str]| {
            let page = format!("# x\n\n| what | shown by |\n|---|---|\n{row}\n");
            let files =
                [("docs/behaviour.md", &*page), ("a.rs", "async fn one(x: X) {}"), ("b.rs", "fn two() {}")];
            check(names_tests_that_exist, &Repo::of_files(&files), expect);
        };
        case("| w | `a.rs` `one`; `b.rs` `two` |", &[]);
        case("| `retry` is kept to | `a.rs` `one` |", &[]);
        case("| w | `a.rs` `one`, `two` |", &["docs/behaviour.md:5: names `two`, which is not in a.rs"]);
        case("| w | `a.rs` `on` |", &["docs/behaviour.md:5: names `on`, which is not in a.rs"]);
        case(
            "| w | `c.rs` `one` |",
            &[
                "docs/behaviour.md:5: names `c.rs`, which does not exist",
                "docs/behaviour.md:5: names `one`, which is not in an existing file",
            ],
        );
        case("| w | `a.rs` |", &["docs/behaviour.md:5: names no test"]);
        case("| w | nothing |", &["docs/behaviour.md:5: names no test"]);
    }
}
