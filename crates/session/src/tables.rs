//! The rows a session is made of. Stores persist them; only commands change them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use steadfast_wire::{RequestId, Revision};

use crate::ids::{CallNo, ConnNo, NodeId, Principal, SessionId, StreamNo, Time};
use crate::lifecycle::CloseReason;

/// What never changes about a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub id: SessionId,
    pub principal: Principal,
    pub revision: Revision,
    /// The JSON text of the `params` of `initialize`, so that a handler can be rebuilt anywhere.
    pub initialize: Bytes,
    pub opened_at: Time,
}

/// What changes about a session as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    pub last_active: Time,
    /// Set while the session waits for somebody to come back.
    pub detached_at: Option<Time>,
    pub closed: Option<(CloseReason, Time)>,
    pub next_call: u64,
    pub next_stream: u64,
    pub next_ask: u64,
    pub next_connection: u64,
    pub next_version: u64,
    /// Calls that were taken from nodes which were thought to be gone, the newest last, within a bound. What such a node
    /// still has to say of them is not wanted.
    pub taken: Vec<CallNo>,
    /// Calls that came to one node and went to another, the newest last, within a bound and for as long as their streams are
    /// kept. Whoever does not know what came of its command can find out even when they are over.
    pub mailed: Vec<Mailed>,
}

/// A command whose calls went to another node: they were given to it at once, or when the first was taken for dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mailed {
    /// The node that the calls came to.
    pub node: NodeId,
    /// That node's name for the command.
    pub attempt: u64,
    pub stream: StreamNo,
}

/// A client's request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub id: RequestId,
    pub stream: StreamNo,
    /// The node that runs it.
    pub owner: NodeId,
    /// The node that gave it to its owner: the one that it came to, most often the owner itself, or one that is gone.
    pub from: NodeId,
    /// The name that `from` gave the command that began it, so that it can ask again after an unknown outcome. If `from` is gone
    /// and did not name it, it has none.
    pub attempt: u64,
    /// Its messages go to a standalone stream because its own connection gets nothing but the answer.
    pub answer_only: bool,
    /// What it asks for, if another node than the one that it came to runs it, or may have to.
    pub request: Option<Box<Request>>,
}

/// A client's request as it is kept: without anything that came with it, credentials above all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whatever the nodes agree on; they write it and read it.
    pub text: Bytes,
    /// If its owner goes, another node may do it: done twice it does no more than done once, or its owner has not begun. That
    /// happens once to a call.
    pub again: bool,
}

impl Call {
    /// Whether its owner has to learn of it from the session, because it did not come there.
    pub fn is_errand(&self) -> bool {
        self.from != self.owner && self.request.is_some()
    }

    pub(crate) fn kept_bytes(&self) -> u64 {
        self.request.as_ref().map_or(0, |request| request.text.len() as u64)
    }
}

/// A server's request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The call that caused it, if one did.
    pub call: Option<CallNo>,
    pub stream: StreamNo,
    /// Its event there, which is kept for as long as the ask has no answer.
    pub seq: u64,
    /// The node that waits for the answer.
    pub owner: NodeId,
    /// The answer, if it came to another node and the owner has not collected it yet.
    pub answer: Option<Kept>,
}

/// An answer of the client that waits for the node of its asker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The node that it came to, and that node's name for the command that kept it.
    pub by: (NodeId, u64),
    pub message: Bytes,
}

/// By number. Each is on its own: a node of such a map has room for eleven, and most sessions have one stream.
pub type Streams = BTreeMap<StreamNo, Box<Stream>>;

/// Session state, by name. Each value is on its own, too.
pub type State = BTreeMap<Box<str>, Box<Value>>;

/// An append-only log of server messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    pub kind: StreamKind,
    /// The sequence number of the next event. Event 0 is the priming event and is not stored.
    pub next_seq: u64,
    /// The connection that reads it, and the node that serves that connection.
    pub attached: Option<(ConnNo, NodeId)>,
    /// Everything up to here has been written to some connection.
    pub delivered: u64,
    pub finished_at: Option<Time>,
    /// What it still holds, in order of `seq`.
    pub entries: VecDeque<Entry>,
    /// Sum of the entries' sizes.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Carries the answers of one POST. `open` of its calls are not answered yet.
    Post { open: u32 },
    /// Carries what belongs to no call.
    Standalone,
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub seq: u64,
    pub class: Class,
    pub size: u32,
    /// `None` where a store keeps payloads elsewhere.
    pub payload: Option<Bytes>,
}

/// What a message is worth when room gets short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Progress and log messages: dropped first, oldest first.
    Chatter,
    /// Other notifications: refused when there is no room. Dropped only from a standalone stream, once written out.
    Notice,
    /// Tells the client that a server's request is not open any more: always taken, dropped like progress.
    Withdrawal,
    /// A server's request: always taken, and kept while it is open. Open ones are bounded in number; after that they
    /// are history and the first to go.
    Ask,
    /// An answer: always taken, never dropped while the session lives.
    Response,
}

/// One entry of session state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// Changes with each write and never comes back, not even after a deletion.
    pub version: u64,
    pub bytes: Bytes,
}

impl Stream {
    pub fn new(kind: StreamKind) -> Self {
        Self {
            kind,
            next_seq: 1,
            attached: None,
            delivered: 0,
            finished_at: None,
            entries: VecDeque::new(),
            bytes: 0,
        }
    }

    pub fn is_open(&self) -> bool {
        self.finished_at.is_none()
    }

    pub fn last_seq(&self) -> u64 {
        self.next_seq - 1
    }

    /// Whether everything it will ever hold has been written to a connection.
    pub fn is_spent(&self) -> bool {
        !self.is_open() && self.delivered >= self.last_seq()
    }
}
