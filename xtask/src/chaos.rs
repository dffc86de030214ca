//! Chaos: gateways, a store and servers as real processes, broken by a seeded plan, and every promise checked.

use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::failure::Failure;
use crate::prepare;

const PROGRAM: &str = "steadfast-chaos";
/// Seeds that a person can type.
const SEEDS: u64 = 1_000_000;
/// What a short run is: for CI.
const SHORT: [&str; 4] = ["--calls", "2000", "--seconds", "40"];
/// What a planted bug gets.
const PLANTED_RUN: [&str; 2] = ["--seconds", "30"];
const PLANTED_CALLS: u64 = 1200;
/// Plans that a bug is tried with until one shows it: some need a fault at a certain moment.
const PLANTED_SEEDS: u64 = 4;
/// For a bug that makes every call take its time.
const FEW_CALLS: u64 = 300;

/// For a bug in how calls are counted. Clients make several at a time.
const BOUNDED: &[&str] = &["--concurrency", "1"];

/// A bug that is compiled in on purpose, with the feature `planted` alone, to see who finds it.
struct Planted {
    name: &'static str,
    what: &'static str,
    /// Promises of which one must be found broken.
    caught_by: &'static [&'static str],
    calls: u64,
    /// What the run needs besides.
    options: &'static [&'static str],
}

