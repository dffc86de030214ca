//! What people type, and what they are told.

use std::process::{Command, Output};

fn steadfast(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
    command.args(arguments).output().expect("the binary starts")
}

/// How it ended, and what it says first on stderr.
fn check(arguments: &[&str], code: i32, expect: &str) {
    let output = steadfast(arguments);
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(text.starts_with(expect), "{arguments:?}: {text}");
}

#[test]
fn a_wrong_command_says_what_is_wrong() {
    check(
        &["serve"],
        2,
        "error: the following required arguments were not provided:\n  <--upstream <URL>|--stdio <COMMAND>|--config <FILE>|--demo>",
    );
    check(
        &["serve", "--demo", "--upstream", "http://a/"],
        2,
        "error: the argument '--demo' cannot be used with '--upstream <URL>'",
    );
    check(
        &["serve", "--config", "x", "--path", "/x"],
        2,
        "error: the argument '--config <FILE>' cannot be used with '--path <PATH>'",
    );
    check(
        &["serve", "--config", "/no/such/file"],
        2,
        "error: /no/such/file: No such file or directory (os error 2)\n  try: the path of a file",
    );
    check(&["serve", "--stdio", "'open"], 2, "error: a quote is not closed in: 'open\n");
    check(&["serve", "--stdio", ""], 2, "error: --stdio: endpoint[0].stdio.command: there is no program\n");
    check(
        &["serve", "--upstream", "nowhere"],
        2,
        "error: --upstream: endpoint[0].upstream[0]: \"nowhere\" is not the address of a server\n  try: http://HOST:PORT/PATH, or https://HOST/PATH\n",
    );
    check(
        &["serve", "--demo", "--store", "memory:", "--listen", "192.0.2.1:1"],
        1,
        "error: cannot listen on 192.0.2.1:1: ",
    );
}

#[test]
fn a_file_is_checked_without_being_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("steadfast.toml");
    let name = path.to_str().unwrap();
    std::fs::write(&path, "lisen = \"127.0.0.1:1\"\n").unwrap();
    check(
        &["config", "check", name],
        2,
        &format!("error: {name}:1:1: lisen: there is no such key\n  try: did you mean `listen`?\n"),
    );
    std::fs::write(&path, "[[endpoint]]\nstdio = { command = \"no-such-program\" }\n").unwrap();
    let told = "endpoint[0].stdio.command: no program \"no-such-program\" is in its PATH\n";
    check(&["config", "check", name], 2, &format!("error: {name}:2:21: {told}"));
    // A file that may not be run.
    let text = format!("[[endpoint]]\nstdio = {{ command = {name:?} }}\n");
    std::fs::write(&path, text).unwrap();
    let told = format!("endpoint[0].stdio.command: {name} is no file that can be run\n");
    check(&["config", "check", name], 2, &format!("error: {name}:2:21: {told}"));
    std::fs::write(&path, "[[endpoint]]\nstdio = { command = \"sh\" }\n").unwrap();
    let output = steadfast(&["config", "check", name]);
    let told = String::from_utf8(output.stdout).unwrap();
    let rest = told.strip_prefix(&format!("{name}: fine, 1 endpoint(s)\n  /mcp  id = \"")).expect(&told);
    let id = rest.strip_suffix("\"\n").expect(&told);
    assert!(id.len() == 16 && id.chars().all(|c| c.is_ascii_hexdigit()), "{told}");
    assert_eq!(output.status.code(), Some(0));
    check(&["config", "check", "/no/such/file"], 2, "error: /no/such/file: ");
}

/// Where there is a checkout, and git to ask.
#[test]
fn the_version_has_the_commit() {
    let git = Command::new("git").args(["log", "-1", "--abbrev=12", "--format=%h %cs"]).output();
    let asked = git.ok().filter(|output| output.status.success());
    let asked = asked.and_then(|output| String::from_utf8(output.stdout).ok());
    let commit =
        std::env::var("STEADFAST_COMMIT").ok().or(asked).map(|commit| format!(" ({})", commit.trim()));
    let told = String::from_utf8(steadfast(&["--version"]).stdout).unwrap();
    assert_eq!(told, format!("steadfast {}{}\n", env!("CARGO_PKG_VERSION"), commit.unwrap_or_default()));
}

#[test]
fn the_schema_is_one() {
    let output = steadfast(&["config", "schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["properties"]["listen"]["default"], "127.0.0.1:7411");
}

#[test]
fn tokens_need_a_file() {
    check(
        &["serve", "--demo", "--auth", "jwt"],
        2,
        "error: --demo: endpoint[0].jwt.resource: it is not said what tokens have to be for\n  try: --config FILE, in which [endpoint.jwt] has resource = ",
    );
}
