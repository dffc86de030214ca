//! Finding out which sessions have ended elsewhere.
//!
//! Whoever ends a session forgets it. Other nodes that have served it hold nothing of it while it is idle, so nobody tells them.
//! Each node therefore asks the store for the sessions that it knows, a few with each sweep, and all of them every few minutes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_session::{SessionId, Time};

use crate::calls::catch_panic;
use crate::engine::Engine;
use crate::sessions::LiveSessions;

/// How often all sessions are asked for.
const INTERVAL: Duration = Duration::from_secs(5 * 60);

/// Sessions that one sweep asks for.
const BATCH: usize = 256;

/// Who is to be asked for next.
#[derive(Debug, Default)]
pub(crate) struct Census(Mutex<Round>);

#[derive(Debug, Default)]
struct Round {
    /// When the next round begins. There is none right after the start: nothing is known yet.
    next: Option<Time>,
    /// The part of the table that comes next in this round; none if it is over.
    part: Option<usize>,
    /// What is left of the part before.
    rest: Vec<SessionId>,
}

impl Census {
    /// The sessions to ask for now. Those that this node does something for find out by themselves.
    fn turn(&self, live: &LiveSessions, now: Time) -> Vec<SessionId> {
        let mut round = self.round();
        let next = *round.next.get_or_insert_with(|| now.plus(INTERVAL));
        if round.part.is_none() && round.rest.is_empty() && now >= next {
            round.next = Some(now.plus(INTERVAL));
            round.part = Some(0);
        }
        while round.rest.len() < BATCH
            && let Some(part) = round.part
        {
            match live.idle(part) {
                Some(idle) => {
                    round.rest.extend(idle);
                    round.part = Some(part + 1);
                }
                None => round.part = None,
            }
        }
        let left = round.rest.len().saturating_sub(BATCH);
        round.rest.split_off(left)
    }

    fn round(&self) -> MutexGuard<'_, Round> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Forgets sessions that have ended at another node.
    pub(crate) async fn forget_ended(&self, now: Time) {
        if !self.shares_its_store() || self.is_draining() {
            return;
        }
        let ask = |id| (id, self.store().facts(id));
        // All are asked for before the first answer is waited for.
        let asked: Vec<_> = self.census.turn(&self.live, now).into_iter().map(ask).collect();
        for (id, answer) in asked {
            match answer.await {
                Ok(Some(_)) => {}
                // A panic of the backend is logged, and the session is forgotten all the same.
                Ok(None) => drop(catch_panic(async { self.forget_by_name(id) }).await),
                Err(error) => {
                    tracing::debug!(session = %id.short(), %error, "whether a session has ended is asked another time");
                }
            }
        }
    }

    fn forget_by_name(&self, id: SessionId) {
        match self.live.get(&id) {
            Some(session) => drop(self.lost(&session)),
            None => {
                self.live.remove(&id);
                self.backend().forgotten(id);
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
    fn everybody_has_a_turn_in_each_round_and_nobody_two() {
        let (live, census) = (LiveSessions::default(), Census::default());
        let many = u16::try_from(BATCH).unwrap() * 5 / 2;
        (0..many).for_each(|n| live.note(id(n)));
        let mut now = Time(0);
        assert_eq!(census.turn(&live, now), [], "nothing right after the start");
        for _ in 0..3 {
            now = now.plus(INTERVAL);
            let turns: Vec<_> = (0..4).map(|_| census.turn(&live, now)).collect();
            let sizes: Vec<_> = turns.iter().map(Vec::len).collect();
            assert_eq!(sizes, [BATCH, BATCH, BATCH / 2, 0]);
            let mut asked = turns.concat();
            asked.sort_unstable();
            asked.dedup();
            assert_eq!(asked.len(), usize::from(many));
        }
    }
}
