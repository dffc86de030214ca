//! Tells the command which commit it was built from, for `--version`.
//!
//! Packagers set `STEADFAST_COMMIT`, for instance to `0123456789ab 2026-07-28`. Without it git is
//! asked. Where there is no git, or no checkout, the version stands alone.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=STEADFAST_COMMIT");
    let packaged = std::env::var("STEADFAST_COMMIT").ok().filter(|commit| !commit.trim().is_empty());
    let commit = packaged.or_else(checkout).map(|commit| format!(" ({})", commit.trim())).unwrap_or_default();
    println!("cargo::rustc-env=STEADFAST_VERSION={}{commit}", env!("CARGO_PKG_VERSION"));
}

/// The commit of the checkout that this file is in, and its date.
fn checkout() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    // A copy of the sources within some other repository must not take the commit of that one.
    let top = PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if top != root {
        return None;
    }
    let branch = git(&root, &["symbolic-ref", "--quiet", "HEAD"]);
    // One of these changes with every commit and every checkout. Cargo would run this again each
    // time for a file that is not there.
    for name in ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let file = git(&root, &["rev-parse", "--git-path", name]).map(|file| root.join(file));
        if let Some(file) = file.filter(|file| file.exists()) {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
    git(&root, &["log", "-1", "--abbrev=12", "--format=%h %cs"])
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
