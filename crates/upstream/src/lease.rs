//! Who has the server's session in hand: one process at a time.
//!
//! Servers have one stream for what belongs to no call, and a program on standard input and output is a child of one
//! process. So an entry of session state names a node, and its version is the token: whatever that node puts into the
//! session in the server's name is taken only while the entry has that version. It changes when the lease goes to somebody
//! else, and at no other time. A node that was stopped, buried and woken up again finds itself fenced, and lets go.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_engine::{Bytes, Fence, NodeId, SessionHandle, StateError, Value};
use tokio::time::Instant;

use crate::link::{Lane, Link};

/// The entry of session state.
const KEY: &str = "steadfast/lease";

/// How long a process goes by what it knows of the lease of another. Longer than that it looks again.
const LOOK: Duration = Duration::from_secs(1);

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
        match self {
            Self::Unknown => None,
            Self::Ours(version) | Self::Theirs(_, version) => Some(Fence { key: KEY.into(), version }),
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

    /// What is known is out of date. Gives what that was.
    pub(crate) fn forget(&self) -> Held {
        std::mem::take(&mut self.state().held)
    }

    /// It is ours no more, if it still is under this version. Gives whether it was.
    pub(crate) fn lose(&self, version: u64) -> bool {
        let mut state = self.state();
        let was_ours = state.held == Held::Ours(version);
        if was_ours {
            *state = State { held: Held::Unknown, looked: Some(Instant::now()) };
        }
        was_ours
    }

    /// Gives what was known before.
    fn set(&self, held: Held) -> Held {
        let mut state = self.state();
        state.looked = Some(Instant::now());
        std::mem::replace(&mut state.held, held)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        self.hold(session, held);
        held
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
                Ok(version) => return Ok(version.map_or(Held::Unknown, Held::Ours)),
                // Others claim it as well; the first to write has it.
                Err(StateError::Conflict { current }) => entry = current,
                Err(error) => return Err(error),
            }
        }
        Ok(Held::Unknown)
    }

    fn hold(&self, session: &SessionHandle, held: Held) {
        let before = self.lease.set(held);
        let is_ours = matches!(held, Held::Ours(_));
        if self.shared.servers.are_programs() && is_ours != matches!(before, Held::Ours(_)) {
            // Calls that come to other nodes have to be run where the program is.
            session.expect_errands(is_ours);
        }
    }

    /// Gives the lease up, so that others need not wait until this process is gone. What runs here goes on.
    pub(crate) async fn give_up(&self) {
        let (Held::Ours(version), Some(session)) = (self.lease.held(), self.session()) else { return };
        // Whoever has given a call to this node before that has done so for certain, and the next one does not.
        match write(&session, Some(version), None).await {
            Ok(_) | Err(StateError::Conflict { .. }) => drop(self.lease.set(Held::Unknown)),
            Err(error) => {
                tracing::warn!(session = self.short(), %error, "a lease could not be given up");
            }
        }
    }

    /// Somebody else has the lease. What this process has of the server's is out of date.
    pub(crate) async fn lost_the_lease(&self) {
        tracing::warn!(session = self.short(), "another process has taken the server's session over");
        match self.session() {
            Some(session) => self.hold(&session, Held::Unknown),
            None => drop(self.lease.set(Held::Unknown)),
        }
        self.lanes.iter().filter_map(Lane::seat).for_each(|seat| seat.client.release_standalone());
        if self.shared.servers.are_programs() {
            self.leave_seats().await;
        }
    }

    /// Finds out whether the lease is still ours, after a time in which this process did nothing.
    pub(crate) async fn verify_the_lease(&self) {
        let (Held::Ours(version), Some(session)) = (self.lease.held(), self.session()) else { return };
        match session.get(KEY).await {
            Ok(entry) if entry.as_ref().map(|value| value.version) == Some(version) => {}
            Ok(_) => self.lost_the_lease().await,
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
