//! Hash tables keyed by session id, divided over several locks to reduce contention.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast_session::SessionId;

/// Number of shards. The first byte of a session id selects the shard.
const SHARDS: usize = 64;

/// One `T` per shard, each behind its own lock. A session id always selects the same shard.
#[derive(Debug)]
pub struct Sharded<T>(Box<[Mutex<T>]>);

/// A hash table keyed by session id.
pub type SessionMap<V> = HashMap<SessionId, V, BuildHasherDefault<IdHasher>>;

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl<T> Sharded<T> {
    /// Locks the shard of a session.
    pub fn of(&self, session: &SessionId) -> MutexGuard<'_, T> {
        lock(&self.0[usize::from(session.as_bytes()[0]) % SHARDS])
    }

    /// Returns the shards one after the other. Each is locked while the caller holds its guard.
    pub fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.0.iter().map(lock)
    }
}

/// Locks a shard and ignores poisoning. No code that changes a table can panic half way, so the
/// table is intact after a panic, and continuing is better than failing every session of the shard.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Uses eight bytes of the session id as its hash. Ids are random, and only ids that this process
/// or another node generated are inserted, so an attacker cannot choose ids that collide.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        // The last bytes, because the first byte selects the shard.
        if let Some(last) = bytes.last_chunk::<8>() {
            self.0 = u64::from_le_bytes(*last);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
