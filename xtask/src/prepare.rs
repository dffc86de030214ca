//! Getting ready: what is fetched or built before something can run. What is fetched is kept in the build folder.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::runner::{now, seconds};
use crate::suites::STORES;

const FETCH_LIMIT: Duration = Duration::from_secs(600);
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
/// What the variables begin with in which cargo describes a package.
const OF_A_PACKAGE: &[&str] = &["CARGO_MANIFEST_", "CARGO_PKG_"];
/// How often a person hears that something still goes on.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// Builds programs of the workspace from the libraries that `cargo test --workspace` has compiled.
/// Cargo shares them only if the features are the same: `--workspace` and [`STORES`] turn on those
/// of the packages, `--examples` those of their `dev-dependencies` (the workspace has no examples).
/// The suite `alone` compiles what users build by itself.
pub(crate) fn build(root: &Path, programs: &[&str], log: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let mut cargo = Command::new("cargo");
    as_from_a_shell(&mut cargo);
    cargo.args(["build", "--quiet", "--locked", "--workspace", "--features", STORES, "--examples"]);
    cargo.args(programs.iter().flat_map(|program| ["--bin", program])).current_dir(root);
    run(&format!("building {}", programs.join(", ")), &mut cargo, log, BUILD_LIMIT, out)
}

/// Takes away the variables in which `cargo run` describes the package of this program. Build scripts
/// read some of them (ring's does), so with them cargo would compile ring and everything above it
/// again whenever a person runs `cargo test` after `cargo xtask test`, or CI has another clone.
pub(crate) fn as_from_a_shell(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| OF_A_PACKAGE.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
}

/// Copies the sources of a Node.js program and fetches what its lock file names.
pub(crate) fn node(from: &Path, to: &Path, log: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    copy_files(from, to)?;
    let lock = fs::read_to_string(from.join("package-lock.json"))?;
    once(to, &lock, &to.join("node_modules"), || {
        let mut npm = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(to);
        run(&format!("fetching what {} needs", name(from)), &mut npm, log, FETCH_LIMIT, out)
    })
}

/// Copies the sources of a Python program and makes an environment with what its requirements name.
pub(crate) fn python(from: &Path, to: &Path, log: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    copy_files(from, to)?;
    let requirements = fs::read_to_string(from.join("requirements.txt"))?;
    once(to, &requirements, &venv_python(to), || {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "--clear", "venv"]).current_dir(to);
        run("making a Python environment", &mut venv, log, FETCH_LIMIT, out)?;
        let mut pip = Command::new(venv_python(to));
        let install = ["-m", "pip", "install", "--disable-pip-version-check"];
        pip.args(install).args(["--requirement", "requirements.txt"]).current_dir(to);
        run(&format!("fetching what {} needs", name(from)), &mut pip, log, FETCH_LIMIT, out)
    })
}

/// Copies the sources of a Go program, fetches what its `go.sum` names, and builds it. Gives the program.
pub(crate) fn go(from: &Path, to: &Path, log: &Path, out: &mut dyn Write) -> Result<PathBuf, Failure> {
    copy_files(from, to)?;
    let program = to.join(if cfg!(windows) { "program.exe" } else { "program" });
    once(to, &all_text(from)?, &program, || {
        let mut go = Command::new("go");
        go.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".").current_dir(to);
        run(&format!("building {}", name(from)), &mut go, log, FETCH_LIMIT, out)
    })?;
    Ok(program)
}

/// Copies the sources of a Java program, fetches what its `pom.xml` names, and compiles it. Gives the class path.
pub(crate) fn java(from: &Path, to: &Path, log: &Path, out: &mut dyn Write) -> Result<OsString, Failure> {
    copy_files(from, to)?;
    once(to, &all_text(from)?, &to.join("target/classes"), || {
        let mut maven = Command::new(if cfg!(windows) { "mvn.cmd" } else { "mvn" });
        maven.args(["--batch-mode", "--quiet", "process-classes"]).current_dir(to);
        run(&format!("building {}", name(from)), &mut maven, log, FETCH_LIMIT, out)
    })?;
    let parts = [to.join("target/classes"), to.join("target/lib/*")];
    env::join_paths(parts).map_err(|error| Failure::Broken(error.to_string()))
}

