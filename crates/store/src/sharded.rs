//! Tables by session, spread over many locks.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast_session::SessionId;

/// Sessions are spread over this many locks by the first byte of their id.
const SHARDS: usize = 64;

/// One `T` for each of many locks; a session always finds the same one.
#[derive(Debug)]
pub struct Sharded<T>(Box<[Mutex<T>]>);

/// A table by session.
pub type SessionMap<V> = HashMap<SessionId, V, BuildHasherDefault<IdHasher>>;

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        Self((0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl<T> Sharded<T> {
    pub fn of(&self, session: &SessionId) -> MutexGuard<'_, T> {
        lock(&self.0[usize::from(session.as_bytes()[0]) % SHARDS])
    }

    /// One shard after the other, each locked while the caller holds it.
    pub fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.0.iter().map(lock)
    }
}

/// A panic while a lock was held is a bug of ours; the tables behind it are changed by no code that can panic
/// half way, so going on is better than failing every session of the shard.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes eight bytes of the id as they are: they are random, and whoever does not know an id cannot choose where
/// it goes, since only ids that we drew are ever inserted.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        // Not the first bytes: those chose the shard.
        if let Some(last) = bytes.last_chunk::<8>() {
            self.0 = u64::from_le_bytes(*last);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
