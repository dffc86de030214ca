//! A copy of the source tree that patches are applied to.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::bug::Bug;
use crate::failure::Failure;

/// Variables with which git sets the repository for its hooks. A hook may run the tests.
const GIT_VARIABLES: [&str; 4] = ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"];

#[derive(Debug)]
pub(super) struct SourceCopy {
    source: PathBuf,
    folder: PathBuf,
}

/// Fails if the patch does not apply to the source tree. Changes nothing.
pub(super) fn check(source: &Path, bug: &Bug) -> Result<(), Failure> {
    apply(source, bug, "--check")
}

impl SourceCopy {
    /// `folder` is where the copy is. [`Self::refresh`] creates it.
    pub(super) fn new(source: &Path, folder: &Path) -> Self {
        Self { source: source.to_owned(), folder: folder.to_owned() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the copy equal to the source tree: every file that git does not ignore. Files that are
    /// equal already keep their modification time, so that cargo does not compile them again.
    pub(super) fn refresh(&self) -> Result<(), Failure> {
        fs::create_dir_all(&self.folder)?;
        let listed =
            git(&self.source, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"], "")?;
        let mut files = BTreeSet::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from) {
            let (from, to) = (self.source.join(&path), self.folder.join(&path));
            // A file that was deleted and not committed is listed all the same.
            let Ok(content) = fs::read(&from) else { continue };
            if fs::read(&to).ok() != Some(content) {
                fs::create_dir_all(to.parent().unwrap_or(&self.folder))?;
                fs::copy(&from, &to)?;
            }
            files.insert(to);
        }
        remove_others(&self.folder, &files)
    }

    pub(super) fn apply(&self, bug: &Bug) -> Result<(), Failure> {
        apply(&self.folder, bug, "--verbose")
    }

    /// Applies the hunks that fit. Fails if there are others.
    pub(super) fn apply_what_fits(&self, bug: &Bug) -> Result<(), Failure> {
        apply(&self.folder, bug, "--reject")
    }

    /// Makes the current content of the copy the one that [`Self::diff`] compares with.
    pub(super) fn remember(&self) -> Result<(), Failure> {
        git(&self.folder, &["init", "--quiet"], "")?;
        git(&self.folder, &["add", "--all"], "").map(drop)
    }

    /// The changes since [`Self::remember`], without context lines.
    pub(super) fn diff(&self) -> Result<String, Failure> {
        git(
            &self.folder,
            &["diff", "-U0", "--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/"],
            "",
        )
    }
}

/// Removes every file that is not in `files`, except the repository of [`SourceCopy::remember`].
fn remove_others(folder: &Path, files: &BTreeSet<PathBuf>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() && path.file_name() != Some(".git".as_ref()) {
            remove_others(&path, files)?;
        } else if !kind.is_dir() && !files.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

fn apply(folder: &Path, bug: &Bug, option: &str) -> Result<(), Failure> {
    // Patches have no context lines.
    let applied = git(folder, &["apply", "--unidiff-zero", option, "-"], bug.diff());
    applied.map(drop).map_err(|failure| Failure::bug(&bug.name, failure.to_string()))
}

/// Runs git in a folder. Returns what it prints.
fn git(folder: &Path, arguments: &[&str], input: &str) -> Result<String, Failure> {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(folder);
    GIT_VARIABLES.iter().for_each(|name| _ = command.env_remove(name));
    // The copy is inside the build folder, which may be inside a repository. `git apply` ignores
    // files that are not below the current folder of the repository that it finds.
    command.env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let not_started = |error| Failure::NotStarted { what: "git".to_owned(), why: format!("{error}") };
    let mut running = command.spawn().map_err(not_started)?;
    if let Some(mut stdin) = running.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = running.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Git { command: arguments.join(" "), why: why.trim_end().to_owned() })
}
