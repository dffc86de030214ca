//! The jobs of the writer, and the effects that it defers until the commit.

use std::sync::Arc;

use steadfast_session::{CallNo, Changes, Command, Facts, NodeId, Outcome, SessionId, Time};
use tokio::sync::oneshot::Sender;

use crate::error::StoreError;
use crate::store::Opened;

type ReplySender<T> = Sender<Result<T, StoreError>>;

#[derive(Debug)]
pub(in crate::sqlite) enum Job {
    Open { facts: Facts, to: ReplySender<Opened> },
    Apply { session: SessionId, command: Command, now: Time, to: ReplySender<Outcome> },
    Sweep { now: Time, batch: usize, to: ReplySender<usize> },
    Join { node: NodeId, now: Time, to: ReplySender<()> },
    Reap { now: Time, to: ReplySender<usize> },
    Leave { node: NodeId, now: Time, to: ReplySender<()> },
    ExternalChangeCount { to: ReplySender<Option<u64>> },
}

impl Job {
    pub(in crate::sqlite) fn refuse(self, error: StoreError) {
        match self {
            Self::Open { to, .. } => refuse(to, error),
            Self::Apply { to, .. } => refuse(to, error),
            Self::Sweep { to, .. } | Self::Reap { to, .. } => refuse(to, error),
            Self::Join { to, .. } | Self::Leave { to, .. } => refuse(to, error),
            Self::ExternalChangeCount { to } => refuse(to, error),
        }
    }
}

/// If the caller is gone, it does not need the error.
fn refuse<T>(to: ReplySender<T>, error: StoreError) {
    let _ = to.send(Err(error));
}

/// An effect that becomes visible after the commit. Effects are in the order of the jobs.
#[derive(Debug)]
pub(in crate::sqlite) enum Deferred {
    Signal(Arc<Facts>, Box<Changes>),
    /// Calls that other processes have forwarded to local nodes, ordered by session, and the
    /// external change count at the time of the search.
    ForwardedCalls(u64, Vec<(SessionId, CallNo, NodeId)>),
    PendingReply(PendingReply),
    /// A node is deregistered: its lock file must be removed.
    Unlock(NodeId),
}

#[derive(Debug)]
pub(in crate::sqlite) enum PendingReply {
    Opened(ReplySender<Opened>, Result<Opened, StoreError>),
    Outcome(ReplySender<Outcome>, Result<Outcome, StoreError>),
    Count(ReplySender<usize>, Result<usize, StoreError>),
    Done(ReplySender<()>, Result<(), StoreError>),
    ExternalChangeCount(ReplySender<Option<u64>>, Result<Option<u64>, StoreError>),
}

impl PendingReply {
    /// Sends the reply after a commit.
    pub(in crate::sqlite) fn send(self) {
        match self {
            Self::Opened(to, answer) => drop(to.send(answer)),
            Self::Outcome(to, answer) => drop(to.send(answer)),
            Self::Count(to, answer) => drop(to.send(answer)),
            Self::Done(to, answer) => drop(to.send(answer)),
            Self::ExternalChangeCount(to, answer) => drop(to.send(answer)),
        }
    }

    /// Sends an error instead of the reply, because there was no commit.
    pub(in crate::sqlite) fn refuse(self, error: StoreError) {
        match self {
            Self::Opened(to, _) => refuse(to, error),
            Self::Outcome(to, _) => refuse(to, error),
            Self::Count(to, _) => refuse(to, error),
            Self::Done(to, _) => refuse(to, error),
            Self::ExternalChangeCount(to, _) => refuse(to, error),
        }
    }
}
