//! Forwarded calls: a node receives a call, and another node runs it.
//!
//! The session stores the request, and the owner finds it in its [`Holdings`](crate::Holdings).
//! Until the owner records the start, the call can be forwarded on or reassigned.

use crate::changes::Changes;
use crate::command::{Forward, Forwarded, Renotified, Renotify, Start, Started};
use crate::ids::{CallNo, NodeId};
use crate::limits::Rules;
use crate::rows::{Call, ForwardedBegin};
use crate::session::Session;

/// How many entries [`Meta::forwarded_begins`](crate::Meta::forwarded_begins) holds. A node retries
/// a command within seconds, so a short list is enough.
pub(crate) const MAX_FORWARDED_BEGINS: usize = 32;

/// The attempt number of a call whose `assigned_by` did not begin it. No node counts that far.
const NO_ATTEMPT: u64 = i64::MAX as u64;

impl Session {
    pub(crate) fn forward(&mut self, command: &Forward, rules: &Rules, changes: &mut Changes) -> Forwarded {
        let Forward { call, node, to, ref fence } = *command;
        if !self.is_open() {
            return Forwarded::NoSession;
        }
        if self.is_fenced(fence.as_ref()) {
            return Forwarded::Fenced;
        }
        let was_forwarded = |call: &Call| call.owner == node && call.is_forwarded();
        if to == node || !self.calls.get(&call).is_some_and(was_forwarded) {
            return Forwarded::Gone;
        }
        self.change_owner(call, to, rules, changes);
        self.record_revoked(&[call], changes);
        Forwarded::Forwarded
    }

    /// Gives a call to another node, under a new number. The new number is the fence: the previous
    /// owner only knows the old one.
    pub(crate) fn change_owner(&mut self, no: CallNo, to: NodeId, rules: &Rules, changes: &mut Changes) {
        let Some(mut call) = self.remove_call(no, rules, changes) else { return };
        let previous = call.owner;
        changes.stopped.push((no, previous));
        if call.assigned_by != previous {
            // The node that received the call gave it its attempt number, and `forwarded_begins`
            // remembers both. Together with `previous` the number would name another command.
            call.attempt = NO_ATTEMPT;
        }
        (call.assigned_by, call.owner) = (previous, to);
        let next = CallNo(self.meta.next_call);
        self.meta.next_call += 1;
        changes.meta = true;
        self.add_call(next, call, changes);
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
        if command.idempotent {
            return Started::Started;
        }
        if let Some(request) = call.request.as_mut().filter(|request| request.reassignable) {
            request.reassignable = false;
            changes.started.push(command.call);
        }
        Started::Started
    }

    /// Changes no table. The start of an idempotent call is not recorded, so its owner gets hints
    /// until it ends.
    pub(crate) fn renotify(&self, command: &Renotify, changes: &mut Changes) -> Renotified {
        if !self.is_open() {
            return Renotified::NoSession;
        }
        let node = command.node;
        let is_read = |stream| {
            let attached = self.streams.get(&stream).and_then(|stream| stream.attached);
            attached.is_some_and(|(_, reader)| reader == node)
        };
        let awaited = self.calls.iter().filter(|(_, call)| {
            let is_unstarted = call.is_forwarded() && call.is_reassignable();
            is_unstarted && call.owner != node && (call.assigned_by == node || is_read(call.stream))
        });
        let before = changes.forwarded.len();
        changes.forwarded.extend(awaited.map(|(no, call)| (*no, call.owner)));
        Renotified::Renotified { calls: (changes.forwarded.len() - before) as u64 }
    }

    /// Remembers that another node runs the calls of a [`Begin`](crate::command::Begin), so that a
    /// retry is answered even after the calls have ended.
    pub(crate) fn remember_forwarded(&mut self, begin: ForwardedBegin, changes: &mut Changes) {
        let begins = &mut self.meta.forwarded_begins;
        begins.push(begin);
        begins.drain(..begins.len().saturating_sub(MAX_FORWARDED_BEGINS));
        changes.meta = true;
    }
}
