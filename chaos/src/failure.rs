//! Errors that prevent a run from producing a report. A violated promise is not such an error.

use std::io;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// A program is missing on this machine, or does not start.
    #[error("{what} does not start: {why}")]
    NotStarted { what: String, why: String },
    /// A gateway, a server or the store exited, although the nemesis did not stop it.
    #[error("{what} exited unexpectedly; see {log}")]
    Died { what: String, log: String },
    /// An injected bug cannot be built or run. A patch that does not apply is the usual reason.
    #[error("bug {name}: {why}")]
    Bug { name: String, why: String },
    #[error("git {command}: {why}")]
    Git { command: String, why: String },
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A history file is not valid.
    #[error("{0}")]
    History(#[from] steadfast_verify::ParseError),
}

impl Failure {
    pub(crate) fn bug(name: &str, why: impl Into<String>) -> Self {
        Self::Bug { name: name.to_owned(), why: why.into() }
    }
}
