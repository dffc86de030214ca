//! A program together with whatever it started: its process group.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};

use super::environment;
use crate::config::Program;

/// A running program. Dropped, it is killed; what it started is left to the [`Watch`](super::watch::Watch).
#[derive(Debug)]
pub(super) struct Group {
    /// Its leader.
    pub(super) leader: Child,
    pub(super) id: u32,
}

impl Group {
    pub(super) fn start(program: &Program) -> io::Result<Self> {
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
        // It has one until it was waited for.
        let id = leader.id().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { leader, id })
    }

    /// Ends it: by itself, its input being closed, then as told, then by force, with so much time for each but the last.
    pub(super) async fn end(&mut self, farewell: Duration) -> io::Result<ExitStatus> {
        if let Ok(status) = tokio::time::timeout(farewell, self.leader.wait()).await {
            return status;
        }
        self.signal(Signal::Term);
        if let Ok(status) = tokio::time::timeout(farewell, self.leader.wait()).await {
            return status;
        }
        self.signal(Signal::Kill);
        self.leader.wait().await
    }

    /// Ends what the leader has left behind.
    pub(super) fn clear(&mut self) {
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
            // The only failure is that there is nobody left.
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
