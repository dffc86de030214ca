//! Injected bugs: the test of the checkers. Every bug must be detected by the promise that it
//! violates.
//!
//! A bug is a patch in `chaos/bugs` ([`bug::Bug`]). The gateway that has the bug is built from a
//! copy of the source tree ([`source_copy::SourceCopy`]), so the product contains no code for
//! injected bugs.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, Subcommand};
use serde_json::Value;

mod bug;
mod source_copy;

use crate::failure::Failure;
use bug::Bug;
use source_copy::SourceCopy;

/// Options of a run that has no options of its own in the patch.
const RUN_OPTIONS: [&str; 4] = ["--calls", "1200", "--seconds", "30"];
/// The fault plans that a bug gets, one after the other, until a run detects the bug. Some bugs
/// show only if a fault happens at a certain moment.
const SEEDS: [u64; 4] = [1, 2, 3, 4];

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The source tree that has the patches in `chaos/bugs`
    #[arg(long)]
    source: PathBuf,
    /// The folder for the copy of the source tree, its build folder and the runs
    #[arg(long)]
    folder: PathBuf,
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// Check that every patch applies to the source tree, without a build
    Check,
    /// Build a gateway with each bug, without a run: shows which patches no longer compile
    Build {
        /// Bugs to build; all if none is named
        names: Vec<String>,
    },
    /// Build and run a gateway with each bug, and expect that the run detects the bug
    Run {
        /// Bugs to run; all if none is named
        names: Vec<String>,
    },
    /// Copy the source tree and apply one patch to the copy, as far as it applies
    Edit { name: String },
    /// Write the changes of the copy that `edit` made to the patch
    Save { name: String },
}

pub(crate) fn run(options: &Options) -> Result<ExitCode, Failure> {
    let source = fs::canonicalize(&options.source)?;
    fs::create_dir_all(&options.folder)?;
    let folder = fs::canonicalize(&options.folder)?;
    let bugs = Bug::load_all(&source)?;
    match &options.action {
        Action::Check => check(&bugs, &source),
        Action::Build { names } => Workshop::new(&source, &folder).build_all(&choose(bugs, names)?),
        Action::Run { names } => Workshop::new(&source, &folder).detect_all(&choose(bugs, names)?),
        Action::Edit { name } => edit(find(&bugs, name)?, &source, &folder),
        Action::Save { name } => save(find(&bugs, name)?, &source, &folder),
    }
}

/// Returns the bugs with these names; all if there are no names. Fails if a name is unknown.
fn choose(mut bugs: Vec<Bug>, names: &[String]) -> Result<Vec<Bug>, Failure> {
    names.iter().try_for_each(|name| find(&bugs, name).map(drop))?;
    bugs.retain(|bug| names.is_empty() || names.contains(&bug.name));
    Ok(bugs)
}

fn find<'a>(bugs: &'a [Bug], name: &str) -> Result<&'a Bug, Failure> {
    let found = bugs.iter().find(|bug| bug.name == name);
    found.ok_or_else(|| Failure::bug(name, "there is no such patch in chaos/bugs"))
}

