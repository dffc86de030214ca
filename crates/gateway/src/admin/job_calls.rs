//! The jobs of requests that run on this node. Such a request is counted as a call itself, so the
//! commands of its job must not count again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast_session::SessionId;

/// Bounded by the limit of stateless requests: each job is added when it is opened and removed when
/// its call has finished, or when it is closed because it got no call.
#[derive(Debug, Default)]
pub(super) struct JobCalls {
    /// The size of `ids`. While there are no jobs, no command takes the lock.
    count: AtomicUsize,
    ids: Mutex<BTreeSet<SessionId>>,
}

impl JobCalls {
    pub(super) fn insert(&self, id: SessionId) {
        let mut ids = self.ids();
        ids.insert(id);
        self.count.store(ids.len(), Ordering::Release);
    }

    pub(super) fn remove(&self, id: SessionId) {
        let mut ids = self.ids();
        ids.remove(&id);
        self.count.store(ids.len(), Ordering::Release);
    }

    pub(super) fn contains(&self, id: SessionId) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.ids().contains(&id)
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<SessionId>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
