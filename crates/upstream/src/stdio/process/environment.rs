//! The environment of a program: a fixed set of the gateway's variables, those that the
//! configuration names, and those that the configuration sets.
//!
//! The gateway's own environment may hold the password of the store and the tokens of other
//! servers, and a program is often code of a third party. So a program receives no variable that
//! may carry a secret unless the configuration says so. Proxy addresses (`HTTPS_PROXY`) may contain
//! a password and are not in the fixed set.

use tokio::process::Command;

use crate::config::Program;

/// Variables that programs need to run and that hold no secrets.
const ALWAYS: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    // Folders in which npx and uvx keep what they download, and in which programs look for their
    // settings.
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    // Files and folders with the certificates of authorities.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "JAVA_HOME",
];

/// Variables that most programs need on Windows and that hold no secrets.
const ALWAYS_ON_WINDOWS: &[&str] = &[
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "NUMBER_OF_PROCESSORS",
    "OS",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// `LC_ALL`, `LC_CTYPE` and the like.
const ALWAYS_PREFIX: &str = "LC_";

/// Logged when a process ends before it has answered anything.
pub(crate) const HINT: &str = "a program receives only a few of the gateway's environment variables; \
     `inherit_env` and `env` of its `stdio` table, or the flag --env, pass on others";

pub(crate) fn apply(command: &mut Command, program: &Program) {
    apply_inherited(command, &program.inherit);
    command.envs(&program.environment);
}

/// Gives the command the fixed set, and the gateway's variables with these names.
pub(crate) fn apply_inherited(command: &mut Command, names: &[String]) {
    command.env_clear();
    for (name, value) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| is_inherited(name, names)) {
            command.env(name, value);
        }
    }
}

fn is_inherited(name: &str, names: &[String]) -> bool {
    let is_fixed = |fixed: &&str| is_same(name, fixed);
    name.starts_with(ALWAYS_PREFIX)
        || ALWAYS.iter().any(is_fixed)
        || cfg!(windows) && ALWAYS_ON_WINDOWS.iter().any(is_fixed)
        || names.iter().any(|inherited| is_same(name, inherited))
}

/// Windows does not distinguish upper and lower case in names of variables.
fn is_same(one: &str, other: &str) -> bool {
    if cfg!(windows) { one.eq_ignore_ascii_case(other) } else { one == other }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_harmless_and_named_variables_are_passed_on() {
        let names = ["GITHUB_TOKEN".to_owned()];
        for (name, expect) in [
            ("PATH", true),
            ("LC_CTYPE", true),
            ("XDG_CACHE_HOME", true),
            ("GITHUB_TOKEN", true),
            ("GITHUB_TOKEN_2", false),
            ("AWS_SECRET_ACCESS_KEY", false),
            ("HTTPS_PROXY", false),
            ("STEADFAST__STORE", false),
            ("XDG_RUNTIME_DIR", false),
            ("path", cfg!(windows)),
        ] {
            assert_eq!(is_inherited(name, &names), expect, "{name}");
        }
    }
}
