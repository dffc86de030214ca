//! A steadfast server as a child process that can be killed and started again on its store.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use steadfast_test_setup::Failure;

const START_LIMIT: Duration = Duration::from_secs(30);

/// The process is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct ChildServer {
    program: PathBuf,
    /// The arguments before the address and the store.
    arguments: Vec<String>,
    /// Holds the store and the log.
    folder: PathBuf,
    child: Option<Child>,
}

impl ChildServer {
    pub(crate) fn new(program: PathBuf, arguments: &[&str], folder: PathBuf) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self { program, arguments, folder, child: None }
    }

    /// Starts the server and returns the address that it listens on.
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
            // Reads all of the output, so that the server never writes to a closed pipe.
            for line in
                stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok)
            {
                let address =
                    line.split_once("http://").and_then(|(_, rest)| rest.split('/').next()?.parse().ok());
                // The receiver is gone after the first address.
                address.map(|address: SocketAddr| found.send(address).ok());
            }
        });
        address.recv_timeout(START_LIMIT).map_err(|_| {
            Failure::Broken(format!("the server did not print its address; see {}", log.display()))
        })
    }

    /// Kills the process with SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Fails if the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        self.kill();
    }
}
