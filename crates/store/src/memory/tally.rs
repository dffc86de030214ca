//! How many sessions there are and what they hold, in all and by principal.
//!
//! Sessions are counted under a lock, since they come and go seldom. Bytes change with nearly every command: they are sums that
//! each session adds to by itself, and nobody needs them more exactly than that.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_session::{Crowd, Limit, Limits, Principal};

#[derive(Debug, Default)]
pub(super) struct Tally {
    counts: Mutex<Counts>,
    bytes: Bytes,
}

#[derive(Debug, Default)]
struct Counts {
    sessions: u64,
    by_principal: HashMap<Principal, Own>,
}

/// Stays for as long as there is a session of the principal, be it one that has closed: its last messages are held, too.
#[derive(Debug, Default)]
struct Own {
    sessions: u64,
    bytes: Arc<Bytes>,
}

#[derive(Debug, Default)]
pub(super) struct Bytes(AtomicU64);

impl Bytes {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn change(&self, before: u64, after: u64) {
        // A sum wraps around and back again.
        self.0.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl Tally {
    pub(super) fn sessions(&self) -> u64 {
        self.counts().sessions
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// What the sessions beside one hold, and it as well.
    pub(super) fn crowd(&self, own: &Bytes) -> Crowd {
        Crowd { store_bytes: Some(self.bytes.get()), principal_bytes: Some(own.get()) }
    }

    /// A session of theirs holds so much in place of so much.
    pub(super) fn change(&self, own: &Bytes, before: u64, after: u64) {
        if before != after {
            self.bytes.change(before, after);
            own.change(before, after);
        }
    }

    /// The bound that forbids one more session which holds so much.
    pub(super) fn no_room_for(&self, principal: &Principal, bytes: u64, limits: &Limits) -> Option<Limit> {
        self.refusal(&self.counts(), principal, bytes, limits)
    }

    /// Counts one more session which holds so much, or says which bound forbids it. Gives where its principal's bytes are counted.
    pub(super) fn admit(
        &self,
        principal: &Principal,
        bytes: u64,
        limits: &Limits,
    ) -> Result<Arc<Bytes>, Limit> {
        let mut counts = self.counts();
        if let Some(limit) = self.refusal(&counts, principal, bytes, limits) {
            return Err(limit);
        }
        counts.sessions += 1;
        let own = counts.by_principal.entry(principal.clone()).or_default();
        own.sessions += 1;
        self.change(&own.bytes, 0, bytes);
        Ok(Arc::clone(&own.bytes))
    }

    fn refusal(&self, counts: &Counts, principal: &Principal, bytes: u64, limits: &Limits) -> Option<Limit> {
        let own = counts.by_principal.get(principal);
        if counts.sessions >= limits.sessions {
            return Some(Limit::Sessions);
        }
        if own.map_or(0, |own| own.sessions) >= limits.sessions_per_principal {
            return Some(Limit::SessionsPerPrincipal);
        }
        let nothing = Bytes::default();
        self.crowd(own.map_or(&nothing, |own| &own.bytes)).and(bytes).over(limits)
    }

    /// A session has closed. What it holds is still there.
    pub(super) fn release(&self, principal: &Principal) {
        let mut counts = self.counts();
        counts.sessions = counts.sessions.saturating_sub(1);
        if let Some(own) = counts.by_principal.get_mut(principal) {
            own.sessions = own.sessions.saturating_sub(1);
        }
    }

    /// A session that had closed is gone, and what it held.
    pub(super) fn forget(&self, principal: &Principal, own: Arc<Bytes>, bytes: u64) {
        let mut counts = self.counts();
        self.change(&own, bytes, 0);
        drop(own);
        // Every session of the principal has a share of it.
        if counts.by_principal.get_mut(principal).is_some_and(|own| Arc::get_mut(&mut own.bytes).is_some()) {
            counts.by_principal.remove(principal);
        }
    }

    /// Nothing that is done under this lock can panic half way.
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
