//! Fetches the dependencies of programs in other languages and builds those programs.
//!
//! Sources are copied to the build folder and prepared there, so nothing is ever fetched into the
//! source tree. A prepared program is kept until its inputs change.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use crate::{Failure, run};

const FETCH_LIMIT: Duration = Duration::from_secs(600);

/// Copies the sources of a Node.js program and fetches what its lock file names.
pub fn node(from: &Path, to: &Path, log: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    copy_files(from, to)?;
    let lock = fs::read_to_string(from.join("package-lock.json"))?;
    once(to, &lock, &to.join("node_modules"), || {
        let mut npm = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(to);
        run(&format!("fetching the dependencies of {}", name(from)), &mut npm, log, FETCH_LIMIT, out)
    })
}

/// Copies the sources of a Python program and installs what its requirements name into a virtual
/// environment.
pub fn python(from: &Path, to: &Path, log: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    copy_files(from, to)?;
    let requirements = fs::read_to_string(from.join("requirements.txt"))?;
    once(to, &requirements, &venv_python(to), || {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "--clear", "venv"]).current_dir(to);
        run("making a Python environment", &mut venv, log, FETCH_LIMIT, out)?;
        let mut pip = Command::new(venv_python(to));
        let install = ["-m", "pip", "install", "--disable-pip-version-check"];
        pip.args(install).args(["--requirement", "requirements.txt"]).current_dir(to);
        run(&format!("fetching the dependencies of {}", name(from)), &mut pip, log, FETCH_LIMIT, out)
    })
}

/// Copies the sources of a Go program, fetches what its `go.sum` names, and builds it. Returns the
/// path of the executable.
pub fn go(from: &Path, to: &Path, log: &Path, out: &mut dyn Write) -> Result<PathBuf, Failure> {
    copy_files(from, to)?;
    let program = to.join(if cfg!(windows) { "program.exe" } else { "program" });
    once(to, &all_text(from)?, &program, || {
        let mut go = Command::new("go");
        go.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".").current_dir(to);
        run(&format!("building {}", name(from)), &mut go, log, FETCH_LIMIT, out)
    })?;
    Ok(program)
}

/// Copies the sources of a Java program, fetches what its `pom.xml` names, and compiles it. Returns
/// the class path.
pub fn java(from: &Path, to: &Path, log: &Path, out: &mut dyn Write) -> Result<OsString, Failure> {
    copy_files(from, to)?;
    once(to, &all_text(from)?, &to.join("target/classes"), || {
        let mut maven = Command::new(if cfg!(windows) { "mvn.cmd" } else { "mvn" });
        maven.args(["--batch-mode", "--quiet", "process-classes"]).current_dir(to);
        run(&format!("building {}", name(from)), &mut maven, log, FETCH_LIMIT, out)
    })?;
    let parts = [to.join("target/classes"), to.join("target/lib/*")];
    env::join_paths(parts).map_err(|error| Failure::Broken(error.to_string()))
}

/// Returns the interpreter of the virtual environment in `folder`.
pub fn venv_python(folder: &Path) -> PathBuf {
    folder.join("venv").join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
}

/// Does the `work` unless its result `made` exists and was made from the same `input`. The folder
/// may hold the result of an older release.
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

/// Returns the text of all files directly in `folder`.
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

    #[test]
    fn work_is_repeated_for_another_input_or_a_missing_result() {
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
