//! A server under measurement: this executable as a child process.

use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use clap::Args;
use tempfile::TempDir;

use crate::Error;

/// A server and its command: `steadfast-bench serve ARGS…`.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) args: Vec<String>,
    /// The response is constant: no sessions, no ids.
    pub(super) constant: bool,
    /// The name of the tool at this server.
    pub(super) tool: &'static str,
    /// By how much it is measured longer than others, because it is slow.
    pub(super) patience: f64,
    /// The upstream server, if this is a proxy. It is started first.
    pub(super) upstream: Option<Vec<String>>,
    /// The `steadfast-bench` of another commit. `None` means this executable.
    pub(super) executable: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Earlier {
    /// Also measure another commit: its `steadfast-bench`, with its `steadfast` in the same folder.
    #[arg(long = "earlier", value_name = "FILE")]
    executable: Option<PathBuf>,
}

impl Earlier {
    /// Returns the peers as the other commit has them, under other names.
    pub(super) fn peers(&self, peers: &[Peer], names: &[&'static str]) -> Vec<Peer> {
        let Some(executable) = &self.executable else { return Vec::new() };
        let earlier =
            |(peer, &name): (&Peer, _)| Peer { name, executable: Some(executable.clone()), ..peer.clone() };
        peers.iter().zip(names).map(earlier).collect()
    }
}

impl Peer {
    pub(super) fn new(name: &'static str, args: &[&str]) -> Self {
        let args = args.iter().map(ToString::to_string).collect();
        Self { name, args, constant: false, tool: "tiny", patience: 1.0, upstream: None, executable: None }
    }

    /// Starts the server in a new directory and waits for its address.
    pub(super) fn start(&self) -> Result<Running, Error> {
        let directory = tempfile::tempdir()?;
        let upstream = match &self.upstream {
            Some(args) => {
                let upstream = Self { args: args.clone(), upstream: None, executable: None, ..self.clone() };
                Some(Box::new(upstream.start()?))
            }
            None => None,
        };
        let executable = match &self.executable {
            Some(executable) => executable.clone(),
            None => std::env::current_exe()?,
        };
        let mut child = Command::new(executable)
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

/// A started server. Dropping this value ends it.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    url: String,
    /// The upstream server. It ends after the proxy.
    _upstream: Option<Box<Self>>,
    _directory: TempDir,
    /// Kept open, so that a closed pipe does not kill a server that prints more.
    _stdout: Option<BufReader<ChildStdout>>,
}

impl Running {
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// A process that replaces itself by another program prints its address before that listens.
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

    /// Returns the resident memory in bytes.
    pub(super) fn resident(&self) -> Result<u64, Error> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS in /proc")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim_end().parse()?;
        Ok(kib * 1024)
    }

    /// Returns the processor time of all threads and workers so far, if the system reports it.
    pub(super) fn processor_time(&self) -> Option<Duration> {
        processor_time(self.child.id())
    }
}

pub(super) fn processor_time(process: u32) -> Option<Duration> {
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
        // A program with workers needs time to end them.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        for _ in 0..50 {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
