//! How a chore ends when it does not end well.

use std::io;
use std::process::ExitCode;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The caller's command line makes no sense.
    Usage(String),
    /// The machine or the checkout keeps the chore from running.
    Broken(String),
    /// The chore ran, found something and has said so already.
    Reported,
    /// Whoever reads our output has had enough (`| head`).
    Hangup,
}

impl Failure {
    pub(crate) fn message(&self) -> Option<&str> {
        match self {
            Self::Usage(message) | Self::Broken(message) => Some(message),
            Self::Reported | Self::Hangup => None,
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Broken(_) | Self::Reported | Self::Hangup => ExitCode::FAILURE,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Hangup,
            _ => Self::Broken(error.to_string()),
        }
    }
}
