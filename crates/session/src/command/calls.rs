//! Commands of a call: begin, append a message, finish, cancel.

use bytes::Bytes;
use steadfast_wire::RequestId;

use super::{Fence, Target};
use crate::ids::{CallNo, ConnNo, NodeId, StreamNo};
use crate::limits::Limit;
use crate::rows::{Class, Request};

/// Begin the calls of one POST: all of them, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    pub ids: Vec<RequestId>,
    /// The node that received the POST and serves its connection. This node sends the command.
    pub node: NodeId,
    /// The node that runs the calls. If it is not `node`, it finds the calls in its
    /// [`Holdings`](crate::Holdings).
    pub owner: NodeId,
    /// The requests to store, in the order of `ids`.
    ///
    /// A request that exceeds `kept_request_bytes` is not stored, and its call begins without it.
    /// If another node is to run the calls, it needs the requests: then the whole command is
    /// refused.
    pub requests: Vec<Option<Request>>,
    /// The idempotency key of this command: a number that `node` uses for no other command. A retry
    /// has the number of the first attempt.
    pub attempt: u64,
    pub mode: BeginMode,
    pub duplicates: Duplicates,
    /// The connection delivers only the answers. All other messages of the calls go to a
    /// standalone stream.
    pub response_only: bool,
    /// Finished streams of this session whose last event was written to a connection since the last
    /// command.
    pub delivered: Vec<StreamNo>,
    pub fence: Option<Fence>,
}

impl Begin {
    /// Calls that run at the node that received them, without stored requests.
    pub fn local(node: NodeId, attempt: u64, ids: Vec<RequestId>) -> Self {
        Self {
            ids,
            node,
            owner: node,
            requests: Vec::new(),
            attempt,
            mode: BeginMode::First,
            duplicates: Duplicates::default(),
            response_only: false,
            delivered: Vec::new(),
            fence: None,
        }
    }
}

/// Whether the same [`Begin`] may have been sent before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BeginMode {
    /// The command is sent for the first time.
    #[default]
    First,
    /// The command was sent before, with an unknown outcome. If it took effect, its outcome is
    /// returned again. Otherwise the calls begin now.
    Retry,
    /// The command was sent before, with an unknown outcome, and the sender no longer wants it. If
    /// it took effect, its outcome is returned again. Otherwise nothing begins.
    Recall,
}

/// What to do with a request whose id is already in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// Refuse the request, as the specification demands.
    #[default]
    Reject,
    /// Serve the request separately. Each POST has its own calls and its own stream, so the answers
    /// cannot be confused.
    Isolate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begun {
    /// The calls are numbered from `first`, in the order of their ids. The response to the POST is
    /// attached to `stream`.
    Begun {
        stream: StreamNo,
        first: CallNo,
        connection: ConnNo,
    },
    /// An earlier attempt has begun the calls, and another node runs them or has finished them. The
    /// sender reads the answers from the stream.
    AlreadyBegun {
        stream: StreamNo,
    },
    Duplicate(RequestId),
    OverLimit(Limit),
    /// The fence is outdated: the lease has changed hands.
    Fenced,
    /// The command was a recall, and no earlier attempt has taken effect.
    Recalled,
    NoSession,
}

/// Append a message of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    pub target: Target,
    pub class: Class,
    pub payload: Bytes,
    pub fence: Option<Fence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    Appended {
        stream: StreamNo,
        seq: u64,
    },
    /// The call was revoked from its node, or the fence is outdated.
    Fenced,
    /// A notification was refused because the stream, the session or the store is full. (Progress
    /// and log messages are dropped instead, and count as appended.)
    Full(Limit),
    NoSession,
}

/// Answer a call: append the answer and remove the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    pub call: CallNo,
    pub payload: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finished {
    Finished {
        stream: StreamNo,
        seq: u64,
    },
    /// The call has already been answered, cancelled or revoked. The answer is discarded.
    AlreadyFinished,
    NoSession,
}

/// Cancel the call with this client id. The call gets no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    pub id: RequestId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    Cancelled {
        call: CallNo,
        owner: NodeId,
    },
    /// No call with this id is in flight. The cancellation and the answer may have crossed, so this
    /// is no error.
    Nothing,
    /// Several calls have this id, because duplicates are isolated. None of them is cancelled.
    Ambiguous,
    NoSession,
}
