//! The examples in the manual: its files have no faults, and its commands can be parsed.

use clap::Parser as _;

use super::*;
use crate::cli::Cli;

const MANUAL: &str = include_str!("../../../../../docs/gateway.md");
const README: &str = include_str!("../../../../../README.md");

/// The code blocks of this language.
fn blocks<'a>(page: &'a str, language: &'a str) -> impl Iterator<Item = &'a str> {
    let fences = page.split("```").skip(1).step_by(2);
    fences.filter_map(move |block| block.strip_prefix(language)?.strip_prefix('\n'))
}

#[test]
fn its_files_have_no_faults() {
    let files: Vec<&str> = blocks(MANUAL, "toml").collect();
    assert!(files.len() >= 4);
    for text in files {
        let found = faults(text, &[("SERVER_TOKEN", "Bearer x")], &[]);
        // The certificates of the examples do not exist.
        let is_absent =
            |fault: &&String| fault.contains(": /etc/steadfast/") && fault.contains(" cannot be read: ");
        let found: Vec<&String> = found.iter().filter(|fault| !is_absent(fault)).collect();
        assert!(found.is_empty(), "{text}\n{found:?}");
    }
}

#[test]
fn its_commands_can_be_parsed() {
    let pages = [MANUAL, README];
    let lines = pages.iter().flat_map(|page| blocks(page, "sh")).flat_map(str::lines);
    let ours: Vec<&str> = lines.filter(|line| line.starts_with("steadfast ")).collect();
    assert!(ours.len() >= 6);
    for line in ours {
        let words = shlex::split(line).expect("balanced quotes");
        let words = words.into_iter().take_while(|word| word != "#");
        Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}\n{error}"));
    }
}
