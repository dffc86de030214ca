//! Who has the server's session in hand: one process at a time.
//!
//! Servers have one stream for what belongs to no call, and a program on standard input and output is a child of one
//! process. So an entry of session state names a node, and its version is the token: whatever that node puts into the
//! session in the server's name is taken only while the entry has that version. It changes when the lease goes to somebody
//! else, and at no other time. A node that was stopped, buried and woken up again finds itself fenced, and lets go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use steadfast_engine::{Bytes, Fence, NodeId, SessionHandle, StateError, Value};
use tokio::time::Instant;

use crate::link::{Lane, Link};
use crate::seat::Seat;

/// The entry of session state.
const KEY: &str = "~lease";

/// How long a process goes by what it knows of the lease of another. Longer than that it looks again.
const LOOK: Duration = Duration::from_secs(1);

/// How often the server's own stream is opened again after a takeover, and by how much longer that waits each time: nobody knows
/// when somebody who was stopped wakes up.
const RELISTENS: u32 = 3;
const RELISTEN_FACTOR: u32 = 4;

/// How often a claim is tried when others claim as well.
const ATTEMPTS: usize = 8;

/// What this process knows of the lease of a session.
#[derive(Debug, Default)]
pub(crate) struct Lease(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    held: Held,
    looked: Option<Instant>,
}

/// Who holds it, and the version of the entry that says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Held {
    #[default]
    Unknown,
    Ours(u64),
    Theirs(NodeId, u64),
}

impl Held {
    /// What a command is sent under that counts on it.
    pub(crate) fn fence(self) -> Option<Fence> {
        self.version().map(fence)
    }

    fn version(self) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::Ours(version) | Self::Theirs(_, version) => Some(version),
        }
    }
}

