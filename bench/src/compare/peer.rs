//! A server under measurement: this executable again, as a child process.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::Error;

/// What to start: `steadfast-bench serve ARGS…`.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) args: Vec<String>,
    /// It answers a constant: no sessions, no ids.
    pub(super) constant: bool,
}

impl Peer {
    pub(super) fn new(name: &'static str, args: &[&str]) -> Self {
        Self { name, args: args.iter().map(ToString::to_string).collect(), constant: false }
    }

    /// Starts it in a directory of its own and waits for its address.
    pub(super) fn start(&self) -> Result<Running, Error> {
        let directory = tempfile::tempdir()?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .args(&self.args)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take();
        let mut running = Running { child, url: String::new(), _directory: directory, _stdout: None };
        let mut stdout = BufReader::new(stdout.ok_or("a piped child without a pipe")?);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let url = line.trim_end().strip_prefix("listening on ");
        running.url = url.ok_or_else(|| format!("{} did not start", self.name))?.to_owned();
        running._stdout = Some(stdout);
        running.wait_until_it_accepts()?;
        Ok(running)
    }
}

/// A started server; dropping it ends it.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    url: String,
    _directory: TempDir,
    /// Kept open, so that a server that prints more is not killed by a closed pipe.
    _stdout: Option<BufReader<ChildStdout>>,
}

impl Running {
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// A server that becomes another program announces its address before it listens there.
    fn wait_until_it_accepts(&self) -> Result<(), Error> {
        let authority = self.url.trim_start_matches("http://").split('/').next().unwrap_or_default();
        let mut patience = 500;
        while let Err(error) = TcpStream::connect(authority) {
            if patience == 0 {
                return Err(error.into());
            }
            patience -= 1;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Resident memory, in bytes.
    pub(super) fn resident(&self) -> Result<u64, Error> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim_end().parse()?;
        Ok(kib * 1024)
    }

    /// Processor time of all its threads so far, where the system tells.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
        let mut total = Duration::ZERO;
        for thread in threads {
            let statistics = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
            total += Duration::from_nanos(statistics.split(' ').next()?.parse().ok()?);
        }
        Some(total)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
