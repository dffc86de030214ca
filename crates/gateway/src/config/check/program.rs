//! Whether a program is there. One that is not may be before anybody needs it, so this keeps nothing from being served.

use std::path::{Path, PathBuf};

use super::Checks;
use crate::config::endpoint::Stdio;

/// Where systems look if there is no `PATH`.
const USUAL: &str = "/bin:/usr/bin";

impl Checks<'_> {
    /// `stdio` has the values of its variables.
    pub(super) fn look_for_program(&mut self, at: &str, stdio: &Stdio) {
        if self.places_of(stdio).iter().any(|place| (self.world.is_program)(place)) {
            return;
        }
        let command = &stdio.command;
        let (what, remedy) = if is_name(command) {
            // What is in it is a value of the environment, which nobody else is told.
            let what = format!("no program {command:?} is in its PATH");
            (what, "its path, or a PATH that leads to it, in `stdio.env` or where the gateway is started")
        } else {
            (
                format!("{command} is no file that can be run"),
                "a path of a program that may be run (chmod +x)",
            )
        };
        self.warn(format!("{at}.stdio.command"), what, remedy);
    }

    /// A name that can be none is a fault. A variable that is not set is worth a warning: it may be optional.
    pub(super) fn inherited_variables(&mut self, at: &str, stdio: &Stdio) {
        for (index, name) in stdio.inherit_env.iter().enumerate() {
            let key = format!("{at}.stdio.inherit_env[{index}]");
            if name.is_empty() || name.contains(['=', '\0']) {
                let what = format!("{name:?} is no name of a variable");
                self.fault(key, what, "a name such as GITHUB_TOKEN; `env` sets values");
            } else if !self.world.variables.contains_key(name) {
                let what = format!("the variable {name} is not set, so the program does not receive it");
                self.warn(key, what, "the variable where the gateway is started, or a value in `env`");
            }
        }
    }

    /// Everything that it may be, as the operating system sees it: a path leads from the folder where it is started, and a name is
    /// looked for in the `PATH` that it will have itself.
    fn places_of(&self, stdio: &Stdio) -> Vec<PathBuf> {
        let folder = Path::new(stdio.folder.as_deref().unwrap_or_default());
        if !is_name(&stdio.command) {
            return vec![folder.join(&stdio.command)];
        }
        let paths = std::env::split_paths(self.path_of(stdio));
        paths.map(|path| folder.join(path).join(&stdio.command)).collect()
    }

    fn path_of<'a>(&'a self, stdio: &'a Stdio) -> &'a str {
        let path = stdio.env.get("PATH").or_else(|| self.world.variables.get("PATH"));
        path.map_or(USUAL, String::as_str)
    }
}

fn is_name(command: &str) -> bool {
    !command.contains(std::path::is_separator)
}
