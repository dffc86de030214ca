//! The registry of the sessions that this node has served. An idle session is only an id in it.

use std::sync::Arc;

use steadfast_session::{Facts, SessionId, Time};
use steadfast_store::sharded::{SessionMap, Sharded};

use crate::internal_sessions::is_internal;
use crate::sessions::LiveSession;

/// All sessions that this node has served since it started and that have not ended. Sessions in use
/// also have a [`LiveSession`].
#[derive(Debug, Default)]
pub(crate) struct SessionRegistry {
    shards: Sharded<SessionMap<Option<Arc<LiveSession>>>>,
}

/// Whether this node has served a session before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SeenBefore {
    Yes,
    No,
}

impl SessionRegistry {
    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<LiveSession>> {
        self.shards.of(id).get(id).cloned().flatten()
    }

    /// Returns the session's [`LiveSession`]. Creates it if there is none.
    pub(crate) fn get_or_create(&self, facts: &Arc<Facts>) -> (Arc<LiveSession>, SeenBefore) {
        let mut shard = self.shards.of(&facts.id);
        let seen_before = if shard.contains_key(&facts.id) { SeenBefore::Yes } else { SeenBefore::No };
        let slot = shard.entry(facts.id).or_default();
        let session = slot.get_or_insert_with(|| Arc::new(LiveSession::new(Arc::clone(facts))));
        (Arc::clone(session), seen_before)
    }

    /// Returns true if this node has served the session and has not seen its end.
    pub(crate) fn contains(&self, id: &SessionId) -> bool {
        self.shards.of(id).contains_key(id)
    }

    /// Registers a session that was opened on this node.
    pub(crate) fn insert_id(&self, id: SessionId) {
        self.shards.of(&id).entry(id).or_default();
    }

    pub(crate) fn remove(&self, id: &SessionId) -> Option<Arc<LiveSession>> {
        self.shards.of(id).remove(id).flatten()
    }

    /// Returns every session that has a [`LiveSession`].
    pub(crate) fn all(&self) -> Vec<Arc<LiveSession>> {
        self.shards.each().flat_map(|shard| shard.values().flatten().cloned().collect::<Vec<_>>()).collect()
    }

    /// Returns the sessions in one shard for which this node does nothing at the moment. `None` if
    /// there is no such shard.
    pub(crate) fn idle_in_shard(&self, index: usize) -> Option<Vec<SessionId>> {
        let shard = self.shards.each().nth(index)?;
        let is_idle = |live: &Option<Arc<LiveSession>>| live.as_ref().is_none_or(|live| !live.is_busy());
        Some(shard.iter().filter(|(_, live)| is_idle(live)).map(|(id, _)| *id).collect())
    }

    /// Drops each [`LiveSession`] that was not used since `before`. Keeps the ids, except those of
    /// internal sessions: no listener and no backend waits for their end.
    pub(crate) fn forget_unused(&self, before: Time) {
        for mut shard in self.shards.each() {
            shard.retain(|_, slot| {
                // The registry has the only reference, so no other task is about to use the
                // session.
                let Some(unused) =
                    slot.take_if(|live| Arc::strong_count(live) == 1 && live.is_unused_since(before))
                else {
                    return true;
                };
                !is_internal(unused.facts())
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use steadfast_session::{CALL_SUBJECT, Principal};
    use steadfast_wire::Revision;

    use super::*;

    /// Another node may sweep a job, and then this node never hears of its end.
    #[test]
    fn an_unused_job_leaves_no_id_behind() {
        let registry = SessionRegistry::default();
        for (revision, is_kept) in [(Revision::V2025_11_25, true), (Revision::V2026_07_28, false)] {
            let id = SessionId::derived("test", &[revision.as_str().as_bytes()]);
            let principal = Principal::anonymous().about(CALL_SUBJECT);
            let facts = Facts { id, principal, revision, initialize: Bytes::new(), opened_at: Time(1) };
            drop(registry.get_or_create(&Arc::new(facts)));
            registry.forget_unused(Time(1));
            assert!(registry.get(&id).is_some(), "used since then");
            registry.forget_unused(Time(2));
            assert!(registry.get(&id).is_none());
            assert_eq!(registry.contains(&id), is_kept, "{revision:?}");
        }
    }
}