/// The interpreter of the environment in `folder`.
pub(crate) fn venv_python(folder: &Path) -> PathBuf {
    folder.join("venv").join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
}

/// Runs a command to its end, saying so, with its output in a log that is shown if it fails.
pub(crate) fn run(
    what: &str,
    command: &mut Command,
    log: &Path,
    limit: Duration,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    write!(out, "{what} ")?;
    out.flush()?;
    let started = now();
    let mut said = started;
    let ended = watch(command, log, limit, || {
        if said.elapsed() > SIGN_OF_LIFE {
            said = now();
            write!(out, ".")?;
            out.flush()?;
        }
        Ok(())
    })?;
    let took = seconds(started.elapsed());
    match ended {
        Ended::Well => Ok(writeln!(out, " {took}")?),
        Ended::Badly => {
            writeln!(out, " FAILED after {took}\n{}", fs::read_to_string(log)?)?;
            Err(Failure::Reported)
        }
        Ended::Never => Err(Failure::Broken(format!("{what}: not done after {took}; see {}", log.display()))),
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Well,
    Badly,
    /// It was still running when its time was over.
    Never,
}

/// Waits for a command, but not for longer than `limit`; its output goes to the end of a log.
pub(crate) fn watch(
    command: &mut Command,
    log: &Path,
    limit: Duration,
    mut meanwhile: impl FnMut() -> Result<(), Failure>,
) -> Result<Ended, Failure> {
    let file = File::options().create(true).append(true).open(log)?;
    let program = command.get_program().to_string_lossy().into_owned();
    let started = now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()
        .map_err(|error| Failure::Broken(format!("cannot start `{program}`: {error}")))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() { Ended::Well } else { Ended::Badly });
        }
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::Never);
        }
        meanwhile()?;
        thread::sleep(Duration::from_millis(50));
    }
}

/// Does it unless it was done for the same `input` and what came of it is there: the folder may be an older release's.
fn once(
    folder: &Path,
    input: &str,
    made: &Path,
    work: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mark = folder.join("prepared-for");
    if made.exists() && fs::read_to_string(&mark).is_ok_and(|done| done == input) {
        return Ok(());
    }
    work()?;
    Ok(fs::write(mark, input)?)
}

/// All that somebody wrote in `folder`.
fn all_text(folder: &Path) -> Result<String, Failure> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let texts = paths.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>()?;
    Ok(texts.concat())
}

/// Sources run from where their dependencies are; nothing is ever fetched into the source tree.
fn copy_files(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cargo describes this package to its tests, too.
    #[test]
    fn a_command_knows_nothing_of_this_package() {
        let mut command = Command::new("cargo");
        as_from_a_shell(&mut command);
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR"] {
            assert!(env::var_os(name).is_some(), "{name} is not set here");
            assert!(command.get_envs().any(|entry| entry == (name.as_ref(), None)), "{name} is passed on");
        }
        assert!(!command.get_envs().any(|(name, _)| name == "PATH"));
    }

    #[test]
    fn what_is_done_is_done_again_for_something_else_or_if_it_is_gone() {
        let folder = env::temp_dir().join(format!("xtask-prepare-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let made = folder.join("made");
        let prepare = |input: &str| {
            let mut times = 0;
            let work = || {
                times += 1;
                Ok(fs::write(&made, input)?)
            };
            once(&folder, input, &made, work).unwrap();
            times
        };
        assert_eq!((prepare("a"), prepare("a"), prepare("b")), (1, 0, 1));
        fs::remove_file(&made).unwrap();
        assert_eq!((prepare("b"), prepare("b")), (1, 0));
        fs::remove_dir_all(&folder).unwrap();
    }
}