fn check(bugs: &[Bug], source: &Path) -> Result<ExitCode, Failure> {
    let failures: Vec<String> = bugs.iter().filter_map(|bug| bug.check(source).err()).collect();
    let mut out = io::stdout().lock();
    for failure in &failures {
        writeln!(out, "{failure}")?;
    }
    writeln!(out, "{} of {} injected bugs apply", bugs.len() - failures.len(), bugs.len())?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn edit(bug: &Bug, source: &Path, folder: &Path) -> Result<ExitCode, Failure> {
    let copy = edited_copy(source, folder);
    copy.refresh()?;
    copy.remember()?;
    let mut out = io::stdout().lock();
    if bug.has_diff()
        && let Err(why) = copy.apply_what_fits(bug)
    {
        writeln!(out, "{why}\n\nthe patch was:\n{}", bug.diff())?;
    }
    writeln!(
        out,
        "Edit the files in {} until they have this bug: {}.",
        copy.folder().display(),
        bug.summary
    )?;
    writeln!(out, "Then run: cargo xtask chaos --bugs --save {}", bug.name)?;
    Ok(ExitCode::SUCCESS)
}

fn save(bug: &Bug, source: &Path, folder: &Path) -> Result<ExitCode, Failure> {
    let saved = bug.with_diff(&edited_copy(source, folder).diff()?)?;
    saved.write(source)?;
    check(&[saved], source)
}

fn edited_copy(source: &Path, folder: &Path) -> SourceCopy {
    SourceCopy::new(source, &folder.join("edit"))
}

/// Where gateways with bugs are built and run.
struct Workshop {
    copy: SourceCopy,
    folder: PathBuf,
}

/// How the attempts to detect a bug ended.
enum Outcome {
    Detected { promises: Vec<String>, seed: u64 },
    Missed,
    Broken(Failure),
}

impl Workshop {
    fn new(source: &Path, folder: &Path) -> Self {
        Self { copy: SourceCopy::new(source, &folder.join("source")), folder: folder.to_owned() }
    }

    fn build_all(&self, bugs: &[Bug]) -> Result<ExitCode, Failure> {
        let mut out = io::stdout();
        let mut is_good = true;
        for bug in bugs {
            write!(out, "{:<26} {:<84} ", bug.name, bug.summary)?;
            out.flush()?;
            match self.build_with(bug) {
                Ok(_) => writeln!(out, "compiles")?,
                Err(failure) => {
                    is_good = false;
                    writeln!(out, "FAILED: {failure}")?;
                }
            }
        }
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn detect_all(&self, bugs: &[Bug]) -> Result<ExitCode, Failure> {
        let mut out = io::stdout();
        write!(out, "{:<26} {:<84} ", "(none)", "the gateway without a bug violates no promise")?;
        out.flush()?;
        let mut is_good = self.violated_without_bug()?.is_empty();
        writeln!(out, "{}", if is_good { "ok" } else { "VIOLATED" })?;
        for bug in bugs {
            write!(out, "{:<26} {:<84} ", bug.name, bug.summary)?;
            out.flush()?;
            let outcome = self.detect(bug).unwrap_or_else(Outcome::Broken);
            is_good &= matches!(outcome, Outcome::Detected { .. });
            match outcome {
                Outcome::Detected { promises, seed } => {
                    writeln!(out, "detected by {} (seed {seed})", promises.join(", "))?;
                }
                Outcome::Missed => writeln!(out, "MISSED")?,
                Outcome::Broken(failure) => writeln!(out, "FAILED: {failure}")?,
            }
        }
        Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Without this run, a detected bug might be a violation that the gateway has anyway.
    fn violated_without_bug(&self) -> Result<Vec<String>, Failure> {
        self.copy.refresh()?;
        let gateway = self.build("(none)")?;
        self.violated(&gateway, "no-bug", &[], SEEDS[0])
    }

    fn detect(&self, bug: &Bug) -> Result<Outcome, Failure> {
        let gateway = self.build_with(bug)?;
        for seed in SEEDS {
            let promises = self.violated(&gateway, &bug.name, &bug.options, seed)?;
            if promises.iter().any(|promise| bug.violates.contains(promise)) {
                // The history of a run that did what it should is of no interest.
                fs::remove_dir_all(self.folder.join(&bug.name))?;
                return Ok(Outcome::Detected { promises, seed });
            }
        }
        Ok(Outcome::Missed)
    }

    fn build_with(&self, bug: &Bug) -> Result<PathBuf, Failure> {
        self.copy.refresh()?;
        self.copy.apply(bug)?;
        self.build(&bug.name)
    }

    /// Builds the gateway from the copy, in a build folder that all bugs share, so that cargo
    /// compiles only the crates that changed. Returns the path of the program.
    fn build(&self, name: &str) -> Result<PathBuf, Failure> {
        let (target, log) = (self.folder.join("target"), self.folder.join("build.log"));
        let output = File::create(&log)?;
        let built = Command::new("cargo")
            .args(["build", "--quiet", "--locked", "--package", "steadfast-gateway", "--target-dir"])
            .arg(&target)
            .current_dir(self.copy.folder())
            .stdout(output.try_clone()?)
            .stderr(output)
            .status()?;
        if built.success() {
            Ok(target.join("debug").join("steadfast"))
        } else {
            Err(Failure::bug(name, format!("the gateway does not compile; see {}", log.display())))
        }
    }

    /// Runs chaos against a gateway. Returns the names of the promises that it violated.
    fn violated(
        &self,
        gateway: &Path,
        name: &str,
        options: &[String],
        seed: u64,
    ) -> Result<Vec<String>, Failure> {
        let log = self.folder.join(format!("{name}.log"));
        let output = Command::new(std::env::current_exe()?)
            .args(["run", "--json", "--seed", &seed.to_string(), "--gateway"])
            .arg(gateway)
            .arg("--folder")
            .arg(self.folder.join(name))
            .args(RUN_OPTIONS)
            .args(options)
            .stderr(File::create(&log)?)
            .output()?;
        let report: Value = serde_json::from_slice(&output.stdout).map_err(|_| {
            Failure::bug(name, format!("the run with seed {seed} has no report; see {}", log.display()))
        })?;
        let promises = report["promises"].as_array().map_or(&[][..], Vec::as_slice);
        let violated = promises.iter().filter(|promise| promise["violations"] != Value::Array(Vec::new()));
        Ok(violated.filter_map(|promise| Some(promise["name"].as_str()?.to_owned())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if an edit of the source tree left a patch behind. `cargo xtask chaos --bugs --edit
    /// NAME` helps to adapt the patch.
    #[test]
    fn every_bug_applies_to_the_source_tree() {
        let package = std::env::var("CARGO_MANIFEST_DIR").unwrap();
        let source = Path::new(&package).parent().unwrap();
        let bugs = Bug::load_all(source).unwrap();
        assert!(!bugs.is_empty());
        let failures: Vec<String> = bugs.iter().filter_map(|bug| bug.check(source).err()).collect();
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }
}
