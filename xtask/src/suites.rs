//! The table of test suites, in the order in which they run: cheap suites first, so that they fail
//! first.
//!
//! To add a suite, add a row to [`SUITES`]. If it needs a tool that has no row in
//! [`TOOLS`](steadfast_test_setup::TOOLS) yet, add one there.

use std::io::Write;
use std::path::Path;

use steadfast_test_setup::{FEATURES, Failure};

use crate::tidy;

/// A word of a step that stands for [`FEATURES`].
const FEATURES_WORD: &str = "$FEATURES";

/// The number of tests that run at the same time. Most tests wait for sockets, processes and
/// timers, so more of them than there are processors is faster.
const THREADS: (&str, &str) = ("RUST_TEST_THREADS", "4");

/// The tests with several gateways. By default they use the store that needs no server.
const CLUSTER_TESTS: &str = "cargo test --workspace --locked --features $FEATURES --test scripted -- \
    annotations:: counted:: successors:: leases:: mixed:: nodes:: programs:: restarts:: together:: endings::";

const SDK_TOOLS: &[&str] = &["node", "npm", "python3", "python3-venv", "go", "jdk", "mvn"];

pub(crate) const SUITES: &[Suite] = &[
    Suite::new("fmt", "code is formatted in one way", &[run("cargo fmt --all --check")]).needs(&["rustfmt"]),
    Suite::new(
        "clippy",
        "no lint of the workspace is violated",
        &[run("cargo clippy --workspace --all-targets --locked --features $FEATURES -- -D warnings")],
    )
    .needs(&["clippy"]),
    Suite::new(
        "tidy",
        "rules of this repository that no other tool checks",
        &[Step::BuiltIn { name: "xtask tidy", run: tidy::step }],
    ),
    Suite::new(
        "alone",
        "the gateway and the library compile with their own features, without those that other packages turn on",
        &[
            run("cargo check --locked --package steadfast-gateway"),
            run("cargo check --locked --package steadfast"),
        ],
    ),
    Suite::new(
        "unit",
        "unit, integration and documentation tests, on every store whose server is installed",
        &[
            // A failed test does not stop the others: a developer who mends one needs to see all.
            run_with(&[THREADS], "cargo test --workspace --locked --no-fail-fast --features $FEATURES"),
            run_with(&[THREADS, ("STEADFAST_TEST_STORE", "redis")], CLUSTER_TESTS),
            run_with(&[THREADS, ("STEADFAST_TEST_STORE", "postgres")], CLUSTER_TESTS),
        ],
    )
    .wants(&["redis-server", "postgres", "nginx"]),
    Suite::new(
        "doc",
        "the documentation builds without a warning",
        &[run_with(
            &[("RUSTDOCFLAGS", "-D warnings")],
            "cargo doc --no-deps --workspace --locked --features $FEATURES",
        )],
    ),
    Suite::new(
        "counts",
        "the steps of a call take no more instructions than before",
        &[run("cargo xtask counts")],
    )
    .needs(&["valgrind"]),
    Suite::new(
        "interop",
        "clients of other SDKs get their responses although their connections are cut",
        &[
            run("cargo xtask interop --scripts"),
            run("cargo xtask interop --scripts --through-gateway"),
            run("cargo xtask interop --clients --ci"),
        ],
    )
    .needs(SDK_TOOLS),
    Suite::new(
        "servers",
        "servers of other SDKs keep their sessions behind the gateway when a process is killed",
        &[run("cargo xtask interop --servers")],
    )
    .needs(SDK_TOOLS),
    Suite::new(
        "chaos",
        "every promise holds while gateways, their store and servers are killed, frozen and cut off",
        // Fixed seeds, so that a run in CI can be repeated. Other seeds are for manual runs.
        &[
            run("cargo xtask chaos --short --seed 11"),
            run("cargo xtask chaos --short --seed 12 --store postgres"),
            // One gateway runs all calls of a session.
            run("cargo xtask chaos --short --seed 13 --concurrency 6"),
            // Masters are lost and replicas take over.
            run("cargo xtask chaos --short --seed 14 --store redis-cluster"),
        ],
    )
    .needs(&["redis-server", "redis-cli", "postgres", "nginx"]),
    Suite::new(
        "conformance",
        "the official MCP conformance suite passes in every version and revision",
        &[run("cargo xtask conformance")],
    )
    .needs(&["node", "npm"]),
];

/// One row of the table. A suite passes when all of its steps pass.
#[derive(Debug)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) why: &'static str,
    /// All steps run, in this order, also after a failed one. So no step may depend on another.
    pub(crate) steps: &'static [Step],
    /// Tools without which the suite is skipped.
    pub(crate) needs: &'static [&'static str],
    /// Tools without which the suite tests less. In CI its tests fail without them.
    pub(crate) wants: &'static [&'static str],
}

impl Suite {
    pub(crate) const fn new(name: &'static str, why: &'static str, steps: &'static [Step]) -> Self {
        Self { name, why, steps, needs: &[], wants: &[] }
    }

    pub(crate) const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    const fn wants(self, wants: &'static [&'static str]) -> Self {
        Self { wants, ..self }
    }
}

#[derive(Debug)]
pub(crate) enum Step {
    Command {
        /// The words of the command, with spaces between them.
        line: &'static str,
        env: &'static [(&'static str, &'static str)],
    },
    /// Returns the text to show, as `Err` if the step failed.
    BuiltIn { name: &'static str, run: fn(&Path) -> Result<String, String> },
}

#[derive(Debug)]
pub(crate) enum Selection {
    List,
    Run(Vec<&'static Suite>),
}

/// Reads the options of `xtask test`. Suites run in the order of the table.
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
    /// Returns the step as a person would type it.
    pub(crate) fn title(&self) -> String {
        match self {
            Self::Command { line, env } => {
                let env = env.iter().map(|(key, value)| format!("{key}='{value}' "));
                env.collect::<String>() + &words(line).join(" ")
            }
            Self::BuiltIn { name, .. } => format!("cargo {name}"),
        }
    }
}

/// Returns the words of a command line.
pub(crate) fn words(line: &'static str) -> Vec<&'static str> {
    line.split_whitespace().map(|word| if word == FEATURES_WORD { FEATURES } else { word }).collect()
}

const fn run(line: &'static str) -> Step {
    run_with(&[], line)
}

const fn run_with(env: &'static [(&'static str, &'static str)], line: &'static str) -> Step {
    Step::Command { line, env }
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
    use steadfast_test_setup::TOOLS;

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
