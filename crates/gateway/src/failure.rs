//! Why the command could not do its work, and what to do about it.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;

use steadfast::{StartError, StoreUrl};

#[derive(Debug)]
pub(crate) enum Failure {
    Listen { address: SocketAddr, error: io::Error },
    Store { store: StoreUrl, error: StartError },
    NoDataFolder { why: String },
    DataFolder { path: std::path::PathBuf, error: io::Error },
    Serve(io::Error),
    Runtime(io::Error),
}

impl Failure {
    pub(crate) fn report(&self) -> ExitCode {
        let (what, remedy) = self.describe();
        // If even stderr is gone, there is nobody to tell.
        let _ = writeln!(io::stderr(), "error: {what}\n  try: {remedy}");
        ExitCode::FAILURE
    }

    fn describe(&self) -> (String, String) {
        match self {
            Self::Listen { address, error } if error.kind() == io::ErrorKind::AddrInUse => (
                format!("{address} is taken by another program"),
                "another port, for instance --listen 127.0.0.1:7412, or :0 for any free one".into(),
            ),
            Self::Listen { address, error } => (
                format!("cannot listen on {address}: {error}"),
                "an address of this machine, for instance --listen 127.0.0.1:7411".into(),
            ),
            Self::Store { store, error } => {
                (format!("{store}: {error}"), "another place: --store sqlite:PATH, or --store memory:".into())
            }
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
