//! A process that can be killed, frozen and started again. It ends with us, however we end.

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

const WATCHMAN: &str = include_str!("watchman.sh");
const START_LIMIT: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    command: Vec<String>,
    variables: Vec<(String, String)>,
    folder: PathBuf,
    address: SocketAddr,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    /// Ends with the process, and ends the process if we do.
    watchman: Child,
    process: Pid,
}

impl Process {
    /// Nothing runs yet. `folder` is where it runs and where its log is; `address` is where it will listen.
    pub(crate) fn new(name: &str, command: Vec<String>, folder: &Path, address: SocketAddr) -> Self {
        let (name, folder) = (name.to_owned(), folder.to_owned());
        Self { name, command, variables: Vec::new(), folder, address, running: None }
    }

    pub(crate) fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts it, and waits until it listens.
    pub(crate) async fn start(&mut self) -> Result<(), Failure> {
        self.kill();
        self.running = Some(self.launch()?);
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(self.address).await.is_err() {
            if self.has_ended() || Instant::now() > deadline {
                return Err(self.failed("it does not listen"));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    fn launch(&self) -> Result<Running, Failure> {
        std::fs::create_dir_all(&self.folder)?;
        let mut watchman = Command::new("sh")
            .args(["-c", WATCHMAN, &self.name])
            .args(&self.command)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("CHAOS_LOG", self.log())
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut said = String::new();
        if let Some(stdout) = watchman.stdout.take() {
            BufReader::new(stdout).read_line(&mut said)?;
        }
        let process = said.trim().parse().ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| self.failed("its watchman does not say which process it is"))?;
        Ok(Running { watchman, process })
    }

    /// As `kill -9` does it.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        if let Some(mut running) = self.running.take() {
            // It ends with what it watches.
            let _ = running.watchman.wait();
        }
    }

    /// Has it end by itself, and waits for that; for so long at most.
    pub(crate) async fn terminate(&mut self, patience: Duration) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + patience;
        while !self.has_ended() && Instant::now() < deadline {
            sleep(LOOK).await;
        }
        self.kill();
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        if !self.has_ended()
            && let Some(running) = &self.running
        {
            // The only failure is that it is gone.
            let _ = kill_process(running.process, signal);
        }
    }

    fn has_ended(&mut self) -> bool {
        self.running.as_mut().is_none_or(|running| !matches!(running.watchman.try_wait(), Ok(None)))
    }

    /// Complains if it has ended by itself.
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

/// An address on which nobody listens. Somebody else may take it before we do, which is unlikely and fails the run.
pub(crate) fn free_address() -> Result<SocketAddr, Failure> {
    Ok(ports::listen()?.local_addr()?)
}
