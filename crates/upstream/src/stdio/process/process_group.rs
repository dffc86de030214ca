//! A process and its process group, which contains the processes that it has started.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::config::Program;
use crate::stdio::process::environment;

/// A running process. Killed when this is dropped. The
/// [`OrphanGuard`](crate::stdio::orphan_guard::OrphanGuard) ends the rest of the group.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    pub(crate) leader: Child,
    pub(crate) id: u32,
}

impl ProcessGroup {
    pub(crate) fn start(program: &Program) -> io::Result<Self> {
        let mut command = Command::new(&program.command);
        command.args(&program.arguments);
        environment::apply(&mut command, program);
        if let Some(folder) = &program.folder {
            command.current_dir(folder);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let leader = command.spawn()?;
        // A process has an id until it was awaited.
        let id = leader.id().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { leader, id })
    }

    /// Ends the group, whose input is closed: waits, then sends SIGTERM, waits again, then sends
    /// SIGKILL. Each wait lasts `exit_timeout`.
    pub(crate) async fn end(&mut self, exit_timeout: Duration) -> io::Result<ExitStatus> {
        if let Ok(status) = tokio::time::timeout(exit_timeout, self.leader.wait()).await {
            return status;
        }
        self.signal(Signal::Term);
        if let Ok(status) = tokio::time::timeout(exit_timeout, self.leader.wait()).await {
            return status;
        }
        self.signal(Signal::Kill);
        self.leader.wait().await
    }

    /// Kills the processes that the leader has left behind.
    pub(crate) fn kill_rest(&mut self) {
        self.signal(Signal::Kill);
    }

    #[cfg(unix)]
    fn signal(&mut self, signal: Signal) {
        use rustix::process::{Pid, Signal as S, kill_process_group};
        let signal = match signal {
            Signal::Term => S::TERM,
            Signal::Kill => S::KILL,
        };
        if let Some(id) = i32::try_from(self.id).ok().and_then(Pid::from_raw) {
            // The only failure is that no process is left.
            let _ = kill_process_group(id, signal);
        }
    }

    #[cfg(not(unix))]
    fn signal(&mut self, signal: Signal) {
        if signal == Signal::Kill {
            let _ = self.leader.start_kill();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Signal {
    Term,
    Kill,
}
