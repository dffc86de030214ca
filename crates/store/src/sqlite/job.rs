//! What the writer is asked to do, and the answers that it owes until the commit.

use std::sync::Arc;

use steadfast_session::{CallNo, Changes, Command, Facts, NodeId, Outcome, SessionId, Time};
use tokio::sync::oneshot::Sender;

use crate::error::StoreError;
use crate::store::Opened;

type To<T> = Sender<Result<T, StoreError>>;

#[derive(Debug)]
pub(super) enum Job {
    Open { facts: Facts, to: To<Opened> },
    Apply { session: SessionId, command: Command, now: Time, to: To<Outcome> },
    Sweep { now: Time, batch: usize, to: To<usize> },
    Join { node: NodeId, now: Time, to: To<()> },
    Bury { now: Time, to: To<usize> },
    Leave { node: NodeId, now: Time, to: To<()> },
    Elsewhere { to: To<Option<u64>> },
}

impl Job {
    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Self::Open { to, .. } => refuse(to, error),
            Self::Apply { to, .. } => refuse(to, error),
            Self::Sweep { to, .. } | Self::Bury { to, .. } => refuse(to, error),
            Self::Join { to, .. } | Self::Leave { to, .. } => refuse(to, error),
            Self::Elsewhere { to } => refuse(to, error),
        }
    }
}

/// Whoever asked may be gone. Then nobody wants the answer, and the command stands.
fn refuse<T>(to: To<T>, error: StoreError) {
    let _ = to.send(Err(error));
}

/// What becomes true for others only with the commit, in the order in which it was done.
#[derive(Debug)]
pub(super) enum Deferred {
    Signal(Arc<Facts>, Box<Changes>),
    /// Calls that other processes have given to nodes of this one, in the order of their sessions, as of so many changes of others.
    Errands(u64, Vec<(SessionId, CallNo, NodeId)>),
    Answer(Answer),
    /// A node is gone for good: its lock file is of no use any more.
    Unlock(NodeId),
}

#[derive(Debug)]
pub(super) enum Answer {
    Opened(To<Opened>, Result<Opened, StoreError>),
    Outcome(To<Outcome>, Result<Outcome, StoreError>),
    Count(To<usize>, Result<usize, StoreError>),
    Done(To<()>, Result<(), StoreError>),
    Elsewhere(To<Option<u64>>, Result<Option<u64>, StoreError>),
}

impl Answer {
    /// Answers after a commit.
    pub(super) fn send(self) {
        match self {
            Self::Opened(to, answer) => drop(to.send(answer)),
            Self::Outcome(to, answer) => drop(to.send(answer)),
            Self::Count(to, answer) => drop(to.send(answer)),
            Self::Done(to, answer) => drop(to.send(answer)),
            Self::Elsewhere(to, answer) => drop(to.send(answer)),
        }
    }

    /// Answers when there was no commit.
    pub(super) fn refuse(self, error: StoreError) {
        match self {
            Self::Opened(to, _) => refuse(to, error),
            Self::Outcome(to, _) => refuse(to, error),
            Self::Count(to, _) => refuse(to, error),
            Self::Done(to, _) => refuse(to, error),
            Self::Elsewhere(to, _) => refuse(to, error),
        }
    }
}
