//! What is wrong with a configuration, where, and what to do about it. The operator is to blame.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) place: Place,
    /// The key, as `endpoint[0].path`. Empty if none is to blame.
    pub(crate) key: String,
    pub(crate) what: String,
    pub(crate) remedy: String,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In a file. Lines and columns count from 1, columns in characters.
    File { name: String, line: usize, column: usize },
    /// In a variable of the environment, or on the command line.
    Named(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line, column } => write!(f, "{name}:{line}:{column}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}\n  try: {}", self.what, self.remedy)
    }
}
