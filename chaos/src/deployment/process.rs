//! A process that can be killed, frozen and started again. It is killed when this program ends,
//! even if this program is killed.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::failure::Failure;
use crate::ports;

const KILL_WITH_PARENT: &str = include_str!("kill_with_parent.sh");
const START_LIMIT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    command: Vec<String>,
    folder: PathBuf,
    address: SocketAddr,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    /// A shell that exits when the process exits, and kills the process when this program ends.
    guard: Child,
    process: Pid,
}

impl Process {
    /// Starts nothing. The process will run in `folder`, write its log there, and listen on
    /// `address`.
    pub(crate) fn new(name: &str, command: Vec<String>, folder: &Path, address: SocketAddr) -> Self {
        let (name, folder) = (name.to_owned(), folder.to_owned());
        Self { name, command, folder, address, running: None }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the process, and waits until it listens. Kills the process first if it runs.
    pub(crate) async fn start(&mut self) -> Result<(), Failure> {
        self.kill();
        self.running = Some(self.launch()?);
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(self.address).await.is_err() {
            if self.has_ended() || Instant::now() > deadline {
                return Err(self.failed("it does not listen on its address"));
            }
            sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn launch(&self) -> Result<Running, Failure> {
        std::fs::create_dir_all(&self.folder)?;
        let mut guard = Command::new("sh")
            .args(["-c", KILL_WITH_PARENT, &self.name])
            .args(&self.command)
            .env("CHAOS_LOG", self.log())
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        if let Some(stdout) = guard.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let process = line.trim().parse().ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| self.failed("its process id is not known"))?;
        Ok(Running { guard, process })
    }

    /// Sends SIGKILL, and waits until the process has exited.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(mut running) = self.running.take() {
            // The guard exits after the process.
            let _ = running.guard.wait();
        }
    }

    /// Sends SIGTERM, and waits until the process has exited. Kills the process after `limit`.
    pub(crate) async fn terminate(&mut self, limit: Duration) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + limit;
        while !self.has_ended() && Instant::now() < deadline {
            sleep(POLL_INTERVAL).await;
        }
        self.kill();
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        if !self.has_ended()
            && let Some(running) = &self.running
        {
            // Fails only if the process has exited.
            let _ = kill_process(running.process, signal);
        }
    }

    fn has_ended(&mut self) -> bool {
        self.running.as_mut().is_none_or(|running| !matches!(running.guard.try_wait(), Ok(None)))
    }

    /// Fails if the process has exited by itself.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        if self.running.is_some() && self.has_ended() {
            return Err(Failure::Died { what: self.name.clone(), log: self.log().display().to_string() });
        }
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn failed(&self, why: &str) -> Failure {
        Failure::NotStarted { what: self.name.clone(), why: format!("{why}; see {}", self.log().display()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns an address that is free now. Another program may take it before a process listens on it,
/// which is unlikely and fails the run.
pub(crate) fn free_address() -> Result<SocketAddr, Failure> {
    Ok(ports::listen()?.local_addr()?)
}
