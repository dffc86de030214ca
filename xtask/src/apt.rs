//! Missing tools on a Debian machine: fetched by the run itself, so that CI needs nothing but toolchains.

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::failure::Failure;
use crate::prepare;

/// How long one step of it may take.
const LIMIT: Duration = Duration::from_secs(900);

#[derive(Debug)]
pub(crate) struct Apt {
    /// `None` where nothing may be installed.
    program: Option<PathBuf>,
    /// The lists of packages may be absent, or older than what is to be had. Once is enough.
    has_lists: Cell<bool>,
}

impl Apt {
    /// Installs in CI, and for whoever is root, if there is `apt-get`; not on anybody else's machine.
    pub(crate) fn of_this_machine(ci: bool) -> Self {
        let is_here = answers("apt-get", "--version").is_some();
        let is_root = || answers("id", "-u").is_some_and(|user| user.trim() == "0");
        Self::by((is_here && (ci || is_root())).then(|| "apt-get".into()))
    }

    pub(crate) fn by(program: Option<PathBuf>) -> Self {
        Self { program, has_lists: Cell::new(false) }
    }

    /// Installs packages, saying so. What becomes of them the caller finds out by looking: a package that cannot be had leaves its
    /// tool missing, with the reason in the log.
    pub(crate) fn install(&self, packages: &[&str], log: &Path, out: &mut dyn Write) -> Result<(), Failure> {
        let Some(program) = self.program.as_deref().filter(|_| !packages.is_empty()) else { return Ok(()) };
        writeln!(out)?;
        if !self.has_lists.replace(true) {
            tolerate(prepare::run(
                "  fetching the lists of Debian",
                apt(program).arg("update"),
                log,
                LIMIT,
                out,
            ))?;
        }
        let what = format!("  installing {}", packages.join(", "));
        let mut install = apt(program);
        install.args(["install", "-y", "--no-install-recommends"]).args(packages);
        tolerate(prepare::run(&what, &mut install, log, LIMIT, out))
    }
}

/// Asks nobody, and starts no service that comes with a package where that can be told. If one starts nevertheless, it is not in
/// the way: tests have servers of their own, on ports of their own.
fn apt(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1");
    command
}

/// It has been said; the suite that needs the tool will say what follows from it.
fn tolerate(installed: Result<(), Failure>) -> Result<(), Failure> {
    match installed {
        Err(Failure::Reported | Failure::Broken(_)) => Ok(()),
        other => other,
    }
}

fn answers(program: &str, argument: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::{env, fs, process};

    /// Something in place of `apt-get` that notes what it was told, and a folder for it.
    fn fake(name: &str, ends: &str) -> (Apt, PathBuf) {
        let folder = env::temp_dir().join(format!("xtask-apt-{name}-{}", process::id()));
        fs::create_dir_all(&folder).expect("a folder of its own");
        let program = folder.join("apt-get");
        let script =
            format!("#!/bin/sh\necho \"$DEBIAN_FRONTEND $@\" >> {}/told\n{ends}\n", folder.display());
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
        let told = fs::read_to_string(folder.join("told")).unwrap();
        fs::remove_dir_all(folder).unwrap();
        let expect = [
            "noninteractive update",
            "noninteractive install -y --no-install-recommends one two",
            "noninteractive install -y --no-install-recommends three",
        ];
        assert_eq!(told.lines().collect::<Vec<_>>(), expect);
        assert!(said.contains("  installing one, two ") && said.contains("  installing three "), "{said}");
    }

    #[test]
    fn what_cannot_be_had_is_said_and_ends_nothing() {
        let (apt, folder) = fake("bad", "echo no such package; exit 100");
        let said = install(&apt, &["one"], &folder);
        fs::remove_dir_all(folder).unwrap();
        assert!(said.contains("FAILED") && said.contains("no such package"), "{said}");
    }

    #[test]
    fn nothing_is_installed_where_that_is_not_wanted() {
        assert_eq!(install(&Apt::by(None), &["one"], Path::new("/nowhere")), "");
    }
}
