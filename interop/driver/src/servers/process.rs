//! A child process with a fixed port that can be killed with SIGKILL and started again.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::outcome::{Fault, FaultKind};

const START_LIMIT: Duration = Duration::from_secs(20);
const END_LIMIT: Duration = Duration::from_secs(3);

/// The process is killed when this value is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    command: Vec<String>,
    address: SocketAddr,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    /// Starts no process yet.
    pub(crate) fn new(command: Vec<String>, address: SocketAddr, log: &Path) -> Self {
        Self { command, address, log: log.to_owned(), child: None }
    }

    /// Starts the process unless it runs, and waits until it listens.
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
            // Fails if the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until the process has ended by itself. Fails if that takes too long.
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

    /// Returns the process id, if the process runs.
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
        Fault::new(FaultKind::Broken, format!("{program}: {why}; see {}", self.log.display()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns an address with a port that is free at the moment. No two calls return the same: the
/// processes for them may start at the same time.
pub(crate) fn free_address() -> Result<SocketAddr, String> {
    static RETURNED: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());
    let mut returned = RETURNED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        if returned.insert(address) {
            return Ok(address);
        }
    }
}
