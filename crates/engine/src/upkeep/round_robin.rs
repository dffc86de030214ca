//! Picks the next batch of sessions, if there are more than one sweep processes.

use std::sync::{Mutex, PoisonError};

use steadfast_session::SessionId;

/// How many sessions one sweep processes. It bounds how long a sweep waits for a shard of the store
/// that does not answer.
const BATCH: usize = 64;

/// Iterates over sessions by id, so that sessions that fail repeatedly do not starve the others.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    /// The last session of the previous batch.
    last: Mutex<Option<SessionId>>,
}

impl RoundRobin {
    pub(crate) fn next_batch<T>(&self, mut all: Vec<T>, id: impl Fn(&T) -> SessionId) -> Vec<T> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        all.sort_unstable_by_key(|one| (Some(id(one)) <= *last, id(one)));
        all.truncate(BATCH);
        *last = all.last().map(id).or(*last);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_session_has_its_turn() {
        let id = |number: u8| SessionId::from_random([number; SessionId::BYTES]);
        let all: Vec<SessionId> = (0..100).map(id).collect();
        let round_robin = RoundRobin::default();
        let next_batch = || round_robin.next_batch(all.clone(), |id| *id);
        assert_eq!(next_batch(), all[..64]);
        assert_eq!(next_batch(), [&all[64..], &all[..28]].concat());
        assert_eq!(round_robin.next_batch(vec![id(5), id(200)], |id| *id), [id(200), id(5)]);
        assert_eq!(round_robin.next_batch(Vec::new(), |id: &SessionId| *id), []);
    }
}
