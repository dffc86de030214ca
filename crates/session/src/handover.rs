//! What becomes of the calls of a node that is gone: an explicit error, or a new owner.
//!
//! A call that may be done again gets a new number, and that is the fence: whoever knows the old one, because it was not
//! gone but asleep, can neither answer it nor ask nor say anything in its name.

use crate::calls::MAX_MAILED;
use crate::changes::Changes;
use crate::command::{
    FailNode, Fence, Heir, NodeFailed, Pass, Passed, Release, Released, Remind, Reminded, Start, Started,
};
use crate::ids::{CallNo, NodeId, Time};
use crate::limits::Rules;
use crate::session::Session;
use crate::tables::{Call, Mailed, Request};

/// Calls that were taken from nodes and are remembered as such.
const MAX_TAKEN: usize = 64;

/// No node counts that far.
const NAMELESS: u64 = i64::MAX as u64;

const GONE: &str =
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
        let FailNode { node, heir } = *command;
        let of_node = |call: &Call| call.owner == node;
        let stays = |call: &Call| of_node(call) && call.may_be_done_again();
        let (mut handed, mut left) = (0, 0);
        match heir {
            Heir::Nobody => {}
            Heir::Node(heir) => handed = self.hand_over(node, heir, rules, changes),
            Heir::Later => left = self.calls.values().filter(|call| stays(call)).count() as u64,
        }
        let fails = |call: &Call| of_node(call) && !(heir == Heir::Later && stays(call));
        let lost: Vec<CallNo> =
            self.calls.iter().filter(|(_, call)| fails(call)).map(|(no, _)| *no).collect();
        let calls = self.fail_calls(fails, "outcome_unknown", GONE, now, rules, changes);
        self.note_taken(&lost, changes);
        self.withdraw_asks(|ask| ask.owner == node, rules, changes);
        if calls + handed > 0 {
            // A call may have run for longer than the idle time: its client must get the chance to read the answer.
            self.mark_active(now, rules, changes);
        }
        self.detach_node(node, now, changes);
        NodeFailed::Failed { calls, handed, left }
    }

    fn hand_over(&mut self, node: NodeId, heir: NodeId, rules: &Rules, changes: &mut Changes) -> u64 {
        let chosen = |call: &Call| call.owner == node && call.may_be_done_again();
        let old: Vec<CallNo> =
            self.calls.iter().filter(|(_, call)| chosen(call)).map(|(no, _)| *no).collect();
        self.remember_handed(node, &old, changes);
        for no in &old {
            if let Some(request) = self.calls.get_mut(no).and_then(|call| call.request.as_mut()) {
                request.again = false;
            }
            self.renumber(*no, heir, rules, changes);
        }
        self.note_taken(&old, changes);
        old.len() as u64
    }

    /// Gives a call to another node, under another number.
    fn renumber(&mut self, no: CallNo, owner: NodeId, rules: &Rules, changes: &mut Changes) {
        let Some(mut call) = self.remove_call(no, rules, changes) else { return };
        let node = call.owner;
        changes.stopped.push((no, node));
        if call.from != node {
            // Its name was given by the node that it came to, which is remembered with it. Of this one it would name another.
            call.attempt = NAMELESS;
        }
        (call.from, call.owner) = (node, owner);
        let next = CallNo(self.meta.next_call);
        self.meta.next_call += 1;
        changes.meta = true;
        self.add_call(next, call, changes);
    }

    pub(crate) fn pass(&mut self, command: &Pass, rules: &Rules, changes: &mut Changes) -> Passed {
        let Pass { call, node, to, ref fence } = *command;
        if !self.is_open() {
            return Passed::NoSession;
        }
        if self.is_fenced(fence.as_ref()) {
            return Passed::Fenced;
        }
        let is_given = |call: &Call| call.owner == node && call.is_errand();
        if to == node || !self.calls.get(&call).is_some_and(is_given) {
            return Passed::Gone;
        }
        self.renumber(call, to, rules, changes);
        self.note_taken(&[call], changes);
        Passed::Passed
    }

    pub(crate) fn release(&mut self, command: &Release, changes: &mut Changes) -> Released {
        let Release { node, fence } = command;
        if !self.is_open() {
            return Released::NoSession;
        }
        if self.is_fenced(Some(fence)) {
            return Released::Fenced;
        }
        let is_left = |call: &Call| call.is_errand() && call.may_be_done_again();
        if self.calls.values().any(|call| call.owner == *node && !is_left(call)) {
            return Released::Busy;
        }
        self.drop_state(&fence.key, changes);
        Released::Released
    }

    /// The node may be asleep and not know yet whether they have begun. If they are over when it asks, it must not begin them
    /// anew. The newest only: what living nodes do not know yet is not forgotten for the sake of one that is gone, most likely.
    fn remember_handed(&mut self, node: NodeId, calls: &[CallNo], changes: &mut Changes) {
        let came_there = |call: &&Call| call.from == node;
        let calls = calls.iter().filter_map(|no| self.calls.get(no)).filter(came_there);
        let mut posts: Vec<Mailed> =
            calls.map(|&Call { attempt, stream, .. }| Mailed { node, attempt, stream }).collect();
        posts.dedup();
        for post in posts.into_iter().rev().take(MAX_MAILED / 2).rev() {
            self.remember(post, changes);
        }
    }

    pub(crate) fn start(&mut self, command: &Start, changes: &mut Changes) -> Started {
        if !self.is_open() {
            return Started::NoSession;
        }
        let is_fenced = self.is_fenced(command.fence.as_ref());
        let call = self.calls.get_mut(&command.call).filter(|call| call.owner == command.node);
        let Some(call) = call else { return Started::Gone };
        if is_fenced {
            return Started::Fenced;
        }
        if command.again {
            return Started::Started;
        }
        if let Some(request) = call.request.as_mut().filter(|request| request.again) {
            request.again = false;
            changes.started.push(command.call);
        }
        Started::Started
    }

    /// Changes nothing. Whether a call that may be done again has begun is not written down: of those its owner hears until they end.
    pub(crate) fn remind(&self, command: &Remind, changes: &mut Changes) -> Reminded {
        if !self.is_open() {
            return Reminded::NoSession;
        }
        let node = command.node;
        let is_read = |stream| {
            let attached = self.streams.get(&stream).and_then(|stream| stream.attached);
            attached.is_some_and(|(_, reader)| reader == node)
        };
        let awaited = self.calls.iter().filter(|(_, call)| {
            let is_to_begin = call.is_errand() && call.may_be_done_again();
            is_to_begin && call.owner != node && (call.from == node || is_read(call.stream))
        });
        let before = changes.errands.len();
        changes.errands.extend(awaited.map(|(no, call)| (*no, call.owner)));
        Reminded::Reminded { calls: (changes.errands.len() - before) as u64 }
    }

    fn note_taken(&mut self, calls: &[CallNo], changes: &mut Changes) {
        if calls.is_empty() {
            return;
        }
        let taken = &mut self.meta.taken;
        taken.extend_from_slice(calls);
        taken.drain(..taken.len().saturating_sub(MAX_TAKEN));
        changes.meta = true;
    }

    /// Whether somebody has taken this call from the node that ran it.
    pub(crate) fn is_taken(&self, call: CallNo) -> bool {
        self.meta.taken.contains(&call)
    }

    /// Whether the lease that a command is sent under is somebody else's by now.
    pub(crate) fn is_fenced(&self, fence: Option<&Fence>) -> bool {
        fence.is_some_and(|fence| {
            self.state.get(&*fence.key).is_none_or(|value| value.version != fence.version)
        })
    }
}

impl Call {
    fn may_be_done_again(&self) -> bool {
        self.request.as_deref().is_some_and(|Request { again, .. }| *again)
    }
}
