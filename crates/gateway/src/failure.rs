//! Why the command could not do its work, and what to do about it.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use steadfast::StoreUrl;
use steadfast_store::StoreError;

use crate::cli::UnbalancedQuotes;
use crate::config::Fault;
use crate::gateway::{EndpointError, StartError};

/// What a command ends with that was told something that cannot be.
const MISUSED: u8 = 2;

#[derive(Debug)]
pub(crate) enum Failure {
    /// The operator: everything that is wrong with the configuration.
    Config(Vec<Fault>),
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
        why: String,
    },
    DataFolder {
        path: PathBuf,
        error: io::Error,
    },
    Serve(io::Error),
    Runtime(io::Error),
}

impl Failure {
    pub(crate) fn report(&self) -> ExitCode {
        let text = match self {
            Self::Config(faults) => faults.iter().map(|fault| format!("error: {fault}\n")).collect(),
            _ => {
                let (what, remedy) = self.describe();
                format!("error: {what}\n  try: {remedy}\n")
            }
        };
        // If even stderr is gone, there is nobody to tell.
        let _ = io::stderr().write_all(text.as_bytes());
        match self {
            Self::Config(_) | Self::ConfigFile { .. } | Self::Quotes(_) => ExitCode::from(MISUSED),
            _ => ExitCode::FAILURE,
        }
    }

    pub(crate) fn describe(&self) -> (String, String) {
        match self {
            Self::Config(faults) => {
                (format!("{} faults in the configuration", faults.len()), "mending them".into())
            }
            Self::ConfigFile { path, error } => (
                format!("{}: {error}", path.display()),
                "the path of a file; `steadfast config example` prints one to start from".into(),
            ),
            Self::Quotes(UnbalancedQuotes(command)) => {
                (format!("a quote is not closed in: {command}"), "--stdio 'program \"an argument\"'".into())
            }
            Self::Listen { address, error } if error.kind() == io::ErrorKind::AddrInUse => (
                format!("{address} is taken by another program"),
                "another port, for instance --listen 127.0.0.1:7412, or :0 for any free one".into(),
            ),
            Self::Listen { address, error } => (
                format!("cannot listen on {address}: {error}"),
                "an address of this machine, for instance --listen 127.0.0.1:7411".into(),
            ),
            Self::Store { store, error } => (
                format!("{store}: the session store cannot be opened: {error}"),
                "another place: --store sqlite:PATH, or --store memory:".into(),
            ),
            Self::Endpoint(StartError { path, error: EndpointError::Upstream(error) }) => (
                format!("the endpoint {path} cannot be served: {error}"),
                "another `upstream` or `stdio`".into(),
            ),
            Self::Endpoint(StartError { path, error: EndpointError::Auth(error) }) => {
                (format!("the endpoint {path} cannot be served: {error}"), "another [endpoint.jwt]".into())
            }
            Self::Endpoint(StartError { path, error: EndpointError::Store(error) }) => (
                format!("the endpoint {path} cannot be served: {error}"),
                "another place: --store sqlite:PATH, or --store memory:".into(),
            ),
            Self::NoDataFolder { why } => {
                (format!("there is no data folder: {why}"), "--store sqlite:PATH, or --store memory:".into())
            }
            Self::DataFolder { path, error } => (
                format!("cannot make the folder {}: {error}", path.display()),
                "--store sqlite:PATH, or --store memory:".into(),
            ),
            Self::Serve(error) => (format!("the server stopped: {error}"), "starting it again".into()),
            Self::Runtime(error) => {
                (format!("no threads can be started: {error}"), "a higher process limit".into())
            }
        }
    }
}
