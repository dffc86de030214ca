//! Calls that one node gives to another: those that this one was given, and those that it waits for.

use std::sync::atomic::Ordering;

use steadfast_session::{CallNo, Errand};

use super::{LiveSession, Running};

impl LiveSession {
    pub(crate) fn expect_errands(&self, expects: bool) {
        self.expects_errands.store(expects, Ordering::SeqCst);
    }

    /// A call is another node's to begin, or may be.
    pub(crate) fn await_others(&self) {
        self.awaits_others.store(true, Ordering::SeqCst);
    }

    pub(crate) fn awaits_others(&self) -> bool {
        self.awaits_others.load(Ordering::SeqCst)
    }

    /// Nobody waits for others, unless that is said again.
    pub(crate) fn await_nobody(&self) {
        self.awaits_others.store(false, Ordering::SeqCst);
    }

    /// Whether a call of another node was taken here when this node last looked, or since.
    pub(crate) fn has_taken(&self, errand: CallNo) -> bool {
        self.work().errands.contains(&errand)
    }

    /// Takes calls of other nodes that were not taken before: `held` is all that the store holds.
    pub(crate) fn take_errands(
        &self,
        held: Vec<Errand>,
        running: impl Fn(&Errand) -> Running,
    ) -> Vec<(Errand, Running)> {
        let mut work = self.work();
        // One that has ended meanwhile was held when the store was asked, and must not be taken again.
        work.errands.retain(|no| held.iter().any(|errand| errand.call == *no));
        let mut new = Vec::new();
        for errand in held {
            if work.errands.insert(errand.call) {
                let running = running(&errand);
                work.calls.insert(errand.call, running.clone());
                new.push((errand, running));
            }
        }
        new
    }

    /// Whether a call that another node has given to this one may be left to others still.
    pub(crate) fn may_be_left(&self, call: CallNo) -> bool {
        self.work().calls.get(&call).is_some_and(|call| call.given && call.again)
    }

    /// A call has begun, and nobody may do it again.
    pub(crate) fn started(&self, call: CallNo) {
        if let Some(running) = self.work().calls.get_mut(&call) {
            running.again = false;
        }
    }

    /// Somebody else is to run a call that this node was given and has not begun.
    pub(crate) fn misrouted(&self, call: CallNo) {
        if let Some(running) = self.work().calls.get_mut(&call) {
            running.is_misrouted = true;
        }
    }

    /// Whether that was said since this was asked last.
    pub(crate) fn was_misrouted(&self, call: CallNo) -> bool {
        let mut work = self.work();
        work.calls.get_mut(&call).is_some_and(|running| std::mem::take(&mut running.is_misrouted))
    }

    /// Gives up on the calls that another node may run again, so that this node records no outcome of
    /// them. Returns the calls that remain.
    pub(crate) fn release_calls(&self) -> Vec<(CallNo, Running)> {
        let mut work = self.work();
        let mut remaining = Vec::new();
        for (no, call) in &mut work.calls {
            if call.again {
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

    /// This node does not run a call that it was given. For as long as the store holds it, it is not taken again.
    pub(crate) fn left(&self, call: CallNo) {
        self.work().calls.remove(&call);
    }
}
