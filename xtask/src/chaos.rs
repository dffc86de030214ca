//! `cargo xtask chaos`: builds and starts the program `steadfast-chaos`, which runs a deployment of
//! real processes, causes faults, and checks every promise.

use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use steadfast_test_setup::{self as setup, Failure};

const PROGRAM: &str = "steadfast-chaos";
/// Random seeds are below this number, so that a person can type them.
const SEEDS: u64 = 1_000_000;
/// The options of a short run, for CI.
const SHORT: [&str; 4] = ["--calls", "2000", "--seconds", "40"];

pub(crate) fn command(root: &Path, options: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    let options = Options::parse(options)?;
    let programs: &[&str] = match options.what {
        // The gateways with bugs are built from a copy of the source tree.
        What::Bugs => &[PROGRAM],
        What::Run | What::Sdk => &["steadfast", PROGRAM],
    };
    let programs = Programs::build(root, programs, out)?;
    out.flush()?;
    match options.what {
        What::Run => programs.run(&options),
        What::Bugs => programs.run_bugs(root, &options),
        What::Sdk => programs.run_clients(root, &options, out),
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    seed: Option<u64>,
    what: What,
    /// Options for the program `steadfast-chaos`.
    rest: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum What {
    /// A run with all faults.
    #[default]
    Run,
    /// The test of the checkers, with bugs that are injected into the gateway.
    Bugs,
    /// A soak test: clients on other SDKs work while gateways are restarted.
    Sdk,
}

impl Options {
    /// The seed of the command line, or a random one.
    fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish() % SEEDS)
    }

    fn parse(options: &[&str]) -> Result<Self, Failure> {
        let mut parsed = Self::default();
        let mut rest = options;
        loop {
            rest = match rest {
                [] => return Ok(parsed),
                ["--seed", seed, rest @ ..] => {
                    let number = seed.parse().map_err(|_| {
                        Failure::Usage(format!("`{seed}` is not a number; `--seed` needs one"))
                    })?;
                    parsed.seed = Some(number);
                    rest
                }
                ["--bugs", rest @ ..] => {
                    parsed.what = What::Bugs;
                    parsed.rest = bugs_arguments(rest)?;
                    return Ok(parsed);
                }
                ["--sdk", rest @ ..] => {
                    parsed.what = What::Sdk;
                    rest
                }
                ["--short", rest @ ..] => {
                    parsed.rest.extend(SHORT.map(str::to_owned));
                    rest
                }
                [flag @ ("--json" | "--keep"), rest @ ..] => {
                    parsed.rest.push((*flag).to_owned());
                    rest
                }
                [
                    flag @ ("--calls" | "--seconds" | "--store" | "--clients" | "--concurrency"),
                    value,
                    rest @ ..,
                ] => {
                    parsed.rest.extend([*flag, *value].map(str::to_owned));
                    rest
                }
                [unknown, ..] => return Err(Failure::Usage(format!("`chaos` does not know `{unknown}`"))),
            };
        }
    }
}

/// Translates what follows `--bugs` to the arguments of `steadfast-chaos bugs`.
fn bugs_arguments(options: &[&str]) -> Result<Vec<String>, Failure> {
    let arguments = match options {
        ["--check"] => vec!["check"],
        ["--build", names @ ..] => [&["build"], names].concat(),
        ["--edit", name] => vec!["edit", *name],
        ["--save", name] => vec!["save", *name],
        names => match names.iter().find(|name| name.starts_with('-')) {
            Some(unknown) => {
                return Err(Failure::Usage(format!("`chaos --bugs` does not know `{unknown}`")));
            }
            None => [&["run"], names].concat(),
        },
    };
    Ok(arguments.into_iter().map(str::to_owned).collect())
}

/// Runs a program that prints its own report. Its exit code says whether it succeeded.
fn report_of(command: &mut Command) -> Result<(), Failure> {
    if command.status()?.success() { Ok(()) } else { Err(Failure::Reported) }
}

struct Programs {
    folder: PathBuf,
    chaos: PathBuf,
    gateway: PathBuf,
}

impl Programs {
    fn build(root: &Path, programs: &[&str], out: &mut dyn Write) -> Result<Self, Failure> {
        let target = crate::target()?;
        let folder = target.join("chaos");
        fs::create_dir_all(&folder)?;
        setup::build(root, programs, &folder.join("build.log"), out)?;
        let built = target.join("debug");
        Ok(Self { folder, chaos: built.join(PROGRAM), gateway: built.join("steadfast") })
    }

    fn command(&self, subcommand: &str, seed: u64, folder: &str) -> Command {
        let mut command = Command::new(&self.chaos);
        command.arg(subcommand).arg("--gateway").arg(&self.gateway);
        command.arg("--folder").arg(self.folder.join(folder)).args(["--seed", &seed.to_string()]);
        command
    }

    fn run(&self, options: &Options) -> Result<(), Failure> {
        let seed = options.seed();
        report_of(self.command("run", seed, &format!("seed-{seed}")).args(&options.rest))
    }

    fn run_clients(&self, root: &Path, options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
        let (clients, log) = (root.join("interop/clients"), self.folder.join("clients.log"));
        let (python, node) = (self.folder.join("python"), self.folder.join("typescript"));
        setup::python(&clients.join("python"), &python, &log, out)?;
        setup::node(&clients.join("typescript"), &node, &log, out)?;
        out.flush()?;
        let seed = options.seed();
        let mut command = self.command("soak", seed, &format!("sdk-{seed}"));
        let interpreter = setup::venv_python(&python);
        command
            .args(["--client", &format!("{} {}", interpreter.display(), python.join("soak.py").display())]);
        command.args(["--client", &format!("node {}", node.join("soak.mjs").display())]);
        report_of(command.args(&options.rest))
    }

    fn run_bugs(&self, root: &Path, options: &Options) -> Result<(), Failure> {
        let mut command = Command::new(&self.chaos);
        setup::clear_package_variables(&mut command);
        command.arg("bugs").arg("--source").arg(root).arg("--folder").arg(self.folder.join("bugs"));
        report_of(command.args(&options.rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_passed_on() {
        let parsed =
            Options::parse(&["--seed", "7", "--short", "--store", "redis-cluster", "--json"]).unwrap();
        assert_eq!(parsed.seed, Some(7));
        assert_eq!(parsed.rest, ["--calls", "2000", "--seconds", "40", "--store", "redis-cluster", "--json"]);
        for (bugs, expect) in [
            (&["--bugs"][..], &["run"][..]),
            (&["--bugs", "a", "b"], &["run", "a", "b"]),
            (&["--bugs", "--check"], &["check"]),
            (&["--bugs", "--build", "a"], &["build", "a"]),
            (&["--bugs", "--save", "a"], &["save", "a"]),
        ] {
            let parsed = Options::parse(bugs).unwrap();
            assert_eq!(parsed.what, What::Bugs);
            assert_eq!(parsed.rest, expect);
        }
        assert_eq!(Options::parse(&["--sdk", "--seconds", "60"]).unwrap().what, What::Sdk);
        for wrong in [&["--seed", "x"][..], &["--fast"], &["--calls"], &["--bugs", "--fast"]] {
            assert!(matches!(Options::parse(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
