//! What a client or a server is written in, where it is, and how it is made ready to run.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use super::Places;
use crate::failure::Failure;
use crate::prepare;
use crate::suites::TOOLS;

#[derive(Debug)]
pub(super) enum Program {
    /// A file beside a `package-lock.json`.
    Node { folder: &'static str, file: &'static str },
    /// A file beside a `requirements.txt`.
    Python { folder: &'static str, file: &'static str },
    /// A package of the workspace with a program of its name.
    Rust { package: &'static str },
    /// A program beside a `go.sum`.
    Go { folder: &'static str },
    /// A class beside a `pom.xml`.
    Java { folder: &'static str, class: &'static str },
}

impl Program {
    pub(super) const fn node(folder: &'static str, file: &'static str) -> Self {
        Self::Node { folder, file }
    }

    pub(super) const fn python(folder: &'static str, file: &'static str) -> Self {
        Self::Python { folder, file }
    }

    pub(super) const fn rust(package: &'static str) -> Self {
        Self::Rust { package }
    }

    pub(super) fn missing_tools(&self) -> Option<String> {
        let needs = self.needs();
        let missing = TOOLS.iter().filter(|tool| needs.contains(&tool.name) && !tool.is_usable());
        let missing: Vec<&str> = missing.map(|tool| tool.name).collect();
        (!missing.is_empty()).then(|| format!("{} is missing", missing.join(", ")))
    }

    /// Fetches or builds it, and gives the command that runs it.
    pub(super) fn prepare(
        &self,
        root: &Path,
        places: &Places,
        log: &Path,
        out: &mut dyn Write,
    ) -> Result<Command, Failure> {
        let paths = |folder| (places.sources.join(folder), places.cache.join(folder));
        match self {
            Self::Node { folder, file } => {
                let (from, to) = paths(folder);
                prepare::node(&from, &to, log, out)?;
                let mut node = Command::new("node");
                node.arg(to.join(file));
                Ok(node)
            }
            Self::Python { folder, file } => {
                let (from, to) = paths(folder);
                prepare::python(&from, &to, log, out)?;
                let mut python = Command::new(prepare::venv_python(&to));
                python.arg("-u").arg(to.join(file));
                Ok(python)
            }
            Self::Rust { package } => {
                prepare::build(root, &[package], log, out)?;
                Ok(Command::new(places.programs.join(package)))
            }
            Self::Go { folder } => {
                let (from, to) = paths(folder);
                Ok(Command::new(prepare::go(&from, &to, log, out)?))
            }
            Self::Java { folder, class } => {
                let (from, to) = paths(folder);
                let class_path = prepare::java(&from, &to, log, out)?;
                let mut java = Command::new("java");
                // It lives for seconds: what matters is how soon it is there.
                java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
                    .arg("-cp")
                    .arg(class_path)
                    .arg(class);
                Ok(java)
            }
        }
    }

    /// Names from [`TOOLS`].
    fn needs(&self) -> &'static [&'static str] {
        match self {
            Self::Node { .. } => &["node", "npm"],
            Self::Python { .. } => &["python3", "python3-venv"],
            Self::Rust { .. } => &[],
            Self::Go { .. } => &["go"],
            Self::Java { .. } => &["jdk", "mvn"],
        }
    }
}
