//! The writer's cache of sessions in memory, which saves reading a session for every command.

use std::collections::HashMap;

use steadfast_session::{NodeId, SessionId};

use super::cached_session::CachedSession;

const MAX_SESSIONS: usize = 4096;

/// The largest total size of the sessions in the cache.
const MAX_BYTES: u64 = 64 << 20;

/// A cache with two generations, which approximates "least recently used" without a list.
///
/// A session that is used moves to the young generation. When the young generation has half of the
/// permitted size, it becomes the old one, and the previous old generation is dropped.
#[derive(Debug, Default)]
pub(super) struct Cache {
    young: HashMap<SessionId, Box<CachedSession>>,
    old: HashMap<SessionId, Box<CachedSession>>,
    young_bytes: u64,
}

impl Cache {
    /// Returns a session and moves it to the young generation.
    pub(super) fn get(&mut self, id: &SessionId) -> Option<&mut CachedSession> {
        if !self.young.contains_key(id) {
            let cached = self.old.remove(id)?;
            self.young_bytes += cached.counted_bytes;
            self.young.insert(*id, cached);
        }
        self.young.get_mut(id).map(|cached| &mut **cached)
    }

    pub(super) fn insert(&mut self, id: SessionId, cached: CachedSession) -> &mut CachedSession {
        self.young_bytes += cached.counted_bytes;
        self.young.entry(id).insert_entry(Box::new(cached)).into_mut()
    }

    pub(super) fn remove(&mut self, id: &SessionId) {
        if let Some(cached) = self.young.remove(id) {
            self.young_bytes = self.young_bytes.saturating_sub(cached.counted_bytes);
        }
        self.old.remove(id);
    }

    /// Updates the size of a session after it was written.
    pub(super) fn update_size(&mut self, id: &SessionId) {
        if let Some(cached) = self.young.get_mut(id) {
            let size = cached.memory_size();
            self.young_bytes = (self.young_bytes + size).saturating_sub(cached.counted_bytes);
            cached.counted_bytes = size;
        }
    }

    /// Drops the old generation if the cache is too large. Call this only when no session is dirty.
    pub(super) fn trim(&mut self) {
        if self.young.len() > MAX_SESSIONS / 2 || self.young_bytes > MAX_BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }

    pub(super) fn forget_node(&mut self, node: NodeId) {
        for cached in self.young.values_mut().chain(self.old.values_mut()) {
            cached.nodes.retain(|present| *present != node);
        }
    }

    /// Drops all sessions, because the file may have changed.
    pub(super) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
        self.young_bytes = 0;
    }
}
