//! Where the sources, the build folder and the files of a run are.

use std::fs;
use std::path::{Path, PathBuf};

use steadfast_test_setup::Failure;

/// The repository and its build folder.
#[derive(Debug)]
pub(crate) struct Checkout {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
}

impl Checkout {
    pub(crate) fn new(root: &Path, target: &Path) -> Self {
        Self { root: root.to_owned(), target: target.to_owned() }
    }

    /// Returns the path of a program of the workspace, built or not.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.target.join("debug").join(name)
    }

    /// Creates an empty folder in the build folder. Removes what an earlier run has left there.
    pub(crate) fn empty_folder(&self, name: &str) -> Result<PathBuf, Failure> {
        let folder = self.target.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// The folders of one run of SDK programs.
#[derive(Debug)]
pub(crate) struct Folders {
    /// The sources of the clients, or of the servers.
    pub(crate) sources: PathBuf,
    /// The prepared programs and their dependencies, kept between runs.
    pub(crate) cache: PathBuf,
    /// The stores and logs of this run.
    pub(crate) run: PathBuf,
}

impl Folders {
    pub(crate) fn new(checkout: &Checkout, sources: &str, cache: &str) -> Result<Self, Failure> {
        let run = checkout.empty_folder(&format!("{cache}/run"))?;
        Ok(Self { sources: checkout.root.join(sources), cache: checkout.target.join(cache), run })
    }
}
