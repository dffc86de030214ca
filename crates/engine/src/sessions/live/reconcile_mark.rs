//! Tells whether memory and store may disagree, and finds what the store holds and this node does
//! not know.

use std::sync::atomic::Ordering;

use steadfast_session::{CallNo, Holdings};

use crate::sessions::LiveSession;

impl LiveSession {
    /// Call this when the outcome of a command is unknown. The sweeper then compares this session
    /// with the store.
    pub(crate) fn mark_needs_reconcile(&self) {
        self.needs_reconcile.store(true, Ordering::SeqCst);
    }

    pub(crate) fn needs_reconcile(&self) -> bool {
        self.needs_reconcile.load(Ordering::SeqCst)
    }

    pub(crate) fn clear_needs_reconcile(&self) {
        self.needs_reconcile.store(false, Ordering::SeqCst);
    }

    /// Returns the number of operations that were ever started here; `None` while one is in flight.
    /// If the number is equal before and after a read of the store, memory and that read can be
    /// compared.
    pub(crate) fn settled_operations(&self) -> Option<u64> {
        let work = self.work();
        let server_requests = self.server_requests().settled_operations()?;
        (work.begins_in_flight == 0 && work.attaches_in_flight == 0)
            .then_some(work.operations_started + server_requests)
    }

    /// Reduces `held` to what this node does not know.
    pub(crate) fn retain_unknown(&self, held: Holdings) -> Holdings {
        let Holdings::Held {
            mut calls,
            forwarded,
            mut server_requests,
            answers,
            mut connections,
            detached_at,
        } = held
        else {
            return held;
        };
        let work = self.work();
        // The store poll runs forwarded calls, so they count as known.
        let is_forwarded = |no: &CallNo| forwarded.iter().any(|forwarded_call| forwarded_call.call == *no);
        calls.retain(|(no, _)| !work.calls.contains_key(no) && !is_forwarded(no));
        connections.retain(|(stream, connection)| {
            work.tails.get(stream).is_none_or(|(reader, _)| reader != connection)
        });
        drop(work);
        let queue = self.server_requests();
        server_requests.retain(|no| !queue.is_waiting_for(*no));
        Holdings::Held { calls, forwarded, server_requests, answers, connections, detached_at }
    }
}
