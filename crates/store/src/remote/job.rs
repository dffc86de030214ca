//! The jobs that a store submits to its worker thread.

use std::sync::Arc;

use steadfast_session::{
    Command, Facts, Holdings, Limit, NodeId, Outcome, Principal, Read, SessionId, StreamNo, Time,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::database::{IndexKey, StoreResult};
use crate::store::{EvictionSample, Opened, Usage};

pub(crate) type ReplySender<T> = oneshot::Sender<StoreResult<T>>;

/// A job, with the queue permit that it holds until it is done.
#[derive(Debug)]
pub(crate) struct QueuedJob {
    pub(crate) job: Job,
    pub(crate) permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(crate) enum Job {
    /// A job on one session. Jobs on one session run one after the other.
    Session(SessionId, SessionJob),
    Sweep {
        now: Time,
        batch: usize,
        to: ReplySender<usize>,
    },
    Join {
        node: NodeId,
        to: ReplySender<()>,
    },
    IsAlive {
        node: NodeId,
        to: ReplySender<bool>,
    },
    Reap {
        now: Time,
        to: ReplySender<usize>,
    },
    Leave {
        node: NodeId,
        now: Time,
        to: ReplySender<()>,
    },
    ReachedLimit {
        principal: Principal,
        to: ReplySender<Option<Limit>>,
    },
    EvictionSample {
        requester: Principal,
        of: Option<Principal>,
        from: SessionId,
        to: ReplySender<EvictionSample>,
    },
    Ping {
        to: ReplySender<()>,
    },
    Usage {
        to: ReplySender<Usage>,
    },
}

#[derive(Debug)]
pub(crate) enum SessionJob {
    Open {
        facts: Facts,
        to: ReplySender<Opened>,
    },
    Command(QueuedCommand),
    Read {
        stream: StreamNo,
        after: u64,
        budget: u64,
        to: ReplySender<Read>,
    },
    Facts {
        to: ReplySender<Option<Arc<Facts>>>,
    },
    Holdings {
        node: NodeId,
        to: ReplySender<Holdings>,
    },
    /// Loads the session if another process has changed it, and signals the changes.
    Refresh,
    /// Removes the session from the database if it has expired at `now`.
    Remove {
        index_key: IndexKey,
        now: Time,
        to: ReplySender<()>,
    },
}

/// A command that waits in the queue of its session.
#[derive(Debug)]
pub(crate) struct QueuedCommand {
    pub(crate) command: Command,
    pub(crate) now: Time,
    /// A node that ends. If it holds nothing after the command, it is removed from the session's
    /// list of present nodes.
    pub(crate) delists: Option<NodeId>,
    /// True if the command reaps that node. Then the worker asks the subscriber for the successor
    /// when it applies the command, because that needs the facts of the session.
    pub(crate) reaps: bool,
    pub(crate) to: ReplyTo,
}

#[derive(Debug)]
pub(crate) enum ReplyTo {
    /// The caller of the store.
    Caller(ReplySender<Outcome>),
    /// A maintenance job of the worker itself.
    Maintenance(ReplySender<AppliedCommand>),
}

/// The result of a command, with what maintenance jobs need for their next step.
#[derive(Debug)]
pub(crate) struct AppliedCommand {
    pub(crate) outcome: Outcome,
    /// The version that the command was committed in. `None` if the session does not exist.
    pub(crate) version: Option<u64>,
    /// When the session must be swept next.
    pub(crate) check_at: Time,
}

impl ReplyTo {
    pub(crate) fn send(self, result: StoreResult<AppliedCommand>) {
        // If the receiver is gone, the caller does not need the result.
        match self {
            Self::Caller(to) => drop(to.send(result.map(|applied| applied.outcome))),
            Self::Maintenance(to) => drop(to.send(result)),
        }
    }
}