/// To add one, name it in the code (`planted("name")`) and here.
const PLANTED: &[Planted] = &[
    Planted {
        name: "replay-from-itself",
        what: "a resumed stream begins with the event that its reader has",
        caught_by: &["order"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "replay-too-late",
        what: "a resumed stream leaves out the event after the one that its reader has",
        caught_by: &["order"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "deliver-before-commit",
        what: "readers get what the store has not committed yet",
        caught_by: &["replay", "outcomes", "order"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "finish-keeps-call",
        what: "an answered call stays in flight",
        caught_by: &["endings", "outcomes"],
        calls: FEW_CALLS,
        options: &[],
    },
    Planted {
        name: "no-fence",
        what: "an owner that was taken for dead may still answer",
        caught_by: &["outcomes", "order"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "broadcast",
        what: "a message of no call goes to two streams",
        caught_by: &["once"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "drop-on-takeover",
        what: "calls of a dead node are removed without an error",
        caught_by: &["outcomes"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "bare-id",
        what: "answers are found by the client's id alone",
        caught_by: &["routing"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "retry-unsafe",
        what: "a call that may have been executed is sent again",
        caught_by: &["effects"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "answer-taken-twice",
        what: "a second answer to an ask is taken as well",
        caught_by: &["asks"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "borrowed-seat",
        what: "a node goes on at the server in the session of another client",
        caught_by: &["counters"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "early-expiry",
        what: "a session ends while its client thinks",
        caught_by: &["sessions"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "no-burial",
        what: "nobody sees to what dead nodes left",
        caught_by: &["liveness"],
        calls: PLANTED_CALLS,
        options: &[],
    },
    Planted {
        name: "no-turns",
        what: "calls do not wait for their turn",
        caught_by: &["bound"],
        calls: PLANTED_CALLS,
        options: BOUNDED,
    },
    Planted {
        name: "no-owner",
        what: "whoever gets a call runs it, whoever has the lease",
        caught_by: &["bound"],
        calls: PLANTED_CALLS,
        options: BOUNDED,
    },
];

pub(crate) fn command(root: &Path, options: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    let options = Options::parse(options)?;
    let bench = Bench::prepare(root, options.what == What::Planted, out)?;
    out.flush()?;
    match options.what {
        What::Run => bench.run(&options),
        What::Planted => bench.run_planted(out),
        What::Sdk => bench.run_clients(root, &options, out),
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    seed: Option<u64>,
    what: What,
    /// For the program, as they are.
    rest: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum What {
    /// Everything breaks, and every promise is checked.
    #[default]
    Run,
    /// The same with bugs in it.
    Planted,
    /// Clients of others' SDKs at work while gateways are restarted.
    Sdk,
}

impl Options {
    /// The one that was asked for, or any.
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
                    let number = seed.parse().map_err(|_| Failure::Usage(format!("`{seed}` is no seed")))?;
                    parsed.seed = Some(number);
                    rest
                }
                ["--planted", rest @ ..] => {
                    parsed.what = What::Planted;
                    rest
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

/// Runs a program that says itself what it found.
fn judged(command: &mut Command) -> Result<(), Failure> {
    if command.status()?.success() { Ok(()) } else { Err(Failure::Reported) }
}

struct Bench {
    folder: PathBuf,
    chaos: PathBuf,
    gateway: PathBuf,
}

impl Bench {
    fn prepare(root: &Path, planted: bool, out: &mut dyn Write) -> Result<Self, Failure> {
        let target = crate::target()?;
        let folder = target.join("chaos");
        fs::create_dir_all(&folder)?;
        let log = folder.join("build.log");
        let (programs, mut gateway) = (target.join("debug"), target.join("debug/steadfast"));
        if planted {
            let mut cargo = Command::new("cargo");
            prepare::as_from_a_shell(&mut cargo);
            cargo.args(["build", "--quiet", "--locked", "--package", "steadfast-gateway"]);
            cargo.args(["--features", "planted"]).current_dir(root);
            let limit = std::time::Duration::from_secs(1800);
            prepare::run("building steadfast-gateway with bugs in it", &mut cargo, &log, limit, out)?;
            // Elsewhere, so that nobody takes it for the real one.
            gateway = folder.join("steadfast-with-planted-bugs");
            fs::copy(programs.join("steadfast"), &gateway)?;
        }
        // Afterwards, so that the program that is left under its name is the real one.
        prepare::build(root, &["steadfast", PROGRAM], &log, out)?;
        Ok(Self { folder, chaos: programs.join(PROGRAM), gateway })
    }

    fn command(&self, verb: &str, seed: u64, folder: &str) -> Command {
        let mut command = Command::new(&self.chaos);
        command.arg(verb).arg("--gateway").arg(&self.gateway);
        command.arg("--folder").arg(self.folder.join(folder)).args(["--seed", &seed.to_string()]);
        command
    }

    fn run(&self, options: &Options) -> Result<(), Failure> {
        let seed = options.seed();
        judged(self.command("run", seed, &format!("seed-{seed}")).args(&options.rest))
    }

    fn run_clients(&self, root: &Path, options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
        let (clients, log) = (root.join("interop/clients"), self.folder.join("clients.log"));
        let (python, node) = (self.folder.join("python"), self.folder.join("typescript"));
        prepare::python(&clients.join("python"), &python, &log, out)?;
        prepare::node(&clients.join("typescript"), &node, &log, out)?;
        out.flush()?;
        let seed = options.seed();
        let mut command = self.command("soak", seed, &format!("sdk-{seed}"));
        let interpreter = prepare::venv_python(&python);
        command
            .args(["--client", &format!("{} {}", interpreter.display(), python.join("soak.py").display())]);
        command.args(["--client", &format!("node {}", node.join("soak.mjs").display())]);
        judged(command.args(&options.rest))
    }

    /// Every bug has to be found, and by who was made for it.
    fn run_planted(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let mut missed = 0;
        for (seed, planted) in (1u64..).zip(PLANTED) {
            write!(out, "{:<22} {:<76} ", planted.name, planted.what)?;
            out.flush()?;
            let is_meant = |name: &String| planted.caught_by.contains(&name.as_str());
            let mut caught = Vec::new();
            let mut seeds = (0..PLANTED_SEEDS).map(|more| seed + more * 100);
            let found = loop {
                let Some(seed) = seeds.next() else { break None };
                caught = self.catch(planted, seed)?;
                if caught.iter().any(is_meant) {
                    break Some(seed);
                }
            };
            missed += usize::from(found.is_none());
            match found {
                Some(seed) => writeln!(out, "caught by {} (seed {seed})", caught.join(", "))?,
                None => writeln!(out, "MISSED")?,
            }
        }
        if missed == 0 { Ok(()) } else { Err(Failure::Reported) }
    }

    /// The promises that were found broken.
    fn catch(&self, planted: &Planted, seed: u64) -> Result<Vec<String>, Failure> {
        let variable = format!("STEADFAST_PLANTED={}", planted.name);
        let mut command = self.command("run", seed, &format!("planted-{}", planted.name));
        command.args(["--json", "--variable", &variable, "--calls", &planted.calls.to_string()]);
        command.args(planted.options).args(PLANTED_RUN).stderr(Stdio::null());
        let report: Value = serde_json::from_slice(&command.output()?.stdout)
            .map_err(|_| Failure::Broken(format!("the run with {} gave no report", planted.name)))?;
        let promises = report["promises"].as_array().map_or(&[][..], Vec::as_slice);
        let broken = promises.iter().filter(|promise| promise["violations"] != Value::Array(Vec::new()));
        Ok(broken.filter_map(|promise| Some(promise["name"].as_str()?.to_owned())).collect())
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
        assert_eq!(Options::parse(&["--planted"]).unwrap().what, What::Planted);
        assert_eq!(Options::parse(&["--sdk", "--seconds", "60"]).unwrap().what, What::Sdk);
        for wrong in [&["--seed", "x"][..], &["--fast"], &["--calls"]] {
            assert!(matches!(Options::parse(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }
}
