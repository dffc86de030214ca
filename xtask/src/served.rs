//! A server as a child process that can be killed and started again on the same store.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::failure::Failure;

const START_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Served {
    program: PathBuf,
    /// Before where to listen and what to open.
    arguments: Vec<String>,
    /// Its store and its log.
    folder: PathBuf,
    child: Option<Child>,
}

impl Served {
    pub(crate) fn new(program: PathBuf, arguments: &[&str], folder: PathBuf) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { program, arguments, folder, child: None }
    }

    /// Gives the address that it listens on.
    pub(crate) fn start(&mut self) -> Result<SocketAddr, Failure> {
        let log = self.folder.join("server.log");
        let store = format!("sqlite:{}", self.folder.join("sessions.db").display());
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .args(["--listen", "127.0.0.1:0", "--store", &store])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(&log)?)
            .spawn()
            .map_err(|error| Failure::Broken(format!("cannot start {}: {error}", self.program.display())))?;
        let stdout = child.stdout.take();
        self.child = Some(child);
        let (found, address) = mpsc::channel();
        thread::spawn(move || {
            // Read to its end, so that the server never writes to a closed pipe.
            for line in
                stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok)
            {
                let address =
                    line.split_once("http://").and_then(|(_, rest)| rest.split('/').next()?.parse().ok());
                // Nobody waits any more after the first.
                address.map(|address: SocketAddr| found.send(address).ok());
            }
        });
        address.recv_timeout(START_LIMIT).map_err(|_| {
            Failure::Broken(format!("the server did not say where it listens; see {}", log.display()))
        })
    }

    /// As `kill -9` does it.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have died by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}
