//! Builds programs of this workspace.

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{Failure, run};

/// The features that every build of the workspace turns on, so that clippy, tests, documentation
/// and the programs of the other suites share what is compiled.
pub const FEATURES: &str = "steadfast-upstream/redis,steadfast-upstream/postgres";

const BUILD_LIMIT: Duration = Duration::from_secs(1800);
/// Prefixes of the variables in which cargo describes a package.
const PACKAGE_VARIABLES: &[&str] = &["CARGO_MANIFEST_", "CARGO_PKG_"];

/// Builds programs of the workspace from the libraries that `cargo test --workspace` has compiled.
/// Cargo shares them only if the features are the same: `--workspace` and [`FEATURES`] turn on
/// those of the packages, `--examples` those of their `dev-dependencies` (the workspace has no
/// examples). The suite `alone` compiles what users build by itself.
pub fn build(root: &Path, programs: &[&str], log: &Path, out: &mut dyn Write) -> Result<(), Failure> {
    let mut cargo = Command::new("cargo");
    clear_package_variables(&mut cargo);
    cargo.args(["build", "--quiet", "--locked", "--workspace", "--features", FEATURES, "--examples"]);
    cargo.args(programs.iter().flat_map(|program| ["--bin", program])).current_dir(root);
    run(&format!("building {}", programs.join(", ")), &mut cargo, log, BUILD_LIMIT, out)
}

/// Removes the variables in which `cargo run` describes the package of the running program. Build
/// scripts read some of them (the one of ring does). If a command inherited them, cargo would
/// compile ring and everything that depends on it again each time a person runs `cargo test` after
/// `cargo xtask test`, and each time CI uses another clone.
pub fn clear_package_variables(command: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| PACKAGE_VARIABLES.iter().any(|prefix| name.starts_with(prefix))) {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cargo describes the tested package to its tests, too.
    #[test]
    fn a_command_inherits_no_description_of_this_package() {
        let mut command = Command::new("cargo");
        clear_package_variables(&mut command);
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR"] {
            assert!(env::var_os(name).is_some(), "{name} is not set here");
            assert!(command.get_envs().any(|entry| entry == (name.as_ref(), None)), "{name} is inherited");
        }
        assert!(!command.get_envs().any(|(name, _)| name == "PATH"));
    }
}
