//! Leases: the check of a fencing token, and the release of a lease.
//!
//! A lease is an entry of the session state, written with compare-and-set. The version of the entry
//! is the fencing token.

use crate::changes::Changes;
use crate::command::{Fence, Release, Released};
use crate::rows::Call;
use crate::session::Session;

impl Session {
    pub(crate) fn release(&mut self, command: &Release, changes: &mut Changes) -> Released {
        let Release { node, fence } = command;
        if !self.is_open() {
            return Released::NoSession;
        }
        if self.is_fenced(Some(fence)) {
            return Released::Fenced;
        }
        let can_move = |call: &Call| call.is_forwarded() && call.is_reassignable();
        if self.calls.values().any(|call| call.owner == *node && !can_move(call)) {
            return Released::Busy;
        }
        self.delete_state(&fence.key, changes);
        Released::Released
    }

    /// Returns true if the lease of a command has changed hands, so that the command must be
    /// refused.
    pub(crate) fn is_fenced(&self, fence: Option<&Fence>) -> bool {
        fence.is_some_and(|fence| {
            self.state.get(&*fence.key).is_none_or(|entry| entry.version != fence.version)
        })
    }
}
