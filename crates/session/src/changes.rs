//! What a command did to the tables: for stores to persist, and for nodes to deliver.

use bytes::Bytes;

use crate::ids::{AskNo, CallNo, ConnNo, NodeId, StreamNo};
use crate::lifecycle::Lifecycle;
use crate::tables::Class;

/// The difference that one command made. A key that is listed and no longer in its table was removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The session's [`Meta`](crate::Meta) changed.
    pub meta: bool,
    pub calls: Vec<CallNo>,
    /// Calls that are in their table before and after, and were changed.
    pub started: Vec<CallNo>,
    pub asks: Vec<AskNo>,
    pub streams: Vec<StreamNo>,
    pub state: Vec<Box<str>>,
    pub appended: Vec<Appended>,
    /// Events that were dropped from streams that remain.
    pub dropped: Vec<(StreamNo, u64)>,
    /// Streams that will get no more events.
    pub ended: Vec<StreamNo>,
    /// Streams whose reader was replaced: the connection that holds each of them now.
    pub superseded: Vec<(StreamNo, ConnNo)>,
    /// Calls that ended without their owner's doing: cancelled, or lost with their session or node.
    pub stopped: Vec<(CallNo, NodeId)>,
    /// Asks that nobody will answer any more, and who waits for them.
    pub withdrawn: Vec<(AskNo, NodeId)>,
    /// Asks whose answer is kept, and who has to collect it.
    pub kept: Vec<(AskNo, NodeId)>,
    /// Calls that a node has to run although they did not come to it.
    pub errands: Vec<(CallNo, NodeId)>,
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
    /// Empties all lists and keeps their memory for the next command.
    pub fn clear(&mut self) {
        self.meta = false;
        self.calls.clear();
        self.started.clear();
        self.asks.clear();
        self.streams.clear();
        self.state.clear();
        self.appended.clear();
        self.dropped.clear();
        self.ended.clear();
        self.superseded.clear();
        self.stopped.clear();
        self.withdrawn.clear();
        self.kept.clear();
        self.errands.clear();
        self.lifecycle.clear();
    }
}
