//! Commands of a server request: open, answer, collect the stored answer, withdraw.

use bytes::Bytes;

use super::{Fence, Target};
use crate::ids::{CallNo, NodeId, ServerRequestNo, StreamNo};
use crate::limits::Limit;

/// Send a request to the client and record which node waits for the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenServerRequest {
    pub target: Target,
    pub owner: NodeId,
    /// The JSON text of the request from `"method"` up to and including the last brace. The session
    /// generates the id and puts it in front.
    pub rest: Bytes,
    pub fence: Option<Fence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRequestOpened {
    Opened {
        server_request: ServerRequestNo,
        stream: StreamNo,
        seq: u64,
    },
    OverLimit(Limit),
    /// The call that the request belongs to has ended.
    CallGone,
    /// The fence is outdated: the lease has changed hands.
    Fenced,
    NoSession,
}

/// Record the client's answer to a server request.
///
/// If the node that sends this command owns the server request, the request is over. If another
/// node owns it, the session stores the answer until that node collects it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub server_request: ServerRequestNo,
    /// The node that received the answer. This node sends the command.
    pub node: NodeId,
    /// The idempotency key of this command: a number that `node` uses for no other command. A retry
    /// has the number of the first attempt, and gets its outcome while the answer is stored.
    pub attempt: u64,
    /// The JSON text of the answer.
    pub message: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The sender owns the server request. It now has the only answer and must deliver it.
    Answered {
        call: Option<CallNo>,
    },
    /// Another node owns the server request. It finds the answer in its
    /// [`Holdings`](crate::Holdings).
    Stored {
        owner: NodeId,
    },
    /// Another answer came first and is stored for the owner.
    AlreadyAnswered,
    /// No such server request is open: it never existed, or it was withdrawn, or its answer was
    /// collected.
    Unknown,
    OverLimit(Limit),
    NoSession,
}

/// Remove server requests whose stored answers the owner has delivered.
///
/// The session stores an answer until its owner sends this command, so that a lost reply of the
/// store cannot lose an answer. The command is idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collect {
    pub node: NodeId,
    pub server_requests: Vec<ServerRequestNo>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    Collected,
    NoSession,
}

/// Withdraw a server request and notify the client that the answer is no longer needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Withdraw {
    pub server_request: ServerRequestNo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    Withdrawn,
    /// No such server request is open.
    Unknown,
    NoSession,
}
