//! Detects idle sessions that have ended at another node.
//!
//! The node that ends a session forgets it. Another node that served the session holds nothing of
//! it while it is idle, so it gets no signal. Each node therefore reads the facts of the sessions
//! in its registry, one batch with each sweep, and all of them every few minutes.

use std::time::Duration;

use steadfast_session::{SessionId, Time};
use steadfast_wire::Mutex;

use crate::engine::Engine;
use crate::panics::catch_panic;
use crate::sessions::SessionRegistry;

/// How often all sessions are checked.
const INTERVAL: Duration = Duration::from_secs(5 * 60);

/// How many sessions one sweep checks.
const BATCH: usize = 256;

/// Which sessions are checked next.
#[derive(Debug, Default)]
pub(crate) struct EndedSessionCheck(Mutex<Round>);

#[derive(Debug, Default)]
struct Round {
    /// When the next round begins. The first one begins an interval after the start.
    next: Option<Time>,
    /// The next shard of the registry in this round. `None` between rounds.
    shard: Option<usize>,
    /// The sessions of the shards so far that were not checked yet.
    rest: Vec<SessionId>,
}

impl EndedSessionCheck {
    /// Returns the sessions to check now. Sessions in use are left out: their next command reports
    /// the end.
    fn next_batch(&self, sessions: &SessionRegistry, now: Time) -> Vec<SessionId> {
        let mut round = self.0.lock();
        let next = *round.next.get_or_insert_with(|| now.plus(INTERVAL));
        if round.shard.is_none() && round.rest.is_empty() && now >= next {
            round.next = Some(now.plus(INTERVAL));
            round.shard = Some(0);
        }
        while round.rest.len() < BATCH
            && let Some(shard) = round.shard
        {
            match sessions.idle_in_shard(shard) {
                Some(idle) => {
                    round.rest.extend(idle);
                    round.shard = Some(shard + 1);
                }
                None => round.shard = None,
            }
        }
        let left = round.rest.len().saturating_sub(BATCH);
        round.rest.split_off(left)
    }
}

impl Engine {
    /// Forgets sessions that have ended at another node.
    pub(crate) async fn forget_ended(&self, now: Time) {
        if !self.shares_store() || self.is_draining() {
            return;
        }
        let request = |id| (id, self.store().facts(id));
        // All reads are started before the first result is awaited.
        let checked: Vec<_> =
            self.ended_sessions.next_batch(&self.sessions, now).into_iter().map(request).collect();
        for (id, answer) in checked {
            match answer.await {
                Ok(Some(_)) => {}
                // A panic of the backend is logged. The session is forgotten in any case.
                Ok(None) => drop(catch_panic(async { self.forget_session(id) }).await),
                Err(error) => {
                    tracing::debug!(session = %id.short(), %error, "could not check whether a session has ended");
                }
            }
        }
    }

    fn forget_session(&self, id: SessionId) {
        match self.sessions.get(&id) {
            Some(session) => drop(self.session_gone(&session)),
            None => {
                self.sessions.remove(&id);
                self.backend().ended_elsewhere(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u16) -> SessionId {
        let mut bytes = [0; SessionId::BYTES];
        bytes[..2].copy_from_slice(&n.to_le_bytes());
        bytes[SessionId::BYTES - 2..].copy_from_slice(&n.to_le_bytes());
        SessionId::from_random(bytes)
    }

    #[test]
    fn each_session_is_checked_once_in_each_round() {
        let (sessions, ended_sessions) = (SessionRegistry::default(), EndedSessionCheck::default());
        let many = u16::try_from(BATCH).unwrap() * 5 / 2;
        (0..many).for_each(|n| sessions.insert_id(id(n)));
        let mut now = Time(0);
        assert_eq!(ended_sessions.next_batch(&sessions, now), [], "nothing is checked right after the start");
        for _ in 0..3 {
            now = now.plus(INTERVAL);
            let batches: Vec<_> = (0..4).map(|_| ended_sessions.next_batch(&sessions, now)).collect();
            let sizes: Vec<_> = batches.iter().map(Vec::len).collect();
            assert_eq!(sizes, [BATCH, BATCH, BATCH / 2, 0]);
            let mut checked = batches.concat();
            checked.sort_unstable();
            checked.dedup();
            assert_eq!(checked.len(), usize::from(many));
        }
    }
}
