//! The ways in which a command of `xtask` or of the interop driver fails, and their exit codes.

use std::io;
use std::process::ExitCode;

#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// The machine or the checkout prevents the command from running.
    Broken(String),
    /// The command ran, found a fault and has already reported it.
    Reported,
    /// A program that this command started has failed with this exit code and has reported why.
    Child(u8),
    /// The reader of the output closed it, as `| head` does.
    OutputClosed,
}

impl Failure {
    /// Returns the text for the standard error, if the fault is not reported yet.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Usage(message) | Self::Broken(message) => Some(message),
            Self::Reported | Self::Child(_) | Self::OutputClosed => None,
        }
    }

    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Child(code) => ExitCode::from(*code),
            Self::Broken(_) | Self::Reported | Self::OutputClosed => ExitCode::FAILURE,
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::OutputClosed,
            _ => Self::Broken(error.to_string()),
        }
    }
}
