//! The rows that a session consists of. Stores persist them, and only commands change them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use steadfast_wire::{RequestId, Revision};

use crate::ids::{CallNo, ConnNo, NodeId, Principal, SessionId, StreamNo, Time};
use crate::lifecycle_events::CloseReason;

/// The properties of a session that never change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub id: SessionId,
    pub principal: Principal,
    pub revision: Revision,
    /// The JSON text of the `params` of `initialize`. Any node can create the session's handler
    /// from it.
    pub initialize: Bytes,
    pub opened_at: Time,
}

/// What the jobs of stateless requests are about; see [`Principal::about`].
pub const CALL_SUBJECT: &str = "call";

impl Facts {
    /// Returns true if the session is the job of one stateless request. It has one call, and lives
    /// as long as the answer is of use.
    pub fn is_call_job(&self) -> bool {
        self.revision.is_modern() && self.principal.subject() == Some(CALL_SUBJECT)
    }
}

/// The properties of a session that change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The last recorded activity. [`Timing::touch`](crate::Timing::touch) says how precise it is.
    pub last_active: Time,
    /// Set while the session is detached: when its last connection was lost.
    pub detached_at: Option<Time>,
    pub closed: Option<(CloseReason, Time)>,
    pub next_call: u64,
    pub next_stream: u64,
    pub next_server_request: u64,
    pub next_connection: u64,
    pub next_version: u64,
    /// Call numbers that were revoked from their nodes, newest last, bounded in number.
    ///
    /// A call number is revoked when its call fails because its node is gone, and when the call is
    /// reassigned or forwarded to another node under a new number. If the old node is still alive,
    /// its messages about the revoked number are refused.
    pub revoked_calls: Vec<CallNo>,
    /// [`Begin`](crate::command::Begin) commands whose calls another node runs, newest last,
    /// bounded in number.
    ///
    /// With this list the session can answer a retry even when the calls have finished. An entry is
    /// removed together with its stream.
    pub forwarded_begins: Vec<ForwardedBegin>,
}

/// A [`Begin`](crate::command::Begin) command whose calls went to another node: they were forwarded
/// immediately, or reassigned when the first node was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardedBegin {
    /// The node that received the calls.
    pub node: NodeId,
    /// The attempt number that this node gave the command.
    pub attempt: u64,
    pub stream: StreamNo,
}

/// A client-to-server request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub id: RequestId,
    pub stream: StreamNo,
    /// The node that runs the call.
    pub owner: NodeId,
    /// The node that assigned the call to its owner. At first this is the node that received the
    /// POST, which is usually the owner itself. After a reassignment it is the previous owner.
    pub assigned_by: NodeId,
    /// The attempt number that `assigned_by` gave the [`Begin`](crate::command::Begin) of this
    /// call. A retry of the command finds the call by it. If the previous owner did not begin the
    /// call, the field holds a number that no command has.
    pub attempt: u64,
    /// The connection delivers only the answer. The other messages of the call go to a standalone
    /// stream.
    pub response_only: bool,
    /// The stored request. Present if a node other than the receiving one runs the call, or may
    /// have to run it.
    pub request: Option<Box<Request>>,
}

/// The stored part of a client's request. It holds no HTTP headers, and so no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The encoded request. The nodes encode and decode it; the session does not look inside.
    pub text: Bytes,
    /// Another node may execute the call if its owner is gone, because the call is idempotent or
    /// was not started. A call is reassigned at most once: the reassignment clears this field.
    pub reassignable: bool,
}

impl Call {
    /// Returns true if the owner did not receive the call itself, and so finds it in the session.
    pub fn is_forwarded(&self) -> bool {
        self.assigned_by != self.owner && self.request.is_some()
    }

    pub(crate) fn is_reassignable(&self) -> bool {
        self.request.as_deref().is_some_and(|request| request.reassignable)
    }

    /// Returns the size of the stored request.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.request.as_ref().map_or(0, |request| request.text.len() as u64)
    }
}

/// A server-to-client request in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRequest {
    /// The call that caused the request, if a call did.
    pub call: Option<CallNo>,
    pub stream: StreamNo,
    /// The sequence number of the request's event. The stream keeps this event until the request is
    /// answered.
    pub seq: u64,
    /// The node that waits for the answer.
    pub owner: NodeId,
    /// The answer, if another node received it and the owner has not collected it.
    pub answer: Option<StoredAnswer>,
}

/// An answer of the client that the owner of the server request has not collected yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnswer {
    /// The node that received the answer, and the attempt number that it gave the
    /// [`Answer`](crate::command::Answer) command.
    pub by: (NodeId, u64),
    pub message: Bytes,
}

/// The streams of a session, by number. The streams are boxed because a node of a B-tree map has
/// space for eleven values, and most sessions have one stream.
pub type Streams = BTreeMap<StreamNo, Box<Stream>>;

/// The session state: a small key-value table. The values are boxed like those of [`Streams`].
pub type SessionState = BTreeMap<Box<str>, Box<StateEntry>>;

/// An append-only log of server-to-client messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    pub kind: StreamKind,
    /// The sequence number of the next event. Event 0 is the priming event and is not stored.
    pub next_seq: u64,
    /// The connection that reads the stream, and the node that serves this connection.
    pub attached: Option<(ConnNo, NodeId)>,
    /// The last event that was written to a connection. All events before it were written, too.
    pub delivered: u64,
    pub finished_at: Option<Time>,
    /// The events that were not dropped, in the order of their sequence numbers.
    pub events: VecDeque<StoredEvent>,
    /// The sum of the sizes of `events`.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// Carries the answers to one POST. `open` counts its calls that are not answered.
    Post { open: u32 },
    /// Carries messages that belong to no call.
    Standalone,
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    pub seq: u64,
    pub class: Class,
    pub size: u32,
    /// `None` if the store holds the payload elsewhere.
    pub payload: Option<Bytes>,
}

/// The class of a message. It decides whether the message is refused or dropped when space runs
/// out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A progress or log message: always accepted, dropped first, oldest first.
    Droppable,
    /// Another notification: refused when there is no space. Dropped only from a standalone stream,
    /// after it was delivered.
    Notification,
    /// Tells the client that a server request is no longer open: always accepted, dropped like a
    /// progress message.
    Withdrawal,
    /// A server request: always accepted, and kept while it is open. The number of open ones is
    /// bounded. Once it is not open, it is dropped before everything else.
    ServerRequest,
    /// The answer to a call: always accepted. It is removed only together with its whole stream.
    Response,
}

impl Class {
    const ALL: [Self; 5] =
        [Self::Droppable, Self::Notification, Self::Withdrawal, Self::ServerRequest, Self::Response];

    /// Returns the number that every store writes for this class. It must never change.
    pub const fn code(self) -> u8 {
        match self {
            Self::Droppable => 0,
            Self::Notification => 1,
            Self::ServerRequest => 2,
            Self::Response => 3,
            Self::Withdrawal => 4,
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == code)
    }
}

/// One entry of the session state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateEntry {
    /// Changes with each write. A version is never used again, not even after a deletion.
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
            events: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Returns true if the stream has not finished: more events can follow.
    pub fn is_open(&self) -> bool {
        self.finished_at.is_none()
    }

    pub fn last_seq(&self) -> u64 {
        self.next_seq - 1
    }

    /// Returns true if the stream has finished and its last event was written to a connection.
    pub fn is_fully_delivered(&self) -> bool {
        !self.is_open() && self.delivered >= self.last_seq()
    }
}
