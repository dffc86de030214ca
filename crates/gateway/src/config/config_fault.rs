//! [`ConfigFault`]: a fault in a configuration, with what is wrong and what to do about it.

use std::fmt;

/// A fault in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigFault {
    pub(crate) position: Position,
    /// The key, for example `endpoint[0].path`. Empty if the fault belongs to no key.
    pub(crate) key: String,
    pub(crate) what: String,
    pub(crate) remedy: String,
}

/// Where a fault is, or where a value was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Position {
    /// In a file. Lines and columns count from 1, columns in characters.
    File { name: String, line: usize, column: usize },
    /// In the environment variable or the flag with this name.
    EnvOrFlag(String),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line, column } => write!(f, "{name}:{line}:{column}"),
            Self::EnvOrFlag(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.position)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}\n  try: {}", self.what, self.remedy)
    }
}
