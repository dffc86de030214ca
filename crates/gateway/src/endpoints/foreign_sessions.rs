//! Sessions in the shared store whose endpoint this gateway does not serve. Other gateways have
//! opened them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use steadfast_engine::{Facts, SessionId};
use steadfast_session::command::Successor;
use steadfast_wire::Mutex;
use tokio::time::Instant;

use super::namespace::{Namespace, identity_of};

/// How long the idempotent calls of a dead gateway are left to gateways with the same identity.
/// Each of those looks for dead nodes once a second.
const GRACE: Duration = Duration::from_secs(3);

/// Sessions at a time whose calls are left to other gateways. The calls of further sessions fail at
/// once.
const MAX_WAITING: usize = 4096;

/// A session is forgotten if this many sweeps for dead nodes have not found it: another gateway has
/// taken its calls.
const FORGET_AFTER_SWEEPS: u64 = 16;

/// Pairs of identities for which a warning is logged.
const MAX_WARNINGS: usize = 64;

#[derive(Default)]
pub(super) struct ForeignSessions {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Sweeps for dead nodes so far.
    sweeps: u64,
    waiting: HashMap<SessionId, Waiting>,
    /// Pairs of identities, of the session and of the endpoint, that were logged.
    warned: BTreeSet<(String, String)>,
}

struct Waiting {
    since: Instant,
    last_sweep: u64,
}

impl ForeignSessions {
    /// Call this before each sweep for dead nodes.
    pub(super) fn sweep_started(&self) {
        let mut state = self.state.lock();
        state.sweeps += 1;
        let oldest = state.sweeps.saturating_sub(FORGET_AFTER_SWEEPS);
        state.waiting.retain(|_, waiting| waiting.last_sweep >= oldest);
    }

    /// Decides what happens to the idempotent calls of a dead node in such a session. No endpoint
    /// of this gateway may run them. A gateway with the same identity has `GRACE` to take them.
    /// Then they fail.
    pub(super) fn successor(&self, session: SessionId, now: Instant) -> Successor {
        let mut state = self.state.lock();
        let last_sweep = state.sweeps;
        if !state.waiting.contains_key(&session) && state.waiting.len() >= MAX_WAITING {
            return Successor::None;
        }
        let waiting = state.waiting.entry(session).or_insert(Waiting { since: now, last_sweep });
        waiting.last_sweep = last_sweep;
        if now.duration_since(waiting.since) < GRACE {
            return Successor::Reaper;
        }
        state.waiting.remove(&session);
        Successor::None
    }

    /// Logs a warning, once for each pair of identities, that a client used a session of another
    /// endpoint here.
    pub(super) fn warn(&self, facts: &Facts, here: &Namespace) {
        let theirs = identity_of(&facts.principal);
        let pair = (theirs.to_owned(), here.identity().to_owned());
        let mut state = self.state.lock();
        if state.warned.len() >= MAX_WARNINGS || !state.warned.insert(pair) {
            return;
        }
        drop(state);
        tracing::warn!(
            path = here.path(),
            id = here.identity(),
            other_id = theirs,
            "a client used a session of an endpoint with another identity and got 404: the path or the server differs. If both \
             endpoints serve the same server, set `id` to the same value for both"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: u64) -> SessionId {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        SessionId::from_random(bytes)
    }

    #[test]
    fn calls_are_left_to_a_gateway_with_the_same_identity_and_fail_without_one() {
        let (foreign, start) = (ForeignSessions::default(), Instant::now());
        let sweep_after = |time: Duration| {
            foreign.sweep_started();
            foreign.successor(session(1), start + time)
        };
        assert_eq!(sweep_after(Duration::ZERO), Successor::Reaper);
        assert_eq!(sweep_after(GRACE - Duration::from_millis(1)), Successor::Reaper);
        assert_eq!(sweep_after(GRACE), Successor::None);
        assert_eq!(sweep_after(GRACE), Successor::Reaper, "the next dead node starts a new grace period");
        // However rarely this gateway sweeps, no call waits forever.
        assert_eq!(sweep_after(GRACE * 1000), Successor::None);
    }

    #[test]
    fn a_session_that_another_gateway_has_taken_is_forgotten() {
        let (foreign, start) = (ForeignSessions::default(), Instant::now());
        assert_eq!(foreign.successor(session(1), start), Successor::Reaper);
        for _ in 0..=FORGET_AFTER_SWEEPS {
            foreign.sweep_started();
        }
        assert_eq!(foreign.successor(session(1), start + GRACE), Successor::Reaper);
    }

    #[test]
    fn the_number_of_waiting_sessions_is_bounded() {
        let (foreign, start) = (ForeignSessions::default(), Instant::now());
        for number in 0..MAX_WAITING as u64 {
            assert_eq!(foreign.successor(session(number), start), Successor::Reaper);
        }
        assert_eq!(foreign.successor(session(MAX_WAITING as u64), start), Successor::None);
        assert_eq!(foreign.successor(session(0), start), Successor::Reaper);
    }
}
