//! Counts the lines of the product, without tests and test support.

use super::repo::Repo;

/// Returns how many lines the sources of the crates have: with comments and blank lines, without
/// test modules, the folders `tests` and `testing`, and files called `tests` or `*_tests`.
pub(super) fn count(repo: &Repo) -> usize {
    let files = repo.rust_files().filter(|file| is_production(&file.path));
    files.map(|file| lines_outside_tests(&file.text)).sum()
}

fn is_production(path: &str) -> bool {
    let mut parts = path.trim_end_matches(".rs").split('/').skip_while(|part| *part != "src");
    path.starts_with("crates/")
        && parts.next().is_some()
        && !parts.any(|part| matches!(part, "tests" | "testing") || part.ends_with("_tests"))
}

fn lines_outside_tests(text: &str) -> usize {
    let mut lines = text.lines().peekable();
    let mut count = 0;
    while let Some(line) = lines.next() {
        let opens_tests = |next: &&str| next.trim_start().starts_with("mod ") && next.ends_with('{');
        if line.trim() == "#[cfg(test)]" && lines.peek().is_some_and(opens_tests) {
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            lines.by_ref().find(|line| *line == end);
        } else {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::repo::TextFile;

    #[test]
    fn tests_do_not_count() {
        let unit = "//! Doc.\n\nfn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() {\n    }\n}\nfn h() {}\n";
        for (path, text, expect) in [
            ("crates/a/src/lib.rs", unit, 5),
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod tests;\n", 2),
            ("crates/a/src/b/tests/c.rs", unit, 0),
            ("crates/a/src/b/tests.rs", unit, 0),
            ("crates/a/src/router_tests.rs", unit, 0),
            ("crates/a/src/testing/server.rs", unit, 0),
            ("crates/a/tests/scripted.rs", unit, 0),
            ("xtask/src/main.rs", unit, 0),
        ] {
            let files = vec![TextFile { path: path.to_owned(), text: text.to_owned() }];
            assert_eq!(count(&Repo { files, ..Repo::default() }), expect, "{path}");
        }
    }
}
