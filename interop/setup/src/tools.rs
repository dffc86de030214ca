//! The table of external tools that test suites and SDK programs need.

use std::process::{Command, Stdio};

/// Tools beyond cargo. To add one, add a row. A missing tool skips a suite on a developer's machine
/// and fails it in CI. Where Debian packages may be installed, `xtask` installs it first.
pub const TOOLS: &[Tool] = &[
    tool("rustfmt", &["cargo", "fmt", "--version"], "rustup component add rustfmt", None),
    tool("clippy", &["cargo", "clippy", "--version"], "rustup component add clippy", None),
    tool("node", &["node", "--version"], "https://nodejs.org, or your package manager", Some("nodejs")),
    tool(
        "python3",
        &["python3", "--version"],
        "https://python.org, or your package manager",
        Some("python3"),
    ),
    tool("npm", &["npm", "--version"], "comes with node, or your package manager", Some("npm")),
    tool(
        "python3-venv",
        &["python3", "-c", "import ensurepip, venv"],
        "your package manager",
        Some("python3-venv"),
    ),
    tool("go", &["go", "version"], "https://go.dev, or your package manager", Some("golang-go")),
    tool(
        "jdk",
        &["javac", "-version"],
        "Java 17 or newer: your package manager",
        Some("default-jdk-headless"),
    ),
    tool("mvn", &["mvn", "--version"], "Maven: your package manager", Some("maven")),
    tool(
        "redis-server",
        &["redis-server", "--version"],
        "your package manager, version 7 or later",
        Some("redis-server"),
    ),
    tool(
        "redis-cli",
        &["redis-cli", "--version"],
        "comes with Redis, or your package manager",
        Some("redis-tools"),
    ),
    tool(
        "postgres",
        // Debian does not put it on the search path.
        &["sh", "-c", "command -v initdb || ls /usr/lib/postgresql/*/bin/initdb"],
        "your package manager, version 14 or later",
        Some("postgresql"),
    ),
    tool("nginx", &["nginx", "-v"], "your package manager", Some("nginx")),
    tool("valgrind", &["valgrind", "--version"], "your package manager (not on Windows)", Some("valgrind")),
];

#[derive(Debug)]
pub struct Tool {
    pub name: &'static str,
    /// A command that succeeds where the tool is usable.
    pub probe: &'static [&'static str],
    /// How a person gets the tool.
    pub get: &'static str,
    /// The Debian package that contains the tool.
    pub debian: Option<&'static str>,
}

const fn tool(
    name: &'static str,
    probe: &'static [&'static str],
    get: &'static str,
    debian: Option<&'static str>,
) -> Tool {
    Tool { name, probe, get, debian }
}

impl Tool {
    pub fn is_usable(&self) -> bool {
        let [program, args @ ..] = self.probe else { return true };
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// Returns the tools among `names` that are not usable on this machine.
pub fn missing(names: &[&str]) -> Vec<&'static Tool> {
    TOOLS.iter().filter(|tool| names.contains(&tool.name) && !tool.is_usable()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_usable_if_its_probe_succeeds() {
        let usable = |probe| tool("t", probe, "", None).is_usable();
        assert!(usable(&["cargo", "--version"]));
        assert!(!usable(&["cargo", "xtask-no-such-command"]));
        assert!(!usable(&["xtask-no-such-program"]));
    }
}
