//! The changes that commands make to the tables. Stores persist them, and nodes deliver them.

use bytes::Bytes;

use crate::ids::{CallNo, ConnNo, NodeId, ServerRequestNo, StreamNo};
use crate::lifecycle_events::Lifecycle;
use crate::rows::Class;

/// The changes that one command made.
///
/// The lists of numbers and keys name changed rows. A listed row that is not in its table was
/// removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The session's [`Meta`](crate::Meta) changed.
    pub meta: bool,
    /// Calls that were added or removed.
    pub calls: Vec<CallNo>,
    /// Calls that were changed in place, because their start was recorded.
    pub started: Vec<CallNo>,
    pub server_requests: Vec<ServerRequestNo>,
    pub streams: Vec<StreamNo>,
    /// Keys of the session state.
    pub state: Vec<Box<str>>,
    pub appended: Vec<Appended>,
    /// Events that were dropped from streams that still exist.
    pub dropped: Vec<(StreamNo, u64)>,
    /// Streams that have finished: no more events follow.
    pub ended: Vec<StreamNo>,
    /// Streams whose connection was superseded, with the new connection.
    pub superseded: Vec<(StreamNo, ConnNo)>,
    /// Calls that ended although their owner did not finish them, with that owner. They were
    /// cancelled, revoked, or closed with the session. The owner must stop running them.
    pub stopped: Vec<(CallNo, NodeId)>,
    /// Server requests that were withdrawn, with their owner, which must stop waiting.
    pub withdrawn: Vec<(ServerRequestNo, NodeId)>,
    /// Server requests whose answer was stored, with the owner that must collect it.
    pub answers_stored: Vec<(ServerRequestNo, NodeId)>,
    /// Forwarded or reassigned calls, with the owner that must run them.
    pub forwarded: Vec<(CallNo, NodeId)>,
    pub lifecycle: Vec<Lifecycle>,
}

/// An event that was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    pub stream: StreamNo,
    pub seq: u64,
    pub class: Class,
    pub payload: Bytes,
}

impl Changes {
    /// Empties all lists. Their allocations are kept for the next command.
    pub fn clear(&mut self) {
        self.meta = false;
        self.calls.clear();
        self.started.clear();
        self.server_requests.clear();
        self.streams.clear();
        self.state.clear();
        self.appended.clear();
        self.dropped.clear();
        self.ended.clear();
        self.superseded.clear();
        self.stopped.clear();
        self.withdrawn.clear();
        self.answers_stored.clear();
        self.forwarded.clear();
        self.lifecycle.clear();
    }
}
