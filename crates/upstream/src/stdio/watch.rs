//! Programs must not outlive us, not even if we are killed: a shell keeps a list of their process groups and ends what is
//! left of them when its input does, which the operating system closes for us, however we end.
//!
//! A shell and not a parent-death signal: that needs `unsafe`, concerns one process and not its group, and comes when the
//! *thread* that started a program ends. A shell and not a copy of this program: it needs no cooperation of whoever
//! has a `main`, and costs a fraction of the memory.
//!
//! A program is on the list from a moment after its start; if we are killed in that moment, only its closed input ends it.

use std::collections::BTreeSet;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::Mutex;

use super::environment;

const SCRIPT: &str = include_str!("watch.sh");

/// How long the watch may take to read a line. It does nothing else.
const PATIENCE: Duration = Duration::from_secs(1);

/// Knows the process groups that are running, and has somebody who ends them after us.
#[derive(Debug)]
pub(super) struct Watch {
    farewell: Duration,
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
    /// Reaped when this is dropped, by the runtime.
    _process: Child,
}

impl Watch {
    /// Nobody is started before there is something to watch.
    pub(super) fn new(farewell: Duration) -> Self {
        Self { farewell, inner: Mutex::default() }
    }

    pub(super) async fn add(&self, group: u32) {
        let mut inner = self.inner.lock().await;
        inner.groups.insert(group);
        self.tell(&mut inner, &format!("+{group}\n")).await;
    }

    pub(super) async fn remove(&self, group: u32) {
        let mut inner = self.inner.lock().await;
        inner.groups.remove(&group);
        self.tell(&mut inner, &format!("-{group}\n")).await;
    }

    /// Passes a line on, to a new shell if the old one is gone.
    async fn tell(&self, inner: &mut Inner, line: &str) {
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
            let mut shell = start(self.farewell)?;
            shell.write(&all).await?;
            Ok::<_, io::Error>(shell)
        };
        match started.await {
            Ok(shell) => inner.shell = Some(shell),
            Err(error) => tracing::warn!(
                %error,
                "nobody watches over programs: without /bin/sh they may outlive this process if it is killed"
            ),
        }
    }
}

impl Shell {
    async fn write(&mut self, text: &str) -> io::Result<()> {
        let written = tokio::time::timeout(PATIENCE, self.input.write_all(text.as_bytes()));
        written.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn start(farewell: Duration) -> io::Result<Shell> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "steadfast-watch", &farewell.as_secs_f64().to_string()]);
    environment::apply_clean(&mut command, &[]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // What a terminal or a service manager sends to our group is not for the watch.
    #[cfg(unix)]
    command.process_group(0);
    let mut process = command.spawn()?;
    let input = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok(Shell { input, _process: process })
}
