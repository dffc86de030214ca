//! Sessions of endpoints that this gateway does not serve: other gateways have put them into the
//! same store.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_engine::{Facts, SessionId};
use steadfast_session::command::Heir;
use tokio::time::Instant;

use super::namespace::{Namespace, identity_of};

/// How long the idempotent calls of a dead gateway are left to gateways with the same identity.
/// Each of those looks for dead nodes every `sweep_interval`, a second unless set.
const GRACE: Duration = Duration::from_secs(3);

/// Sessions that wait for a gateway of their own at a time. The calls of one more fail at once.
const MAX_WAITING: usize = 4096;

/// Looks for dead nodes after which a session is forgotten that was not met in them: another
/// gateway has taken its calls.
const FORGET_AFTER_LOOKS: u64 = 16;

/// Identities that a warning is kept for.
const MAX_WARNED: usize = 64;

#[derive(Default)]
pub(super) struct Foreign {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How often this gateway has looked for dead nodes.
    looks: u64,
    waiting: HashMap<SessionId, Waiting>,
    /// Pairs of identities, of the session and of the endpoint, that were warned of.
    warned: BTreeSet<(String, String)>,
}

struct Waiting {
    since: Instant,
    last_look: u64,
}

impl Foreign {
    /// Call this before each look for dead nodes.
    pub(super) fn looks_for_dead_nodes(&self) {
        let mut state = self.state();
        state.looks += 1;
        let oldest = state.looks.saturating_sub(FORGET_AFTER_LOOKS);
        state.waiting.retain(|_, waiting| waiting.last_look >= oldest);
    }

    /// Decides what becomes of the idempotent calls that a dead node has left in such a session. No
    /// endpoint of this gateway may run them. A gateway with the same identity gets the time to
    /// take them; if none does, they fail.
    pub(super) fn heir(&self, session: SessionId, now: Instant) -> Heir {
        let mut state = self.state();
        let last_look = state.looks;
        if !state.waiting.contains_key(&session) && state.waiting.len() >= MAX_WAITING {
            return Heir::Nobody;
        }
        let waiting = state.waiting.entry(session).or_insert(Waiting { since: now, last_look });
        waiting.last_look = last_look;
        if now.duration_since(waiting.since) < GRACE {
            return Heir::Later;
        }
        state.waiting.remove(&session);
        Heir::Nobody
    }

    /// Warns, once for each pair of identities, that a client came to this endpoint with a session
    /// of another one.
    pub(super) fn warn_of(&self, facts: &Facts, here: &Namespace) {
        let theirs = identity_of(&facts.principal);
        let pair = (theirs.to_owned(), here.identity().to_owned());
        let mut state = self.state();
        if state.warned.len() >= MAX_WARNED || !state.warned.insert(pair) {
            return;
        }
        drop(state);
        tracing::warn!(
            path = here.path(),
            id = here.identity(),
            other_id = theirs,
            "a client came with a session of an endpoint with another identity, because the path or the server behind it \
             differs; the answer was 404. If both serve the same server, set `id` to the same value in both configurations"
        );
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn calls_wait_for_a_gateway_of_their_own_and_fail_when_none_comes() {
        let (foreign, start) = (Foreign::default(), Instant::now());
        let look_after = |time: Duration| {
            foreign.looks_for_dead_nodes();
            foreign.heir(session(1), start + time)
        };
        assert_eq!(look_after(Duration::ZERO), Heir::Later);
        assert_eq!(look_after(GRACE - Duration::from_millis(1)), Heir::Later);
        assert_eq!(look_after(GRACE), Heir::Nobody);
        assert_eq!(look_after(GRACE), Heir::Later, "the next dead node is another case");
        // However rarely this gateway looks, no call waits for ever.
        assert_eq!(look_after(GRACE * 1000), Heir::Nobody);
    }

    #[test]
    fn a_session_that_another_gateway_has_taken_is_forgotten() {
        let (foreign, start) = (Foreign::default(), Instant::now());
        assert_eq!(foreign.heir(session(1), start), Heir::Later);
        for _ in 0..=FORGET_AFTER_LOOKS {
            foreign.looks_for_dead_nodes();
        }
        assert_eq!(foreign.heir(session(1), start + GRACE), Heir::Later);
    }

    #[test]
    fn only_so_many_sessions_wait() {
        let (foreign, start) = (Foreign::default(), Instant::now());
        for number in 0..MAX_WAITING as u64 {
            assert_eq!(foreign.heir(session(number), start), Heir::Later);
        }
        assert_eq!(foreign.heir(session(MAX_WAITING as u64), start), Heir::Nobody);
        assert_eq!(foreign.heir(session(0), start), Heir::Later);
    }
}
