//! Which sessions this node knows. An idle one is a name in a set.

use std::sync::Arc;

use steadfast_session::{Facts, SessionId, Time};
use steadfast_store::sharded::{SessionMap, Sharded};

use crate::live::LiveSession;

/// The sessions this node has served since it started, and the work it does for some of them.
#[derive(Debug, Default)]
pub(crate) struct LiveSessions {
    shards: Sharded<SessionMap<Option<Arc<LiveSession>>>>,
}

/// How this node came to know a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Before,
    FirstSeen,
}

impl LiveSessions {
    pub(crate) fn get(&self, id: &SessionId) -> Option<Arc<LiveSession>> {
        self.shards.of(id).get(id).cloned().flatten()
    }

    /// The session's live part, made if there is none.
    pub(crate) fn enter(&self, facts: &Arc<Facts>) -> (Arc<LiveSession>, Known) {
        let mut shard = self.shards.of(&facts.id);
        let known = if shard.contains_key(&facts.id) { Known::Before } else { Known::FirstSeen };
        let slot = shard.entry(facts.id).or_default();
        let session = slot.get_or_insert_with(|| Arc::new(LiveSession::new(Arc::clone(facts))));
        (Arc::clone(session), known)
    }

    /// Whether this node serves the session, or has and would again.
    pub(crate) fn knows(&self, id: &SessionId) -> bool {
        self.shards.of(id).contains_key(id)
    }

    /// Remembers a session that was opened here.
    pub(crate) fn note(&self, id: SessionId) {
        self.shards.of(&id).entry(id).or_default();
    }

    pub(crate) fn remove(&self, id: &SessionId) -> Option<Arc<LiveSession>> {
        self.shards.of(id).remove(id).flatten()
    }

    /// Every session that has a live part.
    pub(crate) fn all(&self) -> Vec<Arc<LiveSession>> {
        self.shards.each().flat_map(|shard| shard.values().flatten().cloned().collect::<Vec<_>>()).collect()
    }

    /// The sessions in one part of the table for which nothing is being done. `None` if there is no such part.
    pub(crate) fn idle(&self, part: usize) -> Option<Vec<SessionId>> {
        let shard = self.shards.each().nth(part)?;
        let is_idle = |live: &Option<Arc<LiveSession>>| live.as_ref().is_none_or(|live| !live.is_busy());
        Some(shard.iter().filter(|(_, live)| is_idle(live)).map(|(id, _)| *id).collect())
    }

    /// Drops the live part of sessions for which nothing has been done since `before`, and keeps their names.
    pub(crate) fn forget_unused(&self, before: Time) {
        for mut shard in self.shards.each() {
            for slot in shard.values_mut() {
                // Nobody else holds it, so nobody is about to use it.
                if slot
                    .as_ref()
                    .is_some_and(|live| Arc::strong_count(live) == 1 && live.is_unused_since(before))
                {
                    *slot = None;
                }
            }
        }
    }
}
