//! `cargo xtask counts`: counts the instructions of the steps of a call with valgrind and compares
//! them with an earlier count.
//!
//! The program that is counted is `bench/counts`, built with the release profile. On one machine
//! its counts are identical in every run. Another machine may count a little more or less: the C
//! library chooses a version of `memcpy` for the processor, and another compiler generates other
//! code. So there are two bounds. `cargo xtask counts`, which CI runs on any
//! machine, fails when a step takes [`ELSEWHERE`] per cent more than in `bench/counts.json`. To
//! compare two commits, run `cargo xtask counts --accept` at the first and `cargo xtask counts
//! --strict` at the second, on one machine: that fails at [`STRICT`] per cent.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use steadfast_test_setup::{Failure, clear_package_variables, execute};

/// The steps that the program can run, and how often it runs each.
const NAMES: &[&str] = &["parse", "begin", "append", "finish", "encode"];
const TIMES: u64 = 1000;

/// How many per cent more than before are no regression: on the machine of the earlier count, and
/// on any machine.
const STRICT: u64 = 3;
const ELSEWHERE: u64 = 25;

const PACKAGE: &str = "steadfast-counts";
const BASELINE: &str = "bench/counts.json";

/// Instructions by step, and the compiler and architecture of the count.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counts {
    /// The output of `rustc --version`.
    compiler: String,
    architecture: String,
    instructions: BTreeMap<String, u64>,
}

/// `cargo xtask counts`.
pub(crate) fn command(root: &Path, options: &[&str], out: &mut dyn Write) -> Result<(), Failure> {
    let (accept, bound) = match options {
        [] => (false, ELSEWHERE),
        ["--strict"] => (false, STRICT),
        ["--accept"] => (true, STRICT),
        [unknown, ..] => {
            return Err(Failure::Usage(format!("`counts` takes --strict or --accept, not `{unknown}`")));
        }
    };
    out.flush()?;
    let counts = count(root)?;
    let file = root.join(BASELINE);
    if accept {
        fs::write(&file, counts.to_json())?;
        return Ok(writeln!(out, "{}written to {BASELINE}", counts.table())?);
    }
    let text = fs::read_to_string(&file).map_err(|error| {
        Failure::Broken(format!("cannot read {BASELINE}: {error}. `cargo xtask counts --accept` writes it"))
    })?;
    let baseline = Counts::from_json(&text).ok_or_else(|| {
        Failure::Broken(format!("{BASELINE} is not what `cargo xtask counts --accept` writes"))
    })?;
    let verdict = compare(&baseline, &counts, bound);
    out.write_all(verdict.text.as_bytes())?;
    if verdict.passed { Ok(()) } else { Err(Failure::Reported) }
}

#[derive(Debug)]
struct Verdict {
    text: String,
    passed: bool,
}

/// Fails if a step takes more than `bound` per cent more instructions.
fn compare(baseline: &Counts, counts: &Counts, bound: u64) -> Verdict {
    if baseline.architecture != counts.architecture {
        let (ours, theirs) = (&counts.architecture, &baseline.architecture);
        let text = format!("{}not compared: this is {ours}, {BASELINE} is of {theirs}\n", counts.table());
        return Verdict { text, passed: true };
    }
    let (mut text, mut passed, mut differs) = (String::new(), true, false);
    for (name, now) in &counts.instructions {
        // Writing to a String does not fail, here and below.
        let _ = match baseline.instructions.get(name) {
            Some(before) => {
                let change = (*now as f64 / *before as f64 - 1.0) * 100.0;
                let word = if now * 100 > before * (100 + bound) {
                    passed = false;
                    "WORSE"
                } else if now * 100 > before * (100 + STRICT) {
                    differs = true;
                    "more, perhaps due to the machine"
                } else if now * 100 < before * (100 - STRICT) {
                    differs = true;
                    "better"
                } else {
                    "ok"
                };
                writeln!(text, "{name:<8} {before:>8} -> {now:>8}  {change:>+7.2} %  {word}")
            }
            None => {
                passed = false;
                writeln!(text, "{name:<8} {:>8} -> {now:>8}  is not in {BASELINE}", "-")
            }
        };
    }
    if !passed || differs {
        text.push_str("If the change is intended, run `cargo xtask counts --accept` and commit the file.\n");
    }
    if baseline.compiler != counts.compiler {
        let (ours, theirs) = (&counts.compiler, &baseline.compiler);
        let _ = writeln!(text, "Counted with {ours}; {BASELINE} with {theirs}, which may be the reason.");
    }
    Verdict { text, passed }
}

impl Counts {
    fn to_json(&self) -> String {
        let Self { compiler, architecture, instructions } = self;
        let value =
            json!({ "architecture": architecture, "compiler": compiler, "instructions": instructions });
        format!("{value:#}\n")
    }

    fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let instructions = value["instructions"].as_object()?;
        Some(Self {
            compiler: value["compiler"].as_str()?.to_owned(),
            architecture: value["architecture"].as_str()?.to_owned(),
            instructions: instructions
                .iter()
                .map(|(name, count)| Some((name.clone(), count.as_u64()?)))
                .collect::<Option<_>>()?,
        })
    }

    fn table(&self) -> String {
        let row = |(name, count): (&String, &u64)| format!("{name:<8} {count:>8} instructions\n");
        self.instructions.iter().map(row).collect()
    }
}

fn count(root: &Path) -> Result<Counts, Failure> {
    let program = build(root)?;
    let folder = crate::target()?.join("xtask");
    fs::create_dir_all(&folder)?;
    let mut instructions = BTreeMap::new();
    for name in NAMES {
        let report = folder.join(format!("counts-{name}.out"));
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args(["--quiet", "--tool=callgrind", "--collect-atstart=no"])
            .arg("--toggle-collect=*counted_*")
            .arg(format!("--callgrind-out-file={}", report.display()))
            .arg(&program)
            .arg(name);
        output(&mut valgrind)?;
        let text = fs::read_to_string(&report)?;
        let total = total(&text).ok_or_else(|| {
            Failure::Broken(format!(
                "valgrind has counted no instructions of {name}; see {}",
                report.display()
            ))
        })?;
        instructions.insert((*name).to_owned(), total / TIMES);
    }
    let compiler = output(Command::new("rustc").arg("--version").current_dir(root))?;
    let architecture = std::env::consts::ARCH.to_owned();
    Ok(Counts { compiler: compiler.trim().to_owned(), architecture, instructions })
}

/// Builds the program that is counted, and returns its path.
fn build(root: &Path) -> Result<PathBuf, Failure> {
    let mut cargo = Command::new("cargo");
    clear_package_variables(&mut cargo);
    execute(cargo.args(["build", "--release", "--locked", "--package", PACKAGE]).current_dir(root))?;
    Ok(crate::target()?.join("release").join(PACKAGE))
}

/// Returns the output of a command. Its errors go to the standard error of this process.
fn output(command: &mut Command) -> Result<String, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| Failure::Broken(format!("cannot start `{program}`: {error}")))?;
    if !output.status.success() {
        return Err(Failure::Broken(format!("`{program}` failed: {}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the sum in a report of callgrind, or `None` if nothing was counted.
fn total(report: &str) -> Option<u64> {
    let totals = report.lines().find_map(|line| line.strip_prefix("totals: "))?;
    totals.trim().parse().ok().filter(|total| *total > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(compiler: &str, architecture: &str, parse: u64) -> Counts {
        let instructions = BTreeMap::from([("parse".to_owned(), parse)]);
        Counts { compiler: compiler.to_owned(), architecture: architecture.to_owned(), instructions }
    }

    fn check(before: &Counts, now: &Counts, passed: bool, says: &str) {
        check_with(STRICT, before, now, passed, says);
    }

    fn check_with(bound: u64, before: &Counts, now: &Counts, passed: bool, says: &str) {
        let verdict = compare(before, now, bound);
        assert_eq!(verdict.passed, passed, "{}", verdict.text);
        assert!(verdict.text.contains(says), "{}", verdict.text);
    }

    #[test]
    fn more_instructions_fail_and_fewer_are_welcome() {
        let before = counts("a", "x", 1000);
        check(&before, &counts("a", "x", 1030), true, "ok\n");
        check(&before, &counts("a", "x", 1031), false, "WORSE\nIf the change is intended");
        check(&before, &counts("b", "x", 1031), false, "which may be the reason");
        check(&before, &counts("a", "x", 970), true, "ok\n");
        check(&before, &counts("a", "x", 969), true, "better\nIf the change is intended");
        check(&before, &counts("a", "y", 9999), true, "not compared");
        check_with(ELSEWHERE, &before, &counts("a", "x", 1030), true, "ok\n");
        check_with(
            ELSEWHERE,
            &before,
            &counts("a", "x", 1250),
            true,
            "+25.00 %  more, perhaps due to the machine\n",
        );
        check_with(ELSEWHERE, &before, &counts("a", "x", 1251), false, "WORSE\nIf the change is intended");
        check_with(ELSEWHERE, &before, &counts("a", "x", 969), true, "better\n");
        let unknown = Counts { instructions: BTreeMap::new(), ..before.clone() };
        check(&unknown, &before, false, "is not in bench/counts.json");
    }

    #[test]
    fn the_baseline_survives_its_file() {
        let counts = counts("rustc 1", "x86_64", 7);
        assert_eq!(Counts::from_json(&counts.to_json()), Some(counts));
        assert_eq!(Counts::from_json("{}"), None);
    }

    #[test]
    fn totals_are_found() {
        assert_eq!(total("version: 1\nsummary: 5\nfn=(1)\ntotals: 5\n"), Some(5));
        assert_eq!(total("totals: 0\n"), None);
        assert_eq!(total("version: 1\n"), None);
    }
}
