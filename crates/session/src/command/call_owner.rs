//! Commands that record or change which node runs a call: start, forward, notify again, fail a
//! node.

use super::Fence;
use crate::ids::{CallNo, NodeId};

/// Record that the owner of a forwarded call is about to run it.
///
/// From then on the call may have had an effect. So it is no longer reassignable, unless it is
/// idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    pub call: CallNo,
    pub node: NodeId,
    /// The call can be executed twice without harm, so it stays reassignable.
    pub idempotent: bool,
    pub fence: Option<Fence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    Started,
    /// The call has ended, or another node owns it.
    Gone,
    /// The fence is outdated: the lease has changed hands.
    Fenced,
    NoSession,
}

/// Forward a call from a node that has not started it to the node that holds the lease.
///
/// Only a call that was forwarded to `node` can be forwarded on. The call gets a new number, so
/// that commands with the old number no longer have an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    pub call: CallNo,
    pub node: NodeId,
    pub to: NodeId,
    pub fence: Option<Fence>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    Forwarded,
    /// The call has ended, or another node owns it, or it was not forwarded to `node`.
    Gone,
    /// The fence is outdated, or a store found that the node `to` is not alive.
    Fenced,
    NoSession,
}

/// Repeat the hints about forwarded calls that have not been started, because a hint can be lost.
///
/// Covers the calls that `node` waits for: calls that `node` forwarded, and calls whose connection
/// it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renotify {
    pub node: NodeId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renotified {
    /// The number of calls whose start is not recorded.
    Renotified {
        calls: u64,
    },
    NoSession,
}

/// Settle everything that a dead or draining node holds in this session.
///
/// Each of its calls gets an error or a successor, its server requests are withdrawn, and its
/// connections are detached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailNode {
    pub node: NodeId,
    /// The new owner of the reassignable calls.
    pub successor: Successor,
}

/// What happens to the reassignable calls of a failed node. All other calls get an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    /// The calls get an error, too.
    None,
    /// The calls are reassigned to this node. Each gets a new number, so that commands of the
    /// failed node, which carry the old number, no longer have an effect.
    Node(NodeId),
    /// The calls stay with the failed node until another node reaps it.
    Reaper,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFailed {
    Failed {
        /// The number of calls that got an error.
        failed: u64,
        /// The number of calls that the successor owns now.
        reassigned: u64,
        /// The number of calls that the failed node still owns.
        kept: u64,
    },
    NoSession,
}
