//! The table of test suites, in the order in which they run: cheap ones first, so that they fail first.
//!
//! To add a suite, add a row to [`SUITES`]; if it needs a tool that is not named yet, add that to [`TOOLS`].

use std::io::Write;
use std::path::Path;

use crate::failure::Failure;
use crate::tidy;

/// The features that every build of the workspace turns on, so that clippy, tests, documentation
/// and the programs of the other suites share what is compiled.
pub(crate) const STORES: &str = "steadfast-upstream/redis,steadfast-upstream/postgres";

/// Tests at a time. Most of them wait for sockets, processes and timers, so more of them than there
/// are processors is faster.
const THREADS: (&str, &str) = ("RUST_TEST_THREADS", "4");

/// What gateways do together, by default on the store that needs no server.
const NODES_TOGETHER: &[&str] = &[
    "cargo",
    "test",
    "--workspace",
    "--locked",
    "--features",
    STORES,
    "--test",
    "scripted",
    "--",
    "annotations::",
    "counted::",
    "heirs::",
    "leases::",
    "mixed::",
    "nodes::",
    "programs::",
    "restarts::",
    "together::",
    "endings::",
];

pub(crate) const SUITES: &[Suite] = &[
    Suite {
        name: "fmt",
        why: "code is formatted in one way",
        needs: &["rustfmt"],
        wants: &[],
        steps: &[run(&["cargo", "fmt", "--all", "--check"])],
    },
    Suite {
        name: "clippy",
        why: "no lint of the workspace is violated",
        needs: &["clippy"],
        wants: &[],
        steps: &[run(&[
            "cargo",
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--features",
            STORES,
            "--",
            "-D",
            "warnings",
        ])],
    },
    Suite {
        name: "tidy",
        why: "rules of this repository that no other tool checks",
        needs: &[],
        wants: &[],
        steps: &[Step::BuiltIn { name: "xtask tidy", run: tidy::step }],
    },
    Suite {
        name: "alone",
        why: "the gateway and the library compile with their own features, without those that other packages turn on",
        needs: &[],
        wants: &[],
        steps: &[
            run(&["cargo", "check", "--locked", "--package", "steadfast-gateway"]),
            run(&["cargo", "check", "--locked", "--package", "steadfast"]),
        ],
    },
    Suite {
        name: "unit",
        why: "unit, integration and documentation tests, on every store whose server is to be had",
        needs: &[],
        wants: &["redis-server", "postgres", "nginx"],
        steps: &[
            // To the end whatever fails: who mends one test wants to know of the others.
            run_with(
                &[THREADS],
                &["cargo", "test", "--workspace", "--locked", "--no-fail-fast", "--features", STORES],
            ),
            run_with(&[THREADS, ("STEADFAST_TEST_STORE", "redis")], NODES_TOGETHER),
            run_with(&[THREADS, ("STEADFAST_TEST_STORE", "postgres")], NODES_TOGETHER),
        ],
    },
    Suite {
        name: "doc",
        why: "the documentation builds without a warning",
        needs: &[],
        wants: &[],
        steps: &[run_with(
            &[("RUSTDOCFLAGS", "-D warnings")],
            &["cargo", "doc", "--no-deps", "--workspace", "--locked", "--features", STORES],
        )],
    },
    Suite {
        name: "counts",
        why: "the steps of a call take no more instructions than they did",
        needs: &["valgrind"],
        wants: &[],
        steps: &[run(&["cargo", "xtask", "counts"])],
    },
    Suite {
        name: "interop",
        why: "clients of other SDKs get their answers although their connections are cut",
        needs: &["node", "npm", "python3", "python3-venv", "go", "jdk", "mvn"],
        wants: &[],
        steps: &[
            run(&["cargo", "xtask", "interop", "--clients"]),
            run(&["cargo", "xtask", "interop", "--clients", "--through-gateway"]),
        ],
    },
    Suite {
        name: "servers",
        why: "servers of other SDKs keep their sessions behind the gateway, whatever dies",
        needs: &["node", "npm", "python3", "python3-venv", "go", "jdk", "mvn"],
        wants: &[],
        steps: &[run(&["cargo", "xtask", "interop", "--servers"])],
    },
    Suite {
        name: "chaos",
        why: "every promise holds while gateways, their store and servers are killed, frozen and cut off",
        needs: &["redis-server", "redis-cli", "postgres", "nginx"],
        wants: &[],
        // With known seeds: what others find is for those who look for it.
        steps: &[
            run(&["cargo", "xtask", "chaos", "--short", "--seed", "11"]),
            run(&["cargo", "xtask", "chaos", "--short", "--seed", "12", "--store", "postgres"]),
            // Once more where one gateway runs all calls of a session.
            run(&["cargo", "xtask", "chaos", "--short", "--seed", "13", "--concurrency", "6"]),
            // And where masters are lost and replicas take over.
            run(&["cargo", "xtask", "chaos", "--short", "--seed", "14", "--store", "redis-cluster"]),
        ],
    },
    Suite {
        name: "conformance",
        why: "the official MCP conformance suite passes in every version and revision",
        needs: &["node", "npm"],
        wants: &[],
        steps: &[run(&["cargo", "xtask", "conformance"])],
    },
];

