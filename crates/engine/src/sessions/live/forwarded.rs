//! Bookkeeping of forwarded calls: those that other nodes forwarded to this one, and those that
//! clients of this node wait for.

use std::sync::atomic::Ordering;

use steadfast_session::{CallNo, ForwardedCall};

use crate::sessions::{LiveSession, RunningCall};

impl LiveSession {
    pub(crate) fn set_expects_forwarded_calls(&self, expects: bool) {
        self.expects_forwarded_calls.store(expects, Ordering::SeqCst);
    }

    /// A client of this node waits for a call that another node may have to start. The node then
    /// sends hints until the call has started (`upkeep::renotify`).
    pub(crate) fn mark_awaits_remote_start(&self) {
        self.awaits_remote_start.store(true, Ordering::SeqCst);
    }

    pub(crate) fn awaits_remote_start(&self) -> bool {
        self.awaits_remote_start.load(Ordering::SeqCst)
    }

    /// Call this before asking the store whether such calls are left.
    pub(crate) fn clear_awaits_remote_start(&self) {
        self.awaits_remote_start.store(false, Ordering::SeqCst);
    }

    /// Returns true if this node runs the forwarded call, or has run it since it last polled the
    /// store.
    pub(crate) fn has_accepted(&self, forwarded_call: CallNo) -> bool {
        self.work().known_forwarded.contains(&forwarded_call)
    }

    /// Adds the forwarded calls that this node does not know yet and returns them. `held` are all
    /// that the store holds for this node.
    pub(crate) fn add_forwarded(
        &self,
        held: Vec<ForwardedCall>,
        running: impl Fn(&ForwardedCall) -> RunningCall,
    ) -> Vec<(ForwardedCall, RunningCall)> {
        let mut work = self.work();
        // A call that ended after the store was read is still in `held`, and must not run again. So
        // a call number is forgotten only when the store does not list it any more.
        work.known_forwarded.retain(|no| held.iter().any(|forwarded_call| forwarded_call.call == *no));
        let mut new = Vec::new();
        for forwarded_call in held {
            if work.known_forwarded.insert(forwarded_call.call) {
                let running = running(&forwarded_call);
                work.calls.insert(forwarded_call.call, running.clone());
                new.push((forwarded_call, running));
            }
        }
        new
    }

    /// Returns true if the call was forwarded to this node and another node may still run it
    /// instead.
    pub(crate) fn is_reassignable(&self, call: CallNo) -> bool {
        self.work().calls.get(&call).is_some_and(|call| call.is_forwarded && call.is_reassignable)
    }

    /// A call has started, and no other node may run it any more.
    pub(crate) fn mark_started(&self, call: CallNo) {
        if let Some(running) = self.work().calls.get_mut(&call) {
            running.is_reassignable = false;
        }
    }

    /// Another node must run a call that was forwarded to this node and has not started.
    pub(crate) fn mark_route_outdated(&self, call: CallNo) {
        if let Some(running) = self.work().calls.get_mut(&call) {
            running.is_route_outdated = true;
        }
    }

    /// Returns true if [`LiveSession::mark_route_outdated`] was called, and resets the mark.
    pub(crate) fn take_route_outdated(&self, call: CallNo) -> bool {
        let mut work = self.work();
        work.calls.get_mut(&call).is_some_and(|running| std::mem::take(&mut running.is_route_outdated))
    }

    /// Gives up the calls that another node may run again: cancels them, so that this node records
    /// no outcome of them. Returns the remaining calls.
    pub(crate) fn release_reassignable_calls(&self) -> Vec<(CallNo, RunningCall)> {
        let mut work = self.work();
        let mut remaining = Vec::new();
        for (no, call) in &mut work.calls {
            if call.is_reassignable {
                call.is_released = true;
                call.cancel.cancel();
            } else {
                remaining.push((*no, call.clone()));
            }
        }
        remaining
    }

    pub(crate) fn was_released(&self, call: CallNo) -> bool {
        self.work().calls.get(&call).is_some_and(|call| call.is_released)
    }

    /// Stops treating a forwarded call as this node's. While the store lists it for this node, it
    /// is not added again.
    pub(crate) fn release_call(&self, call: CallNo) {
        self.work().calls.remove(&call);
    }
}
