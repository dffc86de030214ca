//! The command line: exit codes and error messages.

use std::process::{Command, Output};

fn steadfast(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
    command.args(arguments).output().expect("the binary starts")
}

/// Checks the exit code and the start of stderr.
fn check(arguments: &[&str], code: i32, expect: &str) {
    let output = steadfast(arguments);
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert!(text.starts_with(expect), "{arguments:?}: {text}");
}

#[test]
fn wrong_flags_are_explained() {
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
        "error: /no/such/file: No such file or directory (os error 2)\n  try: the path of a configuration file",
    );
    check(&["serve", "--stdio", "'open"], 2, "error: a quote is not closed in: 'open\n");
    check(
        &["serve", "--stdio", ""],
        2,
        "error: --stdio: endpoint[0].stdio.command: the program is not set\n",
    );
    check(
        &["serve", "--upstream", "nowhere"],
        2,
        "error: --upstream: endpoint[0].upstream[0]: \"nowhere\" is not the URL of a server\n  try: http://HOST:PORT/PATH, or https://HOST/PATH\n",
    );
    check(
        &["serve", "--demo", "--store", "memory:", "--listen", "192.0.2.1:1"],
        1,
        "error: cannot listen on 192.0.2.1:1: ",
    );
}

#[test]
fn config_check_reports_faults_and_identities() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("steadfast.toml");
    let name = path.to_str().unwrap();
    std::fs::write(&path, "lisen = \"127.0.0.1:1\"\n").unwrap();
    check(
        &["config", "check", name],
        2,
        &format!("error: {name}:1:1: lisen: unknown key\n  try: did you mean `listen`?\n"),
    );
    std::fs::write(&path, "[[endpoint]]\nstdio = { command = \"no-such-program\" }\n").unwrap();
    let message = "endpoint[0].stdio.command: no program \"no-such-program\" is in the PATH of the program\n";
    check(&["config", "check", name], 2, &format!("error: {name}:2:21: {message}"));
    // A file without permission to execute.
    let text = format!("[[endpoint]]\nstdio = {{ command = {name:?} }}\n");
    std::fs::write(&path, text).unwrap();
    let message = format!("endpoint[0].stdio.command: {name} is not an executable file\n");
    check(&["config", "check", name], 2, &format!("error: {name}:2:21: {message}"));
    std::fs::write(&path, "[[endpoint]]\nstdio = { command = \"sh\" }\n").unwrap();
    let output = steadfast(&["config", "check", name]);
    let message = String::from_utf8(output.stdout).unwrap();
    let rest =
        message.strip_prefix(&format!("{name}: no faults, 1 endpoint(s)\n  /mcp  id = \"")).expect(&message);
    let id = rest.strip_suffix("\"\n").expect(&message);
    assert!(id.len() == 16 && id.chars().all(|c| c.is_ascii_hexdigit()), "{message}");
    assert_eq!(output.status.code(), Some(0));
    check(&["config", "check", "/no/such/file"], 2, "error: /no/such/file: ");
}

/// Only in a checkout, and if git is installed.
#[test]
fn the_version_has_the_commit() {
    let git = Command::new("git").args(["log", "-1", "--abbrev=12", "--format=%h %cs"]).output();
    let commit = git.ok().filter(|output| output.status.success());
    let commit = commit.and_then(|output| String::from_utf8(output.stdout).ok());
    let commit =
        std::env::var("STEADFAST_COMMIT").ok().or(commit).map(|commit| format!(" ({})", commit.trim()));
    let message = String::from_utf8(steadfast(&["--version"]).stdout).unwrap();
    assert_eq!(message, format!("steadfast {}{}\n", env!("CARGO_PKG_VERSION"), commit.unwrap_or_default()));
}

#[test]
fn the_schema_is_json() {
    let output = steadfast(&["config", "schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema["properties"]["listen"]["default"], "127.0.0.1:7411");
}

#[test]
fn tokens_cannot_be_described_by_flags() {
    check(
        &["serve", "--demo", "--auth", "jwt"],
        2,
        "error: --demo: endpoint[0].jwt.resource: the resource that tokens are for is not set\n  try: --config FILE, in which [endpoint.jwt] has resource = ",
    );
}

#[test]
fn the_short_example_leads_to_the_full_one() {
    let print = |arguments: &[&str]| String::from_utf8(steadfast(arguments).stdout).expect("text");
    let (short, full) = (print(&["config", "example"]), print(&["config", "example", "--all"]));
    assert!(short.contains("config example --all") && short.lines().count() <= 80, "{short}");
    assert!(full.contains("[endpoint.health_check]") && full.lines().count() > 150, "{full}");
}
