//! What a store asks of the thread that does the work.

use std::sync::Arc;

use steadfast_session::{
    Command, Facts, Holdings, Limit, NodeId, Outcome, Principal, Read, SessionId, StreamNo, Time,
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::backing::{Answer, Listed};
use crate::store::{Opened, Usage};

pub(crate) type To<T> = oneshot::Sender<Answer<T>>;

/// A job, and the room that it takes until it is done.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) job: Job,
    pub(crate) room: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub(crate) enum Job {
    /// About one session: in turn with everything else about it.
    Session(SessionId, Work),
    Sweep {
        now: Time,
        batch: usize,
        to: To<usize>,
    },
    Join {
        node: NodeId,
        to: To<()>,
    },
    IsAlive {
        node: NodeId,
        to: To<bool>,
    },
    Bury {
        now: Time,
        to: To<usize>,
    },
    Leave {
        node: NodeId,
        now: Time,
        to: To<()>,
    },
    Room {
        principal: Principal,
        to: To<Option<Limit>>,
    },
    Answers {
        to: To<()>,
    },
    Usage {
        to: To<Usage>,
    },
}

#[derive(Debug)]
pub(crate) enum Work {
    Open {
        facts: Facts,
        to: To<Opened>,
    },
    Command(Order),
    Read {
        stream: StreamNo,
        after: u64,
        budget: u64,
        to: To<Read>,
    },
    Facts {
        to: To<Option<Arc<Facts>>>,
    },
    Held {
        node: NodeId,
        to: To<Holdings>,
    },
    /// Somebody else has changed it, or may have.
    Look,
    /// Removes its rows, if it is over by now.
    Remove {
        listed: Listed,
        now: Time,
        to: To<()>,
    },
}

/// A command on its way.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) command: Command,
    pub(crate) now: Time,
    /// This node is over: it is not among those who may hold something any more, unless something is left.
    pub(crate) strikes: Option<NodeId>,
    /// The command buries it: who inherits is found out when the session is at hand.
    pub(crate) buries: bool,
    pub(crate) to: ToWhom,
}

#[derive(Debug)]
pub(crate) enum ToWhom {
    Caller(To<Outcome>),
    /// The thread itself.
    Errand(To<Done>),
}

/// What a command came to, for those who go on from there.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    /// The version that it was seen in; none if the session is gone.
    pub(crate) version: Option<u64>,
    pub(crate) check_at: Time,
}

impl ToWhom {
    pub(crate) fn send(self, done: Answer<Done>) {
        // Whoever does not wait any more does not want to know.
        match self {
            Self::Caller(to) => drop(to.send(done.map(|done| done.outcome))),
            Self::Errand(to) => drop(to.send(done)),
        }
    }
}