/// What a suite may need beyond cargo. Missing on a developer's machine, it skips the suite; in CI it fails it. Where packages of
/// Debian may be installed it is fetched first.
pub(crate) const TOOLS: &[Tool] = &[
    Tool {
        name: "rustfmt",
        probe: &["cargo", "fmt", "--version"],
        get: "rustup component add rustfmt",
        debian: None,
    },
    Tool {
        name: "clippy",
        probe: &["cargo", "clippy", "--version"],
        get: "rustup component add clippy",
        debian: None,
    },
    Tool {
        name: "node",
        probe: &["node", "--version"],
        get: "https://nodejs.org, or your package manager",
        debian: Some("nodejs"),
    },
    Tool {
        name: "python3",
        probe: &["python3", "--version"],
        get: "https://python.org, or your package manager",
        debian: Some("python3"),
    },
    Tool {
        name: "npm",
        probe: &["npm", "--version"],
        get: "comes with node, or your package manager",
        debian: Some("npm"),
    },
    Tool {
        name: "python3-venv",
        probe: &["python3", "-c", "import ensurepip, venv"],
        get: "your package manager",
        debian: Some("python3-venv"),
    },
    Tool {
        name: "go",
        probe: &["go", "version"],
        get: "https://go.dev, or your package manager",
        debian: Some("golang-go"),
    },
    Tool {
        name: "jdk",
        probe: &["javac", "-version"],
        get: "Java 17 or newer: your package manager",
        debian: Some("default-jdk-headless"),
    },
    Tool {
        name: "mvn",
        probe: &["mvn", "--version"],
        get: "Maven: your package manager",
        debian: Some("maven"),
    },
    Tool {
        name: "redis-server",
        probe: &["redis-server", "--version"],
        get: "your package manager, version 7 or later",
        debian: Some("redis-server"),
    },
    Tool {
        name: "redis-cli",
        probe: &["redis-cli", "--version"],
        get: "comes with Redis, or your package manager",
        debian: Some("redis-tools"),
    },
    Tool {
        name: "postgres",
        // Debian keeps it out of the way of the shell.
        probe: &["sh", "-c", "command -v initdb || ls /usr/lib/postgresql/*/bin/initdb"],
        get: "your package manager, version 14 or later",
        debian: Some("postgresql"),
    },
    Tool { name: "nginx", probe: &["nginx", "-v"], get: "your package manager", debian: Some("nginx") },
    Tool {
        name: "valgrind",
        probe: &["valgrind", "--version"],
        get: "your package manager (not on Windows)",
        debian: Some("valgrind"),
    },
];

/// One row of the table: it passes when all of its steps do.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
    /// Names from [`TOOLS`].
    pub(crate) needs: &'static [&'static str],
    /// Names from [`TOOLS`] without which it does less. In CI its tests insist on them.
    pub(crate) wants: &'static [&'static str],
    /// All of them run, in this order, whichever fail. So no step may need what another one leaves
    /// behind.
    pub(crate) steps: &'static [Step],
}

#[derive(Debug)]
pub(crate) enum Step {
    Command {
        argv: &'static [&'static str],
        env: &'static [(&'static str, &'static str)],
    },
    /// Gives the text to show, as `Err` if the step failed.
    BuiltIn {
        name: &'static str,
        run: fn(&Path) -> Result<String, String>,
    },
}

