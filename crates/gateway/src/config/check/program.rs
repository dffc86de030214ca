//! Warns of programs that cannot be found. A program may be installed before its first session
//! needs it, so this is no fault.

use std::path::{Path, PathBuf};

use super::Checks;
use crate::config::file::Stdio;

/// The search path of operating systems if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

impl Checks<'_> {
    /// Expects the variables of `stdio` to be resolved.
    pub(super) fn find_program(&mut self, at: &str, stdio: &Stdio) {
        if self.candidates(stdio).iter().any(|path| (self.environment.is_executable)(path)) {
            return;
        }
        let command = &stdio.command;
        let (what, remedy) = if is_name(command) {
            // The value of PATH may be secret, so the message does not contain it.
            let what = format!("no program {command:?} is in the PATH of the program");
            (what, "the path of the program, or another PATH in `stdio.env` or for the gateway")
        } else {
            (format!("{command} is not an executable file"), "the path of an executable file (chmod +x)")
        };
        self.warn(format!("{at}.stdio.command"), what, remedy);
    }

    /// An invalid name is a fault. A variable that is not set is a warning, because it may be
    /// optional.
    pub(super) fn inherited_variables(&mut self, at: &str, stdio: &Stdio) {
        for (index, name) in stdio.inherit_env.iter().enumerate() {
            let key = format!("{at}.stdio.inherit_env[{index}]");
            if name.is_empty() || name.contains(['=', '\0']) {
                let what = format!("{name:?} is not the name of a variable");
                self.fault(key, what, "a name such as GITHUB_TOKEN; `env` sets values");
            } else if !self.environment.variables.contains_key(name) {
                let what =
                    format!("the environment variable {name} is not set, so the program does not inherit it");
                self.warn(key, what, "the variable for the gateway, or a value in `env`");
            }
        }
    }

    /// The files that the operating system would try. A path starts at the working directory of the
    /// program. A name is looked up in the `PATH` of the program.
    fn candidates(&self, stdio: &Stdio) -> Vec<PathBuf> {
        let cwd = Path::new(stdio.cwd.as_deref().unwrap_or_default());
        if !is_name(&stdio.command) {
            return vec![cwd.join(&stdio.command)];
        }
        let paths = std::env::split_paths(self.path_of(stdio));
        paths.map(|path| cwd.join(path).join(&stdio.command)).collect()
    }

    fn path_of<'a>(&'a self, stdio: &'a Stdio) -> &'a str {
        let path = stdio.env.get("PATH").or_else(|| self.environment.variables.get("PATH"));
        path.map_or(DEFAULT_PATH, String::as_str)
    }
}

fn is_name(command: &str) -> bool {
    !command.contains(std::path::is_separator)
}
