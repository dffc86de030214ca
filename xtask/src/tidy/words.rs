//! The rule about words: plain technical English with an actor in each sentence.

use super::Finding;
use super::repo::{Repo, numbered};
use super::rust_source::{RustSource, is_word};

/// This file contains the forbidden words.
const THIS_FILE: &str = "xtask/src/tidy/words.rs";

/// Words without an actor, refused in comments, string literals and documents. The remedy is to
/// name the actor.
const NO_ACTOR: &[(&str, &str)] = &[
    ("whoever", "name the actor: the client, the node, the caller, the reader"),
    ("whomever", "name the actor: the client, the node, the caller, the reader"),
    ("somebody", "name the actor: a client, another node, another process"),
    ("someone", "name the actor: a client, another node, another process"),
    ("nobody", "name the actor: no client, no node, no reader"),
    ("anybody", "name the actor: any client, any node, any reader"),
    ("anyone", "name the actor: any client, any node, any reader"),
];

/// Private words and the words of the field, refused also in names and paths.
const PRIVATE: &[(&str, &str)] = &[
    ("errand", "write `forwarded call`, `prepared call` or `maintenance`"),
    ("rumour", "write `hint`"),
    ("vigil", "write `health check`"),
    ("keepsake", "write `cache`"),
    ("bury", "write `reap`"),
    ("buries", "write `reaps`"),
    ("buried", "write `reaped`"),
    ("burial", "write `reaping`"),
    ("heir", "write `successor`, or `the node that takes over`"),
    ("census", "write `ended sessions`"),
    ("rota", "write `round robin`"),
    ("farewell", "write `close`, `shutdown` or `grace`"),
    ("heritage", "write `reload state`"),
    ("yard", "write `process pool`"),
    ("planted", "write `injected`"),
];

const SAME_FOR: &str = "the same for";
const THE_SAME: &str = "The same";
const REPEAT_THE_NOUN: &str = "repeat the noun and say what this item does";

pub(super) fn are_plain(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repo.files.iter().filter(|file| file.path != THIS_FILE) {
        let mut refuse = |line, what: String, remedy| {
            findings.push(Finding::problem(&file.path, line, what, remedy));
        };
        let rust = file.path.ends_with(".rs").then(|| RustSource::new(&file.text));
        if rust.is_none() && !file.path.ends_with(".md") {
            continue;
        }
        if let Some((word, remedy)) = private_words(&file.path).next() {
            refuse(None, format!("has `{word}` in its path"), remedy);
        }
        let prose =
            rust.as_ref().map_or_else(|| vec![&file.text], |rust| vec![&rust.comments, &rust.literals]);
        for (number, line) in prose.into_iter().flat_map(|text| numbered(text)) {
            for (word, remedy) in words_without_actor(line).chain(private_words(line)) {
                refuse(Some(number), format!("says `{word}`"), remedy);
            }
            if line.to_lowercase().contains(SAME_FOR) {
                refuse(Some(number), format!("says `{SAME_FOR}`"), REPEAT_THE_NOUN);
            }
        }
        let Some(rust) = rust else { continue };
        let mut last = None;
        for (number, line) in numbered(&rust.comments) {
            let comment = doc_comment(line);
            if last.is_none() && comment.is_some_and(|text| text.starts_with(THE_SAME)) {
                refuse(Some(number), format!("is documented with `{THE_SAME}`"), REPEAT_THE_NOUN);
            }
            last = comment;
        }
        for (number, line) in numbered(&rust.code) {
            for (word, remedy) in private_words(line) {
                refuse(Some(number), format!("has `{word}` in a name"), remedy);
            }
        }
    }
    findings
}

type Refused = (&'static str, &'static str);

/// Finds whole words.
fn words_without_actor(line: &str) -> impl Iterator<Item = Refused> {
    let words = line.split(|c| !is_word(c)).map(str::to_lowercase);
    words.filter_map(|word| NO_ACTOR.iter().find(|(refused, _)| word == *refused).copied())
}

/// Finds words and their plurals, also as parts of `snake_case` and `CamelCase` names.
fn private_words(line: &str) -> impl Iterator<Item = Refused> {
    let mut parts = vec![String::new()];
    let mut after_lower = false;
    for c in line.chars() {
        if !c.is_alphabetic() || c.is_uppercase() && after_lower {
            parts.push(String::new());
        }
        after_lower = c.is_lowercase();
        if let Some(part) = parts.last_mut().filter(|_| c.is_alphabetic()) {
            part.extend(c.to_lowercase());
        }
    }
    let is = |part: &str, refused: &str| part == refused || part.strip_suffix('s') == Some(refused);
    parts.into_iter().filter_map(move |part| PRIVATE.iter().find(|(refused, _)| is(&part, refused)).copied())
}

fn doc_comment(line: &str) -> Option<&str> {
    let line = line.trim();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn words() {
        let case = |path, text, expect: &[&str]| check(are_plain, &Repo::of_files(&[(path, text)]), expect);
        case("a.rs", "// The node reaps it.\nfn reap(nobody: u8) {}", &[]);
        case(
            "a.rs",
            "/// Nobody waits.\nf(\"x\", \"whoever\")",
            &["a.rs:1: says `nobody`", "a.rs:2: says `whoever`"],
        );
        case("a.md", "x\nFor anyone.", &["a.md:2: says `anyone`"]);
        case("a.toml", "# somebody", &[]);
        case("a.rs", "//! It is the same for asks.", &["a.rs:1: says `the same for`"]);
        case("a.rs", "// See `Rumours` and to_bury.", &["a.rs:1: says `rumour`", "a.rs:1: says `bury`"]);
        case(
            "a.rs",
            "fn run_errands(YardKey) {}",
            &["a.rs:1: has `errand` in a name", "a.rs:1: has `yard` in a name"],
        );
        case("a.rs", "fn rotate(yards_ticks: Their) { 7.max(theirs) }", &["a.rs:1: has `yard` in a name"]);
        case("a/vigil.rs", "", &["a/vigil.rs: has `vigil` in its path"]);
        case(THIS_FILE, "// nobody", &[]);
    }

    #[test]
    fn doc_comments_that_begin_with_the_same() {
        let case = |text, expect: &[&str]| check(are_plain, &Repo::of_files(&[("a.rs", text)]), expect);
        case("/// The same with a limit.\nfn f() {}", &["a.rs:1: is documented with `The same`"]);
        case("x\n//! The same.\n", &["a.rs:2: is documented with `The same`"]);
        case("/// Counts.\n/// The same call counts once.\n// The same.", &[]);
    }
}
