//! Errors that end the command: what happened, and what to do about it.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use steadfast::StoreUrl;
use steadfast_store::StoreError;

use crate::cli::UnbalancedQuotes;
use crate::config::ConfigFault;
use crate::endpoints::{EndpointError, StartError};

/// The exit code for wrong flags or a wrong configuration.
const USAGE: u8 = 2;

#[derive(Debug)]
pub(crate) enum Failure {
    /// Every fault of the configuration.
    Config(Vec<ConfigFault>),
    ConfigFile {
        path: PathBuf,
        error: io::Error,
    },
    Quotes(UnbalancedQuotes),
    Listen {
        address: SocketAddr,
        error: io::Error,
    },
    Store {
        store: StoreUrl,
        error: StoreError,
    },
    Endpoint(StartError),
    NoDataFolder {
        reason: String,
    },
    DataFolder {
        path: PathBuf,
        error: io::Error,
    },
    Serve(io::Error),
    Runtime(io::Error),
}

impl Failure {
    /// Prints the failure to stderr and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let text = match self {
            Self::Config(faults) => faults.iter().map(|fault| format!("error: {fault}\n")).collect(),
            _ => {
                let (what, remedy) = self.describe();
                format!("error: {what}\n  try: {remedy}\n")
            }
        };
        // If stderr is closed, the exit code is all that is left.
        let _ = io::stderr().write_all(text.as_bytes());
        match self {
            Self::Config(_) | Self::ConfigFile { .. } | Self::Quotes(_) => ExitCode::from(USAGE),
            _ => ExitCode::FAILURE,
        }
    }

    /// Returns what happened, and what to do about it.
    pub(crate) fn describe(&self) -> (String, String) {
        match self {
            Self::Config(faults) => {
                (format!("the configuration has {} faults", faults.len()), "fixing them".into())
            }
            Self::ConfigFile { path, error } => (
                format!("{}: {error}", path.display()),
                "the path of a configuration file; `steadfast config example` prints one".into(),
            ),
            Self::Quotes(UnbalancedQuotes(command)) => {
                (format!("a quote is not closed in: {command}"), "--stdio 'program \"an argument\"'".into())
            }
            Self::Listen { address, error } if error.kind() == io::ErrorKind::AddrInUse => (
                format!("another program uses {address}"),
                "another port, for example --listen 127.0.0.1:7412, or :0 for any free port".into(),
            ),
            Self::Listen { address, error } => (
                format!("cannot listen on {address}: {error}"),
                "an address of this machine, for example --listen 127.0.0.1:7411".into(),
            ),
            Self::Store { store, error } => (
                format!("{store}: the session store cannot be opened: {error}"),
                "another store: --store sqlite:PATH, or --store memory:".into(),
            ),
            Self::Endpoint(StartError { path, error: EndpointError::Upstream(error) }) => {
                (format!("cannot start the endpoint {path}: {error}"), "another `upstream` or `stdio`".into())
            }
            Self::Endpoint(StartError { path, error: EndpointError::Auth(error) }) => {
                (format!("cannot start the endpoint {path}: {error}"), "another [endpoint.jwt]".into())
            }
            Self::Endpoint(StartError { path, error: EndpointError::Store(error) }) => (
                format!("cannot start the endpoint {path}: {error}"),
                "another store: --store sqlite:PATH, or --store memory:".into(),
            ),
            Self::NoDataFolder { reason } => (
                format!("the data folder is unknown: {reason}"),
                "--store sqlite:PATH, or --store memory:".into(),
            ),
            Self::DataFolder { path, error } => (
                format!("cannot create the folder {}: {error}", path.display()),
                "--store sqlite:PATH, or --store memory:".into(),
            ),
            Self::Serve(error) => {
                (format!("the listener failed: {error}"), "starting the gateway again".into())
            }
            Self::Runtime(error) => {
                (format!("cannot start threads: {error}"), "a higher process limit".into())
            }
        }
    }
}
