//! Ensures that child processes do not outlive the gateway, even if the gateway is killed. A shell
//! keeps a list of their process groups. When its input ends, it ends the groups that are left. The
//! operating system closes that input when the gateway dies, in whichever way it dies.
//!
//! Why not a parent-death signal: it needs `unsafe`, concerns one process and not its group, and
//! arrives when the *thread* that started the process ends. Why not a copy of this program: a
//! library cannot rely on its `main`, and a shell needs a fraction of the memory.
//!
//! A process is on the list from a moment after its start. If the gateway is killed in that moment,
//! only the closed input ends the process.

use std::collections::BTreeSet;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Mutex;

use crate::stdio::process::environment;

const SCRIPT: &str = include_str!("orphan_guard.sh");

/// How long the shell may take to read a line. It does nothing else.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

/// The process groups that are running, and the shell that ends them if the gateway dies.
#[derive(Debug)]
pub(crate) struct OrphanGuard {
    exit_timeout: Duration,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    groups: BTreeSet<u32>,
    shell: Option<Shell>,
}

#[derive(Debug)]
struct Shell {
    input: ChildStdin,
    /// The runtime waits for the process when this is dropped.
    _process: Child,
}

impl OrphanGuard {
    /// Creates a guard. Starts the shell when the first group is added.
    pub(crate) fn new(exit_timeout: Duration) -> Self {
        Self { exit_timeout, inner: Mutex::default() }
    }

    pub(crate) async fn add(&self, group: u32) {
        let mut inner = self.inner.lock().await;
        inner.groups.insert(group);
        self.send(&mut inner, &format!("+{group}\n")).await;
    }

    pub(crate) async fn remove(&self, group: u32) {
        let mut inner = self.inner.lock().await;
        inner.groups.remove(&group);
        self.send(&mut inner, &format!("-{group}\n")).await;
    }

    /// Sends a line to the shell. Starts a new shell if the old one is gone.
    async fn send(&self, inner: &mut Inner, line: &str) {
        if let Some(shell) = &mut inner.shell
            && shell.write(line).await.is_ok()
        {
            return;
        }
        inner.shell = None;
        let all: String = inner.groups.iter().map(|group| format!("+{group}\n")).collect();
        if all.is_empty() {
            return;
        }
        let started = async {
            let mut shell = start(self.exit_timeout)?;
            shell.write(&all).await?;
            Ok::<_, io::Error>(shell)
        };
        match started.await {
            Ok(shell) => inner.shell = Some(shell),
            Err(error) => tracing::warn!(
                %error,
                "could not start /bin/sh as orphan guard: programs may outlive the gateway if it is killed"
            ),
        }
    }
}

impl Shell {
    async fn write(&mut self, text: &str) -> io::Result<()> {
        let written = tokio::time::timeout(WRITE_TIMEOUT, self.input.write_all(text.as_bytes()));
        written.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn start(exit_timeout: Duration) -> io::Result<Shell> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "steadfast-orphan-guard", &exit_timeout.as_secs_f64().to_string()]);
    environment::apply_inherited(&mut command, &[]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // The shell must not get the signals that a terminal or a service manager sends to the
    // gateway's group.
    #[cfg(unix)]
    command.process_group(0);
    let mut process = command.spawn()?;
    let input = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok(Shell { input, _process: process })
}
