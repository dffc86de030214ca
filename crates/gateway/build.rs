//! Sets `STEADFAST_VERSION` for `--version`: the version of the package and the commit.
//!
//! Packagers set `STEADFAST_COMMIT`, for example to `0123456789ab 2026-07-28`. Without it the
//! commit comes from git. Without git or a checkout there is only the version.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=STEADFAST_COMMIT");
    let packaged = std::env::var("STEADFAST_COMMIT").ok().filter(|commit| !commit.trim().is_empty());
    let commit = packaged.or_else(checkout).map(|commit| format!(" ({})", commit.trim())).unwrap_or_default();
    println!("cargo::rustc-env=STEADFAST_VERSION={}{commit}", env!("CARGO_PKG_VERSION"));
}

/// Returns the commit of the checkout of this file, and its date.
fn checkout() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    // If the sources are a part of another repository, its commit is not the one of the sources.
    let top = PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    if top != root {
        return None;
    }
    let branch = git(&root, &["symbolic-ref", "--quiet", "HEAD"]);
    // One of these files changes with every commit and every checkout. A file that does not exist
    // would make Cargo run this script at every build.
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
