//! The cache of sessions in memory, which saves loading a session for every command.

use std::collections::HashMap;

use steadfast_session::SessionId;

use super::cached_session::CachedSession;

const MAX_SESSIONS: usize = 16_384;

/// The largest total size of the sessions in the cache.
const MAX_BYTES: u64 = 64 << 20;

/// A cache with two generations, which approximates "least recently used" without a list.
///
/// A session that is used moves to the young generation. When the young generation has half of the
/// permitted size, it becomes the old one, and the previous old generation is dropped.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    young: HashMap<SessionId, Box<CachedSession>>,
    old: HashMap<SessionId, Box<CachedSession>>,
    young_bytes: u64,
}

impl Cache {
    /// Takes a session out of the cache. The caller puts it back unless the copy may be wrong.
    pub(crate) fn take(&mut self, id: &SessionId) -> Option<Box<CachedSession>> {
        if let Some(cached) = self.young.remove(id) {
            self.young_bytes = self.young_bytes.saturating_sub(cached.memory_size());
            return Some(cached);
        }
        self.old.remove(id)
    }

    pub(crate) fn put(&mut self, id: SessionId, cached: Box<CachedSession>) {
        self.young_bytes += cached.memory_size();
        self.young.insert(id, cached);
        if self.young.len() > MAX_SESSIONS / 2 || self.young_bytes > MAX_BYTES / 2 {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}
