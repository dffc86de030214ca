//! The input of the rules: the text files of the checkout, and the manifests of the workspace.

use std::fs;
use std::path::Path;

use super::workspace::{Package, Workspace};

/// Folders with files that are not ours. A build folder contains a `CACHEDIR.TAG`.
const SKIPPED_FOLDERS: &[&str] = &[".git", "node_modules", ".venv", "__pycache__"];

/// Larger files are data.
const MAX_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Repo {
    /// In order of their paths.
    pub(super) files: Vec<TextFile>,
    pub(super) workspace: Workspace,
}

#[derive(Debug)]
pub(super) struct TextFile {
    /// Relative to the root, with `/` on every platform.
    pub(super) path: String,
    pub(super) text: String,
}

impl Repo {
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let mut files = Vec::new();
        collect(root, "", &mut files).map_err(|error| format!("cannot read the checkout: {error}"))?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files, workspace: Workspace::read(root)? })
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    pub(super) fn rust_files(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    /// Returns the line of a member's manifest that names a dependency.
    pub(super) fn line_of_dependency(&self, member: &Package, dependency: &str) -> Option<usize> {
        let names_it = |line: &str| {
            let rest = line.trim_start().trim_start_matches('"').strip_prefix(dependency);
            let ends = |rest: &str| rest.starts_with([' ', '.', '=', '"']);
            rest.is_some_and(ends) || line.contains(&format!("package = \"{dependency}\""))
        };
        let text = self.text(&format!("{}/Cargo.toml", member.dir))?;
        text.lines().position(names_it).map(|at| at + 1)
    }
}

/// Returns the lines of a text with their numbers, from 1.
pub(super) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<TextFile>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let is_cache = entry.path().join("CACHEDIR.TAG").exists();
            if !is_cache && !SKIPPED_FOLDERS.contains(&name.as_str()) {
                collect(&entry.path(), &format!("{prefix}{name}/"), files)?;
            }
        } else if kind.is_file() && entry.metadata()?.len() <= MAX_FILE_BYTES {
            // A file that is not UTF-8 is not text.
            if let Ok(text) = String::from_utf8(fs::read(entry.path())?) {
                files.push(TextFile { path: format!("{prefix}{name}"), text });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
impl Repo {
    pub(super) fn of_files(files: &[(&str, &str)]) -> Self {
        let file =
            |(path, text): &(&str, &str)| TextFile { path: (*path).to_owned(), text: (*text).to_owned() };
        Self { files: files.iter().map(file).collect(), workspace: Workspace::default() }
    }

    pub(super) fn with_member(mut self, member: Package) -> Self {
        self.workspace.members.push(member);
        self
    }
}
