//! Calls of a node that is gone: each gets an error, or is reassigned to another node.
//!
//! A reassigned call gets a new number. If the old node is not dead but was only paused, it still
//! uses the old number. The session refuses its answer, its server requests and its messages.

use crate::changes::Changes;
use crate::command::{FailNode, NodeFailed, Successor};
use crate::forwarding::MAX_FORWARDED_BEGINS;
use crate::ids::{CallNo, NodeId, Time};
use crate::limits::Rules;
use crate::rows::{Call, ForwardedBegin};
use crate::session::Session;
use steadfast_wire::Reason;

/// How many entries [`Meta::revoked_calls`](crate::Meta::revoked_calls) holds.
const MAX_REVOKED_CALLS: usize = 64;

const NODE_GONE: &str =
    "The server process that ran this call is gone. Whether the call took effect is not known.";

impl Session {
    pub(crate) fn fail_node(
        &mut self,
        command: &FailNode,
        now: Time,
        rules: &Rules,
        changes: &mut Changes,
    ) -> NodeFailed {
        if !self.is_open() {
            return NodeFailed::NoSession;
        }
        let FailNode { node, successor } = *command;
        let of_node = |call: &Call| call.owner == node;
        let can_move = |call: &Call| of_node(call) && call.is_reassignable();
        let (mut reassigned, mut kept) = (0, 0);
        match successor {
            Successor::None => {}
            Successor::Node(successor) => {
                reassigned = self.reassign_calls(node, successor, rules, changes);
            }
            Successor::Reaper => {
                kept = self.calls.values().filter(|call| can_move(call)).count() as u64;
            }
        }
        let fails = |call: &Call| of_node(call) && !(successor == Successor::Reaper && can_move(call));
        let lost: Vec<CallNo> =
            self.calls.iter().filter(|(_, call)| fails(call)).map(|(no, _)| *no).collect();
        let failed = self.fail_calls(fails, Reason::OutcomeUnknown, NODE_GONE, now, rules, changes);
        self.record_revoked(&lost, changes);
        self.withdraw_server_requests(|server_request| server_request.owner == node, rules, changes);
        if failed + reassigned > 0 {
            // A call may have run for longer than the idle time. Its client must still be able to
            // read the answer.
            self.mark_active(now, rules, changes);
        }
        self.detach_node(node, now, changes);
        NodeFailed::Failed { failed, reassigned, kept }
    }

    /// Reassigns all reassignable calls of `node` to `successor`, and returns how many.
    fn reassign_calls(
        &mut self,
        node: NodeId,
        successor: NodeId,
        rules: &Rules,
        changes: &mut Changes,
    ) -> u64 {
        let chosen = |call: &Call| call.owner == node && call.is_reassignable();
        let old: Vec<CallNo> =
            self.calls.iter().filter(|(_, call)| chosen(call)).map(|(no, _)| *no).collect();
        self.remember_reassigned(node, &old, changes);
        for no in &old {
            if let Some(request) = self.calls.get_mut(no).and_then(|call| call.request.as_mut()) {
                request.reassignable = false;
            }
            self.change_owner(*no, successor, rules, changes);
        }
        self.record_revoked(&old, changes);
        old.len() as u64
    }

    /// Remembers the `Begin` commands of `node` whose calls are reassigned.
    ///
    /// The node may be paused and not know whether its command took effect. If it retries after the
    /// calls have ended, they must not begin again. Only the newest are remembered: the node is
    /// most likely dead, and its commands must not displace those of living nodes.
    fn remember_reassigned(&mut self, node: NodeId, calls: &[CallNo], changes: &mut Changes) {
        let was_received_there = |call: &&Call| call.assigned_by == node;
        let calls = calls.iter().filter_map(|no| self.calls.get(no)).filter(was_received_there);
        let mut begins: Vec<ForwardedBegin> =
            calls.map(|&Call { attempt, stream, .. }| ForwardedBegin { node, attempt, stream }).collect();
        begins.dedup();
        for begin in begins.into_iter().rev().take(MAX_FORWARDED_BEGINS / 2).rev() {
            self.remember_forwarded(begin, changes);
        }
    }

    /// Records that `calls` were revoked from the nodes that ran them.
    pub(crate) fn record_revoked(&mut self, calls: &[CallNo], changes: &mut Changes) {
        if calls.is_empty() {
            return;
        }
        let revoked = &mut self.meta.revoked_calls;
        revoked.extend_from_slice(calls);
        revoked.drain(..revoked.len().saturating_sub(MAX_REVOKED_CALLS));
        changes.meta = true;
    }

    /// Returns true if the call number was revoked from the node that ran the call.
    pub(crate) fn is_revoked(&self, call: CallNo) -> bool {
        self.meta.revoked_calls.contains(&call)
    }
}
