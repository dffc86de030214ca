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
    /// The tool as it is called there.
    pub(super) tool: &'static str,
    /// How many times as long as others it is measured: it answers so seldom.
    pub(super) patience: f64,
    /// What it stands before, if it does: started first, and named to it.
    pub(super) upstream: Option<Vec<String>>,
}

impl Peer {
    pub(super) fn new(name: &'static str, args: &[&str]) -> Self {
        let args = args.iter().map(ToString::to_string).collect();
        Self { name, args, constant: false, tool: "tiny", patience: 1.0, upstream: None }
    }

    /// Starts it in a directory of its own and waits for its address.
    pub(super) fn start(&self) -> Result<Running, Error> {
        let directory = tempfile::tempdir()?;
        let upstream = match &self.upstream {
            Some(args) => {
                let upstream = Self { args: args.clone(), upstream: None, ..self.clone() };
                Some(Box::new(upstream.start()?))
            }
            None => None,
        };
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .args(&self.args)
            .args(upstream.iter().flat_map(|upstream| ["--upstream", upstream.url()]))
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take();
        let mut running =
            Running { child, url: String::new(), _upstream: upstream, _directory: directory, _stdout: None };
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
    /// What it stands before; ends after it.
    _upstream: Option<Box<Self>>,
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
        let mut patience = 3000;
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

    /// Processor time of all its threads and of its workers so far, where the system tells.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        processor_time(self.child.id())
    }
}

fn processor_time(process: u32) -> Option<Duration> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut total = Duration::ZERO;
    for thread in threads {
        let thread = thread.ok()?.path();
        let statistics = std::fs::read_to_string(thread.join("schedstat")).ok()?;
        total += Duration::from_nanos(statistics.split(' ').next()?.parse().ok()?);
        let children = std::fs::read_to_string(thread.join("children")).unwrap_or_default();
        total += children.split_whitespace().filter_map(|child| processor_time(child.parse().ok()?)).sum();
    }
    Some(total)
}

impl Drop for Running {
    fn drop(&mut self) {
        // A program with workers must have the time to end them.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        for _ in 0..50 {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
