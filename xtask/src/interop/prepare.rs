//! What a client needs before it can run: its SDK, fetched once and kept in the build folder.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::Places;
use crate::failure::Failure;
use crate::runner::{now, seconds};

const FETCH_LIMIT: Duration = Duration::from_secs(600);
/// How often a person hears that something still goes on.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

pub(super) fn typescript(_root: &Path, places: &Places, out: &mut dyn Write) -> Result<(), Failure> {
    let (from, to) = (places.sources.join("typescript"), places.cache.join("typescript"));
    fs::create_dir_all(&to)?;
    copy_files(&from, &to)?;
    let lock = fs::read_to_string(from.join("package-lock.json"))?;
    once(&to, &lock, || {
        let mut npm = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&to);
        run("fetching the TypeScript SDK", &mut npm, &places.run.join("npm.log"), FETCH_LIMIT, out)
    })
}

pub(super) fn python(_root: &Path, places: &Places, out: &mut dyn Write) -> Result<(), Failure> {
    let (from, to) = (places.sources.join("python"), places.cache.join("python"));
    fs::create_dir_all(&to)?;
    copy_files(&from, &to)?;
    let requirements = fs::read_to_string(from.join("requirements.txt"))?;
    once(&to, &requirements, || {
        let log = places.run.join("pip.log");
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "--clear", "venv"]).current_dir(&to);
        run("making a Python environment", &mut venv, &log, FETCH_LIMIT, out)?;
        let mut pip = Command::new(venv_python(&to));
        pip.args([
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--requirement",
            "requirements.txt",
        ]);
        run("fetching the Python SDK", pip.current_dir(&to), &log, FETCH_LIMIT, out)
    })
}

pub(super) fn rust(root: &Path, places: &Places, out: &mut dyn Write) -> Result<(), Failure> {
    // On its own, so that its features do not change the server that is tested.
    let build = ["build", "--quiet", "--locked", "--package", "steadfast-interop-rmcp"];
    let mut cargo = Command::new("cargo");
    cargo.args(build).current_dir(root);
    run("building the rmcp client", &mut cargo, &places.run.join("rmcp-build.log"), FETCH_LIMIT * 3, out)
}

/// The interpreter of the environment in `folder`.
pub(super) fn venv_python(folder: &Path) -> std::path::PathBuf {
    folder.join("venv").join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
}

/// Runs a command to its end, saying so, with its output in a log that is shown if it fails.
pub(super) fn run(
    what: &str,
    command: &mut Command,
    log: &Path,
    limit: Duration,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let file = File::options().create(true).append(true).open(log)?;
    write!(out, "{what} ")?;
    out.flush()?;
    let started = now();
    let mut said = started;
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .map_err(|error| Failure::Broken(format!("cannot start `{program}`: {error}")))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            break None;
        }
        if said.elapsed() > SIGN_OF_LIFE {
            said = now();
            write!(out, ".")?;
            out.flush()?;
        }
        thread::sleep(Duration::from_millis(50));
    };
    let took = seconds(started.elapsed());
    match status {
        Some(status) if status.success() => Ok(writeln!(out, " {took}")?),
        Some(_) => {
            writeln!(out, " FAILED after {took}\n{}", fs::read_to_string(log)?)?;
            Err(Failure::Reported)
        }
        None => Err(Failure::Broken(format!("{what}: not done after {took}; see {}", log.display()))),
    }
}

/// Does it unless it was done for the same `input`.
fn once(folder: &Path, input: &str, work: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let mark = folder.join("prepared-for");
    if fs::read_to_string(&mark).is_ok_and(|done| done == input) {
        return Ok(());
    }
    work()?;
    Ok(fs::write(mark, input)?)
}

/// Sources run from where their dependencies are; nothing is ever fetched into the source tree.
fn copy_files(from: &Path, to: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
