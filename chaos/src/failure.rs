//! Why a run could not be made. What a run finds out is no failure.

use std::io;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The machine is to blame: a program is missing, or does not start.
    #[error("{what} does not start: {why}")]
    NotStarted { what: String, why: String },
    /// A program of ours has ended although nobody told it to. That is a finding, and ends the run.
    #[error("{what} has died by itself; see {log}")]
    Died { what: String, log: String },
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Whoever wrote the history is to blame.
    #[error("{0}")]
    History(#[from] steadfast_verify::ParseError),
}
