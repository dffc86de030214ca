//! Counters of the memory store: sessions and bytes, in total and per principal.
//!
//! Sessions are counted under a lock, because they open and close seldom. Bytes change with nearly
//! every command, so they are atomic sums that each session updates by itself. A limit on bytes may
//! therefore be exceeded by what runs concurrently.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_session::{Facts, Limit, Limits, Principal, SessionId, SharedUsage};
use steadfast_wire::Mutex;

use crate::store::EvictionSample;

#[derive(Debug, Default)]
pub(super) struct UsageCounters {
    counts: Mutex<SessionCounts>,
    bytes: ByteCounter,
}

#[derive(Debug, Default)]
struct SessionCounts {
    /// Open sessions, with their principals.
    open: BTreeMap<SessionId, Principal>,
    by_principal: HashMap<Principal, PrincipalUsage>,
    /// The principals with an open session, by the number of their open sessions.
    by_count: BTreeSet<(usize, Principal)>,
}

impl SessionCounts {
    /// Changes the open sessions of a principal.
    fn update(&mut self, principal: &Principal, change: impl FnOnce(&mut BTreeSet<SessionId>) -> bool) {
        let usage = self.by_principal.entry(principal.clone()).or_default();
        let before = usage.open.len();
        change(&mut usage.open);
        let after = usage.open.len();
        self.by_count.remove(&(before, principal.clone()));
        if after > 0 {
            self.by_count.insert((after, principal.clone()));
        }
    }

    fn held_by(&self, principal: &Principal) -> u64 {
        self.by_principal.get(principal).map_or(0, |usage| usage.open.len() as u64)
    }
}

/// Kept as long as the store has a session of the principal. A closed session counts until it is
/// removed, because the store still holds its last messages.
#[derive(Debug, Default)]
struct PrincipalUsage {
    /// Open sessions.
    open: BTreeSet<SessionId>,
    bytes: Arc<ByteCounter>,
}

#[derive(Debug, Default)]
pub(super) struct ByteCounter(AtomicU64);

impl ByteCounter {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn change(&self, before: u64, after: u64) {
        // A negative difference wraps around, and so does the sum.
        self.0.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }
}

impl UsageCounters {
    /// Returns the number of open sessions.
    pub(super) fn sessions(&self) -> u64 {
        self.counts.lock().open.len() as u64
    }

    /// Returns the bytes that all sessions hold.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Returns what all sessions hold, and what the sessions of one principal hold.
    pub(super) fn shared_usage(&self, principal_bytes: &ByteCounter) -> SharedUsage {
        SharedUsage { store_bytes: Some(self.bytes.get()), principal_bytes: Some(principal_bytes.get()) }
    }

    /// Updates the counters after the bytes of one session changed from `before` to `after`.
    pub(super) fn change(&self, principal_bytes: &ByteCounter, before: u64, after: u64) {
        if before != after {
            self.bytes.change(before, after);
            principal_bytes.change(before, after);
        }
    }

    /// Returns the limit that refuses one more session of this size, if there is one.
    pub(super) fn reached_limit(&self, principal: &Principal, bytes: u64, limits: &Limits) -> Option<Limit> {
        self.check_limits(&self.counts.lock(), principal, bytes, limits)
    }

    /// Counts one more session of this size and returns the byte counter of its principal. Fails
    /// with the limit that refuses the session.
    pub(super) fn admit(
        &self,
        facts: &Facts,
        bytes: u64,
        limits: &Limits,
    ) -> Result<Arc<ByteCounter>, Limit> {
        let Facts { id, principal, .. } = facts;
        let mut counts = self.counts.lock();
        if let Some(limit) = self.check_limits(&counts, principal, bytes, limits) {
            return Err(limit);
        }
        counts.open.insert(*id, principal.clone());
        counts.update(principal, |open| open.insert(*id));
        let usage = counts.by_principal.entry(principal.clone()).or_default();
        self.change(&usage.bytes, 0, bytes);
        Ok(Arc::clone(&usage.bytes))
    }

    fn check_limits(
        &self,
        counts: &SessionCounts,
        principal: &Principal,
        bytes: u64,
        limits: &Limits,
    ) -> Option<Limit> {
        let usage = counts.by_principal.get(principal);
        if counts.open.len() as u64 >= limits.sessions {
            return Some(Limit::Sessions);
        }
        if counts.held_by(principal) >= limits.sessions_per_principal {
            return Some(Limit::SessionsPerPrincipal);
        }
        let nothing = ByteCounter::default();
        self.shared_usage(usage.map_or(&nothing, |usage| &usage.bytes)).plus(bytes).exceeded_limit(limits)
    }

    /// Stops counting a session that has closed. Its bytes still count.
    pub(super) fn mark_closed(&self, facts: &Facts) {
        let mut counts = self.counts.lock();
        counts.open.remove(&facts.id);
        counts.update(&facts.principal, |open| open.remove(&facts.id));
    }

    /// Returns the counts of a sample, and the ids of its sessions, each with the number of open
    /// sessions of its principal.
    pub(super) fn eviction_sample(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
        from: SessionId,
    ) -> (EvictionSample, Vec<(SessionId, u64)>) {
        let counts = self.counts.lock();
        let ids: Vec<SessionId> = match of {
            None => around(counts.open.range(from..).chain(counts.open.range(..from)).map(|(id, _)| id)),
            Some(principal) => counts.by_principal.get(principal).map_or_else(Vec::new, |usage| {
                around(usage.open.range(from..).chain(usage.open.range(..from)))
            }),
        };
        let held_by_principal = |id| counts.open.get(id).map_or(0, |principal| counts.held_by(principal));
        let ids = ids.iter().map(|id| (*id, held_by_principal(id))).collect();
        let sample = EvictionSample {
            sessions: Vec::new(),
            open: counts.open.len() as u64,
            principals: counts.by_count.len() as u64,
            own: counts.held_by(requester),
            largest: counts.by_count.last().map(|(count, principal)| (principal.clone(), *count as u64)),
        };
        (sample, ids)
    }

    /// Stops counting the bytes of a closed session that is removed.
    pub(super) fn remove(&self, principal: &Principal, principal_bytes: Arc<ByteCounter>, bytes: u64) {
        let mut counts = self.counts.lock();
        self.change(&principal_bytes, bytes, 0);
        drop(principal_bytes);
        // Every session of the principal has a clone of the counter. Without one, this was the
        // last.
        if counts
            .by_principal
            .get_mut(principal)
            .is_some_and(|usage| Arc::get_mut(&mut usage.bytes).is_some())
        {
            counts.by_principal.remove(principal);
        }
    }
}

/// Returns the first ids of a sequence, as many as a sample may have.
fn around<'a>(ids: impl Iterator<Item = &'a SessionId>) -> Vec<SessionId> {
    ids.take(EvictionSample::SIZE).copied().collect()
}
