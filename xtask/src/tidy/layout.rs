//! Rules about the layout of text and modules: the width of prose, the place of module files.

use super::Finding;
use super::repo::{Repo, TextFile, numbered};
use super::rust_source::RustSource;

const MAX_WIDTH: usize = 100;
/// Files with comments that start with `#`. A file that starts with `#!` is one of them.
const HASH_COMMENTS: &[&str] = &[".toml", ".sh", ".py", ".yml", ".yaml", "Dockerfile"];
/// Files with comments that start with `//`, or with `*` inside a block comment. Rust is parsed.
const SLASH_COMMENTS: &[&str] = &[".mjs", ".js", ".go", ".java"];

pub(super) fn prose_is_narrow(repo: &Repo) -> Vec<Finding> {
    repo.files.iter().flat_map(wide_lines).collect()
}

fn wide_lines(file: &TextFile) -> Vec<Finding> {
    let is_any = |endings: &[&str]| endings.iter().any(|ending| file.path.ends_with(ending));
    let starts_with = |prefixes: &'static [&'static str]| {
        move |line: &str| prefixes.iter().any(|prefix| line.trim_start().starts_with(prefix))
    };
    let prose: Vec<(usize, &str)> = if file.path.ends_with(".md") {
        markdown_prose(&file.text)
    } else if file.path.ends_with(".rs") {
        let source = RustSource::new(&file.text);
        let comments = source.comments.lines().map(|line| line.trim_start().starts_with("//"));
        numbered(&file.text)
            .zip(comments)
            .filter_map(|(line, is_comment)| is_comment.then_some(line))
            .collect()
    } else if is_any(HASH_COMMENTS) || file.text.starts_with("#!") {
        numbered(&file.text).filter(|(_, line)| starts_with(&["#"])(line)).collect()
    } else if is_any(SLASH_COMMENTS) {
        numbered(&file.text).filter(|(_, line)| starts_with(&["//", "* ", "/*"])(line)).collect()
    } else {
        Vec::new()
    };
    let wide = prose.into_iter().filter(|(_, line)| line.chars().count() > MAX_WIDTH && can_wrap(line));
    let finding = |(number, line): (usize, &str)| {
        let what = format!("is {} columns wide, more than {MAX_WIDTH}", line.chars().count());
        Finding::problem(&file.path, Some(number), what, "wrap the text at 100 columns")
    };
    wide.map(finding).collect()
}

/// Returns the lines of a Markdown document outside code blocks and tables.
fn markdown_prose(text: &str) -> Vec<(usize, &str)> {
    let mut prose = Vec::new();
    let (mut fenced, mut may_be_indented_code) = (false, true);
    for (number, line) in numbered(text) {
        let start = line.trim_start();
        let is_fence = start.starts_with("```") || start.starts_with("~~~");
        let is_indented_code = may_be_indented_code && line.starts_with("    ");
        if !is_fence && !fenced && !is_indented_code && !start.starts_with('|') {
            prose.push((number, line));
        }
        fenced ^= is_fence;
        may_be_indented_code = line.trim().is_empty() || is_indented_code;
    }
    prose
}

/// Returns false for a line that is a single word or a single link.
fn can_wrap(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!', '#', '*', '-', '>']).trim();
    let is_link =
        text.starts_with(['[', '!']) && text.matches("](").count() == 1 && text.ends_with([')', '.']);
    let is_link_target =
        text.starts_with('[') && text.split_once("]: ").is_some_and(|(_, url)| !url.contains(' '));
    text.contains(' ') && !is_link && !is_link_target
}

/// A module with children is `foo/mod.rs`. A file in `tests` is the root of a test, which cargo
/// finds there; its modules may be in a folder of the same name.
pub(super) fn modules_are_folders(repo: &Repo) -> Vec<Finding> {
    let is_test_root = |path: &str| path.rsplit('/').nth(1) == Some("tests");
    let has_folder = |file: &&TextFile| {
        let folder = format!("{}/", file.path.trim_end_matches(".rs"));
        !is_test_root(&file.path) && repo.rust_files().any(|other| other.path.starts_with(&folder))
    };
    let finding = |file: &TextFile| {
        let what = "is beside a folder of the same name".to_owned();
        let remedy = "move it into the folder as mod.rs";
        Finding::problem(&file.path, Some(1), what, remedy)
    };
    repo.rust_files().filter(has_folder).map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn width() {
        let case = |path: &str, line: &str, wide: bool| {
            let line = line.replace("LONG", &"word ".repeat(20));
            let expect = format!("{path}:2: is {} columns wide, more than 100", line.chars().count());
            let repo = Repo::of_files(&[(path, &format!("x\n{line}\n"))]);
            check(prose_is_narrow, &repo, &[&*expect][..usize::from(wide)]);
        };
        for (path, line) in [
            ("a.md", "LONG."),
            ("a.md", "- see [a](b), LONG"),
            ("a.rs", "    /// LONG"),
            ("a.rs", "//! LONG"),
            ("a.toml", "# LONG"),
            ("a.py", "  # LONG"),
            ("a.go", "// LONG"),
            ("A.java", " * LONG"),
        ] {
            case(path, line, true);
        }
        let url = format!("https://example.org/{}", "x".repeat(100));
        for (path, line) in [
            ("a.md", "| LONG |"),
            ("a.md", "```\nLONG\n```"),
            ("a.md", "\n    LONG\n    LONG"),
            ("a.md", &format!("- [a b c]({url})")),
            ("a.md", &format!("[a]: {url}")),
            ("a.rs", &format!("// {url}")),
            ("a.rs", "f(\"// LONG\"); f(\"LONG\");"),
            ("a.toml", "a = \"LONG\""),
            ("a.lock", "# LONG"),
            ("a.md", &"ä".repeat(90)),
        ] {
            case(path, line, false);
        }
    }

    #[test]
    fn module_files() {
        let case = |paths: &[&str], expect: &[&str]| {
            let files: Vec<(&str, &str)> = paths.iter().map(|path| (*path, "")).collect();
            check(modules_are_folders, &Repo::of_files(&files), expect);
        };
        case(&["src/foo/mod.rs", "src/foo/a.rs", "src/food.rs"], &[]);
        case(&["src/foo.rs", "src/foo/a.rs"], &["src/foo.rs:1: is beside a folder of the same name"]);
        case(&["tests/a.rs", "tests/a/b/c.rs"], &[]);
        case(&["src/foo.rs", "src/foo/a.sql"], &[]);
    }
}