impl Lease {
    pub(crate) fn held(&self) -> Held {
        self.state().held
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.held(), Held::Ours(_))
    }

    /// What is known, unless that was too long ago.
    pub(crate) fn fresh(&self) -> Option<Held> {
        let state = self.state();
        let is_fresh = state.looked.is_some_and(|looked| looked.elapsed() < LOOK);
        match state.held {
            Held::Unknown => None,
            held @ Held::Ours(_) => Some(held),
            held @ Held::Theirs(..) => is_fresh.then_some(held),
        }
    }

    /// Whether it is time to look who has it; if it is, it is not for a while.
    fn is_due(&self) -> bool {
        let mut state = self.state();
        let is_due = state.looked.is_none_or(|looked| looked.elapsed() >= LOOK);
        if is_due {
            state.looked = Some(Instant::now());
        }
        is_due && !matches!(state.held, Held::Ours(_))
    }

    /// It has another version by now than this. Gives whether it was ours under it: then `lost` sees to what hangs on that,
    /// before anybody can have it again.
    pub(crate) fn lose(&self, version: u64, lost: impl FnOnce()) -> bool {
        let mut state = self.state();
        let was_ours = state.held == Held::Ours(version);
        if was_ours || matches!(state.held, Held::Theirs(_, theirs) if theirs == version) {
            *state = State { held: Held::Unknown, looked: Some(Instant::now()) };
        }
        if was_ours {
            lost();
        }
        was_ours
    }

    /// Somebody has found out who holds it. What is newer stays: looks may end in another order than they began in. Whoever could
    /// not find out does not know better, either. `differs` hears whether it is ours now, if it was not before or was. Gives what
    /// is known.
    fn set(&self, held: Held, differs: impl FnOnce(bool)) -> Held {
        let mut state = self.state();
        state.looked = Some(Instant::now());
        let was_ours = matches!(state.held, Held::Ours(_));
        let is_outdated = match held {
            Held::Unknown => was_ours,
            _ => held.version() < state.held.version(),
        };
        if is_outdated {
            return state.held;
        }
        state.held = held;
        let is_ours = matches!(held, Held::Ours(_));
        if was_ours != is_ours {
            differs(is_ours);
        }
        held
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What nothing is begun under: no entry ever has this version.
pub(crate) fn of_nobody() -> Fence {
    fence(0)
}

fn fence(version: u64) -> Fence {
    Fence { key: KEY.into(), version }
}

fn holder(value: &Value) -> Option<NodeId> {
    std::str::from_utf8(&value.bytes).ok()?.parse().ok().map(NodeId)
}

/// Writes a node down as the holder.
async fn write(
    session: &SessionHandle,
    expected: Option<u64>,
    node: Option<NodeId>,
) -> Result<Option<u64>, StateError> {
    session.put(KEY, expected, node.map(|node| Bytes::from(node.0.to_string()))).await
}

impl Link {
    /// Takes the lease, unless a node that is alive has it. Gives who has it then.
    pub(crate) async fn claim(&self, session: &SessionHandle) -> Held {
        self.claim_if(session, true).await
    }

    /// Takes it from whoever has it: that one has lost what it is about.
    pub(crate) async fn seize(&self, session: &SessionHandle) -> Held {
        self.claim_if(session, false).await
    }

    async fn claim_if(&self, session: &SessionHandle, asks: bool) -> Held {
        if self.lease.is_ours() || self.shared.is_leaving() {
            return self.lease.held();
        }
        let claimed = match session.get(KEY).await {
            Ok(entry) => self.claim_from(session, entry, asks).await,
            Err(error) => Err(error),
        };
        let held = claimed.unwrap_or_else(|error| {
            // If the store does not know, nobody takes anything.
            tracing::debug!(session = self.short(), %error, "nobody knows who has the server's session in hand");
            Held::Unknown
        });
        self.lease.set(held, |is_ours| self.expect_errands(session, is_ours))
    }

    async fn claim_from(
        &self,
        session: &SessionHandle,
        mut entry: Option<Value>,
        asks: bool,
    ) -> Result<Held, StateError> {
        let me = session.engine().node();
        for _ in 0..ATTEMPTS {
            let version = entry.as_ref().map(|value| value.version);
            match entry.as_ref().and_then(holder).zip(version) {
                // Another call of this process was first. A new version would take the lease away from it.
                Some((node, version)) if node == me => return Ok(Held::Ours(version)),
                Some((node, version)) if asks && session.engine().store().is_alive(node).await? => {
                    return Ok(Held::Theirs(node, version));
                }
                _ => {}
            }
            match write(session, version, Some(me)).await {
                Ok(version) => {
                    if asks && entry.as_ref().and_then(holder).is_some() {
                        version.iter().for_each(|version| self.relisten(*version));
                    }
                    return Ok(version.map_or(Held::Unknown, Held::Ours));
                }
                // Others claim it as well; the first to write has it.
                Err(StateError::Conflict { current }) => entry = current,
                Err(error) => return Err(error),
            }
        }
        Ok(Held::Unknown)
    }

    /// Somebody who seemed to be gone had the lease before, and may have the server's own stream still.
    fn relisten(&self, version: u64) {
        if !self.shared.config.standalone || self.shared.servers.are_programs() {
            return;
        }
        let (link, mut pause) = (Weak::clone(&self.me), self.shared.config.relisten);
        tokio::spawn(async move {
            for _ in 0..RELISTENS {
                tokio::time::sleep(pause).await;
                let Some(link) = link.upgrade() else { return };
                if link.lease.held() != Held::Ours(version) {
                    return;
                }
                link.lanes.iter().filter_map(Lane::seat).for_each(|seat| seat.client.reopen_standalone());
                pause = pause.saturating_mul(RELISTEN_FACTOR);
            }
        });
    }

    /// Calls that come to other nodes may have to be run where the lease is.
    pub(crate) fn expect_errands(&self, session: &SessionHandle, is_ours: bool) {
        if self.shared.has_one_runner() {
            session.expect_errands(is_ours);
        }
    }

    /// What calls begin under that others have given to this process, if one process has to run all: nobody else runs any then. A
    /// program that is left runs what it has.
    pub(crate) fn fence_of_calls(&self) -> Option<Fence> {
        let is_left = self.shared.servers.are_programs() && self.shared.is_leaving();
        if !self.shared.has_one_runner() || is_left {
            return None;
        }
        match self.lease.held() {
            held @ Held::Ours(_) => held.fence(),
            Held::Unknown | Held::Theirs(..) => Some(of_nobody()),
        }
    }

    /// Gives the lease up, so that others need not wait until this process is gone. What runs here goes on: programs do; other servers
    /// have no call of the session by then, and none may be on its way to them either. Gives `false` if one is.
    pub(crate) async fn give_up(&self) -> bool {
        let held = self.lease.held();
        let (Held::Ours(version), Some(session)) = (held, self.session()) else { return true };
        // Whoever has given a call to this node before that has done so for certain, and the next one does not.
        let given_up = if self.shared.servers.are_programs() {
            write(&session, Some(version), None).await.map(|_| true)
        } else {
            // Whoever has the lease hears what comes.
            self.seats().for_each(|seat| seat.client.release_standalone());
            session.release(fence(version)).await
        };
        match given_up {
            Ok(true) | Err(StateError::Conflict { .. }) => drop(self.lease.lose(version, || {})),
            Ok(false) => {
                self.seats().for_each(|seat| seat.client.hold_standalone());
                return false;
            }
            Err(error) => {
                tracing::warn!(session = self.short(), %error, "a lease could not be given up");
            }
        }
        true
    }

    fn seats(&self) -> impl Iterator<Item = Arc<Seat>> {
        self.lanes.iter().filter_map(Lane::seat)
    }

    /// Somebody else has the lease that was ours under this version. What this process had of the server's under it is out of
    /// date; if the lease is ours again, what it has by now is not. Gives what is to be closed.
    #[must_use = "programs that are left run on"]
    pub(crate) fn lose_the_lease(&self, version: u64) -> Vec<Arc<Seat>> {
        let (session, mut left) = (self.session(), Vec::new());
        self.lease.lose(version, || {
            tracing::warn!(session = self.short(), "another process has taken the server's session over");
            session.iter().for_each(|session| self.expect_errands(session, false));
            self.lanes.iter().filter_map(Lane::seat).for_each(|seat| seat.client.release_standalone());
            if self.shared.servers.are_programs() {
                left = self.take_seats();
            }
        });
        left
    }

    pub(crate) async fn lost_the_lease(&self, version: u64) {
        let left = self.lose_the_lease(version);
        self.close_seats(left).await;
    }

    /// Finds out whether the lease is still ours, after a time in which this process did nothing.
    pub(crate) async fn verify_the_lease(&self) {
        let (Held::Ours(version), Some(session)) = (self.lease.held(), self.session()) else { return };
        match session.get(KEY).await {
            Ok(entry) if entry.as_ref().map(|value| value.version) == Some(version) => {}
            Ok(_) => self.lost_the_lease(version).await,
            // The store will say when something is put there.
            Err(error) => tracing::debug!(session = self.short(), %error, "a lease cannot be looked at"),
        }
    }

    /// Looks now and then whether somebody still listens, while calls come.
    pub(crate) fn mind_the_lease(self: &Arc<Self>) {
        if !self.shared.config.standalone || !self.lease.is_due() {
            return;
        }
        let link = Arc::clone(self);
        tokio::spawn(async move {
            if let Some(session) = link.session() {
                link.take_over(&session).await;
            }
        });
    }

    /// Takes the lease if nobody who is alive has it, and does what its holder does.
    pub(crate) async fn take_over(&self, session: &SessionHandle) {
        if let Held::Ours(_) = self.claim(session).await {
            self.resume_all().await;
            self.lanes.iter().filter_map(Lane::seat).for_each(|seat| seat.client.hold_standalone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who was fenced may say so late, when the lease is ours again.
    #[test]
    fn a_loss_counts_for_the_version_that_was_lost() {
        let lease = Lease::default();
        let heard = Mutex::new(Vec::new());
        let set = |held| {
            lease.set(held, |is_ours| heard.lock().unwrap().push(is_ours));
        };
        let lose = |version| lease.lose(version, || heard.lock().unwrap().push(false));
        set(Held::Ours(1));
        assert!(lose(1) && !lose(1), "it is lost once");
        set(Held::Ours(3));
        assert!(!lose(1) && lease.held() == Held::Ours(3));
        set(Held::Ours(3));
        assert!(lose(3));
        assert_eq!(*heard.lock().unwrap(), [true, false, true, false], "each change is heard of once");
        set(Held::Theirs(NodeId(7), 5));
        assert!(!lose(4) && lease.held() == Held::Theirs(NodeId(7), 5));
        assert!(!lose(5) && lease.held() == Held::Unknown, "theirs has another version by now");
    }

    /// Two look at the same time, and whoever saw the older one says so last.
    #[test]
    fn what_is_known_is_replaced_by_what_is_newer() {
        let (ours, theirs) = (Held::Ours, |version| Held::Theirs(NodeId(7), version));
        for (before, said, after) in [
            (ours(2), theirs(1), ours(2)),
            (ours(2), Held::Unknown, ours(2)),
            (ours(2), theirs(3), theirs(3)),
            (theirs(2), ours(1), theirs(2)),
            (theirs(2), ours(3), ours(3)),
            (theirs(2), Held::Unknown, Held::Unknown),
            (Held::Unknown, theirs(1), theirs(1)),
        ] {
            let (lease, mut heard) = (Lease::default(), None);
            lease.set(before, |_| {});
            let known = lease.set(said, |is_ours| heard = Some(is_ours));
            assert_eq!((known, lease.held()), (after, after), "{before:?}, then {said:?}");
            let is_ours = |held| matches!(held, Held::Ours(_));
            let differs = is_ours(before) != is_ours(after);
            assert_eq!(heard, differs.then_some(is_ours(after)), "{before:?}, then {said:?}");
        }
    }
}
