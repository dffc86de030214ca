//! Installs missing tools on a Debian machine, so that CI needs nothing but toolchains.

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use steadfast_test_setup::{Failure, run};

/// The limit for one `apt-get` command.
const LIMIT: Duration = Duration::from_secs(900);

#[derive(Debug)]
pub(crate) struct Apt {
    /// The `apt-get` program, or `None` if nothing may be installed.
    program: Option<PathBuf>,
    /// Whether the package lists were updated. They may be absent or outdated at first.
    has_lists: Cell<bool>,
}

impl Apt {
    /// Installs packages if there is `apt-get` and the run is in CI or by root.
    pub(crate) fn of_this_machine(ci: bool) -> Self {
        let is_here = output_of("apt-get", "--version").is_some();
        let is_root = || output_of("id", "-u").is_some_and(|user| user.trim() == "0");
        Self::by((is_here && (ci || is_root())).then(|| "apt-get".into()))
    }

    pub(crate) fn by(program: Option<PathBuf>) -> Self {
        Self { program, has_lists: Cell::new(false) }
    }

    /// Installs packages and prints that. Succeeds also if a package cannot be installed: then its
    /// tool stays missing, and the reason is in the log.
    pub(crate) fn install(&self, packages: &[&str], log: &Path, out: &mut dyn Write) -> Result<(), Failure> {
        let Some(program) = self.program.as_deref().filter(|_| !packages.is_empty()) else { return Ok(()) };
        writeln!(out)?;
        if !self.has_lists.replace(true) {
            tolerate(run("  updating the package lists", apt(program).arg("update"), log, LIMIT, out))?;
        }
        let what = format!("  installing {}", packages.join(", "));
        let mut install = apt(program);
        install.args(["install", "-y", "--no-install-recommends"]).args(packages);
        tolerate(run(&what, &mut install, log, LIMIT, out))
    }
}

/// Returns an `apt-get` command that asks no questions and, where possible, starts no service of a
/// package. A service that starts nevertheless does no harm: tests start their own servers on free
/// ports.
fn apt(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    command
}

/// The failure is printed already. The suite that needs the tool reports that it is missing.
fn tolerate(installed: Result<(), Failure>) -> Result<(), Failure> {
    match installed {
        Err(Failure::Reported | Failure::Broken(_)) => Ok(()),
        other => other,
    }
}

fn output_of(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::{env, fs, process};

    /// Returns a script in place of `apt-get` that records its arguments, and its folder.
    fn fake(name: &str, ends: &str) -> (Apt, PathBuf) {
        let folder = env::temp_dir().join(format!("xtask-apt-{name}-{}", process::id()));
        fs::create_dir_all(&folder).expect("a folder of its own");
        let program = folder.join("apt-get");
        let script =
            format!("#!/bin/sh\necho \"$DEBIAN_FRONTEND $@\" >> {}/arguments\n{ends}\n", folder.display());
        fs::write(&program, script).expect("a folder of its own");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a folder of its own");
        (Apt::by(Some(program)), folder)
    }

    fn install(apt: &Apt, packages: &[&str], folder: &Path) -> String {
        let mut out = Vec::new();
        apt.install(packages, &folder.join("log"), &mut out).expect("a folder of its own");
        String::from_utf8(out).expect("a folder of its own")
    }

    #[test]
    fn lists_are_fetched_once_and_packages_each_time() {
        let (apt, folder) = fake("good", "exit 0");
        let said = install(&apt, &["one", "two"], &folder) + &install(&apt, &["three"], &folder);
        install(&apt, &[], &folder);
        let arguments = fs::read_to_string(folder.join("arguments")).unwrap();
        fs::remove_dir_all(folder).unwrap();
        let expect = [
            "noninteractive update",
            "noninteractive install -y --no-install-recommends one two",
            "noninteractive install -y --no-install-recommends three",
        ];
        assert_eq!(arguments.lines().collect::<Vec<_>>(), expect);
        assert!(said.contains("  installing one, two ") && said.contains("  installing three "), "{said}");
    }

    #[test]
    fn a_package_that_cannot_be_installed_is_printed_and_is_no_failure() {
        let (apt, folder) = fake("bad", "echo no such package; exit 100");
        let said = install(&apt, &["one"], &folder);
        fs::remove_dir_all(folder).unwrap();
        assert!(said.contains("FAILED") && said.contains("no such package"), "{said}");
    }

    #[test]
    fn nothing_is_installed_without_apt_get() {
        assert_eq!(install(&Apt::by(None), &["one"], Path::new("/nowhere")), "");
    }
}
