//! The page that says which test shows what names tests that are there.

use super::Finding;
use super::repo::Repo;

const PAGE: &str = "docs/behaviour.md";
const REMEDY: &str = "name the test that shows it, behind the file that it is in";

pub(super) fn names_tests_that_are_there(repo: &Repo) -> Vec<Finding> {
    let Some(page) = repo.text(PAGE) else { return Vec::new() };
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        let Some((_, shown_by)) = line.trim_end_matches([' ', '|']).rsplit_once(" | ") else { continue };
        // What is between two backticks is every other piece.
        let mut file: Option<(&str, &str)> = None;
        let mut tests = 0;
        for word in shown_by.split('`').skip(1).step_by(2) {
            let what = if word.ends_with(".rs") {
                file = repo.text(word).map(|text| (word, text));
                file.is_none().then(|| format!("names `{word}`, which is not there"))
            } else {
                tests += 1;
                let is_there = file.is_some_and(|(_, text)| text.contains(&format!("fn {word}(")));
                let place = file.map_or("any file that is", |(path, _)| path);
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

/// The head of a table, or the line below it.
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
            check(names_tests_that_are_there, &Repo::of_files(&files), expect);
        };
        case("| w | `a.rs` `one`; `b.rs` `two` |", &[]);
        case("| `retry` is kept to | `a.rs` `one` |", &[]);
        case("| w | `a.rs` `one`, `two` |", &["docs/behaviour.md:5: names `two`, which is not in a.rs"]);
        case("| w | `a.rs` `on` |", &["docs/behaviour.md:5: names `on`, which is not in a.rs"]);
        case(
            "| w | `c.rs` `one` |",
            &[
                "docs/behaviour.md:5: names `c.rs`, which is not there",
                "docs/behaviour.md:5: names `one`, which is not in any file that is",
            ],
        );
        case("| w | `a.rs` |", &["docs/behaviour.md:5: names no test"]);
        case("| w | nothing |", &["docs/behaviour.md:5: names no test"]);
    }
}