#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// A command that succeeds where the tool is usable.
    pub(crate) probe: &'static [&'static str],
    pub(crate) get: &'static str,
    /// The package that has it.
    pub(crate) debian: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) enum Selection {
    List,
    Run(Vec<&'static Suite>),
}

/// Reads the options of `xtask test`. Suites run in the order of the table, however they were named.
pub(crate) fn select(options: &[&str]) -> Result<Selection, Failure> {
    let mut only = Vec::new();
    let mut rest = options;
    loop {
        rest = match rest {
            [] => break,
            ["--list", ..] => return Ok(Selection::List),
            ["--only", name, rest @ ..] => {
                only.push(known(name)?);
                rest
            }
            ["--only"] => return Err(Failure::Usage(format!("`--only` needs a suite: {}", names()))),
            [unknown, ..] => {
                return Err(Failure::Usage(format!("`test` takes --only SUITE and --list, not `{unknown}`")));
            }
        };
    }
    let chosen = |suite: &&Suite| only.is_empty() || only.contains(&suite.name);
    Ok(Selection::Run(SUITES.iter().filter(chosen).collect()))
}

/// Prints the table.
pub(crate) fn list(out: &mut dyn Write) -> Result<(), Failure> {
    let width = SUITES.iter().map(|suite| suite.name.len()).max().unwrap_or_default();
    for suite in SUITES {
        writeln!(out, "{:width$}  {}", suite.name, suite.why)?;
        for step in suite.steps {
            writeln!(out, "{:width$}  $ {}", "", step.title())?;
        }
        if !suite.needs.is_empty() {
            writeln!(out, "{:width$}  needs {}", "", suite.needs.join(", "))?;
        }
        if !suite.wants.is_empty() {
            writeln!(out, "{:width$}  does more with {}", "", suite.wants.join(", "))?;
        }
    }
    Ok(())
}

impl Step {
    /// The step as a person would type it.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Command { argv, env } => {
                let env = env.iter().map(|(key, value)| format!("{key}='{value}' "));
                env.collect::<String>() + &argv.join(" ")
            }
            Self::BuiltIn { name, .. } => format!("cargo {name}"),
        }
    }
}

const fn run(argv: &'static [&'static str]) -> Step {
    run_with(&[], argv)
}

const fn run_with(env: &'static [(&'static str, &'static str)], argv: &'static [&'static str]) -> Step {
    Step::Command { argv, env }
}

fn known(name: &str) -> Result<&'static str, Failure> {
    let suite = SUITES.iter().find(|suite| suite.name == name);
    suite
        .map(|suite| suite.name)
        .ok_or_else(|| Failure::Usage(format!("no suite `{name}`; there are {}", names())))
}

fn names() -> String {
    SUITES.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_choose_suites() {
        let all = names();
        check(&[], &all);
        check(&["--only", "unit"], "unit");
        check(&["--only", "unit", "--only", "fmt"], "fmt, unit");
        check(&["--list"], "list");
        check(&["--only"], &format!("`--only` needs a suite: {all}"));
        check(&["--only", "x"], &format!("no suite `x`; there are {all}"));
        check(&["--fast"], "`test` takes --only SUITE and --list, not `--fast`");
    }

    #[test]
    fn the_table_is_sound() {
        for (i, suite) in SUITES.iter().enumerate() {
            assert!(!suite.steps.is_empty(), "{} does nothing", suite.name);
            assert!(
                SUITES[..i].iter().all(|other| other.name != suite.name),
                "{} is there twice",
                suite.name
            );
            for need in suite.needs.iter().chain(suite.wants) {
                assert!(TOOLS.iter().any(|tool| tool.name == *need), "{} is not in TOOLS", need);
            }
        }
    }

    fn check(options: &[&str], expect: &str) {
        let got = match select(options) {
            Ok(Selection::List) => "list".to_owned(),
            Ok(Selection::Run(suites)) => {
                suites.iter().map(|suite| suite.name).collect::<Vec<_>>().join(", ")
            }
            Err(failure) => failure.message().unwrap_or_default().to_owned(),
        };
        assert_eq!(got, expect, "options {options:?}");
    }
}
