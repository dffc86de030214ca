//! Programs that are started, killed as `kill -9` does it, and started again on the same port.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::outcome::{Fault, Word};

const START_LIMIT: Duration = Duration::from_secs(20);
const END_LIMIT: Duration = Duration::from_secs(3);

/// Killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    command: Vec<String>,
    address: SocketAddr,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Nothing runs yet.
    pub(crate) fn new(command: Vec<String>, address: SocketAddr, log: &Path) -> Self {
        Self { command, address, log: log.to_owned(), child: None }
    }

    /// Starts it unless it runs, and waits until it listens.
    pub(crate) async fn ready(&mut self) -> Result<(), Fault> {
        if self.id().is_none() {
            self.child = Some(self.spawn().map_err(|error| self.broken(&error))?);
        }
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(self.address).await.is_err() {
            if self.id().is_none() || Instant::now() > deadline {
                return Err(self.broken("it does not listen"));
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have died by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until it is gone, as it should be soon.
    pub(crate) async fn ended(&mut self) -> Result<(), Fault> {
        let deadline = Instant::now() + END_LIMIT;
        while self.id().is_some() {
            if Instant::now() > deadline {
                return Err(self.broken("it does not end"));
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// The process id, if it runs.
    pub(crate) fn id(&mut self) -> Option<u32> {
        let child = self.child.as_mut()?;
        matches!(child.try_wait(), Ok(None)).then(|| child.id())
    }

    fn spawn(&self) -> Result<Child, String> {
        let log = File::options().create(true).append(true).open(&self.log).map_err(|e| e.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let [program, arguments @ ..] = &self.command[..] else { return Err("no command".to_owned()) };
        let mut command = Command::new(program);
        command.args(arguments).env("PORT", self.address.port().to_string());
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        command.spawn().map_err(|error| error.to_string())
    }

    fn broken(&self, why: &str) -> Fault {
        let program = self.command.first().map_or("", String::as_str);
        Fault::new(Word::Broken, format!("{program}: {why}; see {}", self.log.display()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that nobody listens on at the moment.
pub(crate) fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
    listener.local_addr().map_err(|error| error.to_string())
}
