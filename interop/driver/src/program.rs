//! A client or server program on an SDK: its language, its folder, and how it is built and started.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::folders::{Checkout, Folders};
use steadfast_test_setup::{self as setup, Failure};

#[derive(Debug)]
pub(crate) enum Program {
    /// A file beside a `package-lock.json`.
    Node { folder: &'static str, file: &'static str },
    /// A file beside a `requirements.txt`.
    Python { folder: &'static str, file: &'static str },
    /// A package of the workspace with a program of the same name.
    Rust { package: &'static str },
    /// A program beside a `go.sum`.
    Go { folder: &'static str },
    /// A class beside a `pom.xml`.
    Java { folder: &'static str, class: &'static str },
}

impl Program {
    pub(crate) const fn node(folder: &'static str, file: &'static str) -> Self {
        Self::Node { folder, file }
    }

    pub(crate) const fn python(folder: &'static str, file: &'static str) -> Self {
        Self::Python { folder, file }
    }

    pub(crate) const fn rust(package: &'static str) -> Self {
        Self::Rust { package }
    }

    /// Returns why the program cannot be built or started on this machine.
    pub(crate) fn missing_tools(&self) -> Option<String> {
        let missing = setup::missing(match self {
            Self::Node { .. } => &["node", "npm"],
            Self::Python { .. } => &["python3", "python3-venv"],
            Self::Rust { .. } => &[],
            Self::Go { .. } => &["go"],
            Self::Java { .. } => &["jdk", "mvn"],
        });
        let missing: Vec<&str> = missing.iter().map(|tool| tool.name).collect();
        (!missing.is_empty()).then(|| format!("{} is missing", missing.join(", ")))
    }

    /// Fetches or builds the program and returns the command that starts it.
    pub(crate) fn prepare(
        &self,
        checkout: &Checkout,
        folders: &Folders,
        log: &Path,
        out: &mut dyn Write,
    ) -> Result<Command, Failure> {
        let paths = |folder| (folders.sources.join(folder), folders.cache.join(folder));
        match self {
            Self::Node { folder, file } => {
                let (from, to) = paths(folder);
                setup::node(&from, &to, log, out)?;
                let mut node = Command::new("node");
                node.arg(to.join(file));
                Ok(node)
            }
            Self::Python { folder, file } => {
                let (from, to) = paths(folder);
                setup::python(&from, &to, log, out)?;
                let mut python = Command::new(setup::venv_python(&to));
                python.arg("-u").arg(to.join(file));
                Ok(python)
            }
            Self::Rust { package } => {
                setup::build(&checkout.root, &[package], log, out)?;
                Ok(Command::new(checkout.program(package)))
            }
            Self::Go { folder } => {
                let (from, to) = paths(folder);
                Ok(Command::new(setup::go(&from, &to, log, out)?))
            }
            Self::Java { folder, class } => {
                let (from, to) = paths(folder);
                let class_path = setup::java(&from, &to, log, out)?;
                let mut java = Command::new("java");
                // The process lives for seconds, so a fast start matters more than fast code.
                java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
                    .arg("-cp")
                    .arg(class_path)
                    .arg(class);
                Ok(java)
            }
        }
    }
}
