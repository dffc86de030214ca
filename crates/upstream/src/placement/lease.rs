//! The lease of a session. It ensures that one node at a time listens to an upstream session or
//! runs a stdio child process.
//!
//! The lease is an entry of the session state that names its holder. The entry's version is the
//! fencing token: a command on behalf of the upstream server is accepted only while the entry has
//! that version. The version changes only when the lease changes hands. A node that was stopped and
//! then reaped finds its token outdated and stops.

use std::sync::{Arc, Weak};
use std::time::Duration;

use steadfast_engine::{Bytes, Fence, NodeId, SessionHandle, StateEntry, StateError};
use steadfast_wire::Mutex;
use tokio::time::Instant;

use crate::placement::upstream_session::UpstreamSession;
use crate::session::client_session::ClientSession;

/// The entry of the session state that names the holder.
const KEY: &str = "~lease";

/// How long a node trusts its cached copy of another node's lease.
const LEASE_CACHE_TTL: Duration = Duration::from_secs(1);

/// How often the standalone stream is opened again after a takeover, and by which factor the delay
/// grows. It is unknown when a stopped holder runs again and loses its stream.
const MAX_REOPENS: u32 = 3;
const REOPEN_BACKOFF_FACTOR: u32 = 4;

/// How often a claim is tried when other nodes claim the lease as well.
const MAX_CLAIM_RETRIES: usize = 8;

/// This node's knowledge of the lease of a session.
#[derive(Debug, Default)]
pub(crate) struct Lease(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    holder: Holder,
    checked_at: Option<Instant>,
}

/// From which holders a node takes the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClaimPolicy {
    /// Only from a holder that is dead.
    IfHolderDead,
    /// From any holder.
    Always,
}

/// Which node holds the lease, and the version of the entry that says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Holder {
    #[default]
    Unknown,
    ThisNode(u64),
    OtherNode(NodeId, u64),
}

impl Holder {
    /// Returns the fence for commands that are valid only while the lease does not change hands.
    pub(crate) fn fence(self) -> Option<Fence> {
        self.version().map(fence)
    }

    fn version(self) -> Option<u64> {
        match self {
            Self::Unknown => None,
            Self::ThisNode(version) | Self::OtherNode(_, version) => Some(version),
        }
    }
}

impl Lease {
    pub(crate) fn holder(&self) -> Holder {
        self.0.lock().holder
    }

    pub(crate) fn is_held_here(&self) -> bool {
        matches!(self.holder(), Holder::ThisNode(_))
    }

    /// Returns the holder, unless the cached copy is too old.
    pub(crate) fn cached(&self) -> Option<Holder> {
        let state = self.0.lock();
        let is_fresh = state.checked_at.is_some_and(|checked_at| checked_at.elapsed() < LEASE_CACHE_TTL);
        match state.holder {
            Holder::Unknown => None,
            holder @ Holder::ThisNode(_) => Some(holder),
            holder @ Holder::OtherNode(..) => is_fresh.then_some(holder),
        }
    }

    /// Returns true if the holder should be checked now. The next check is due after
    /// `LEASE_CACHE_TTL`.
    fn start_check_if_due(&self) -> bool {
        let mut state = self.0.lock();
        let is_due = state.checked_at.is_none_or(|checked_at| checked_at.elapsed() >= LEASE_CACHE_TTL);
        if is_due {
            state.checked_at = Some(Instant::now());
        }
        is_due && !matches!(state.holder, Holder::ThisNode(_))
    }

    /// Handles the fact that the entry no longer has this version. If this node held the lease
    /// under this version, calls `lost` before any task can claim the lease again, and returns
    /// true.
    pub(crate) fn lose(&self, version: u64, lost: impl FnOnce()) -> bool {
        let mut state = self.0.lock();
        let was_held_here = state.holder == Holder::ThisNode(version);
        if was_held_here || matches!(state.holder, Holder::OtherNode(_, theirs) if theirs == version) {
            *state = State { holder: Holder::Unknown, checked_at: Some(Instant::now()) };
        }
        if was_held_here {
            lost();
        }
        was_held_here
    }

    /// Sets the holder. Keeps a newer version, because checks may finish in another order than they
    /// began. If the holder could not be determined, keeps the lease of this node. If this node
    /// gains or loses the lease, calls `changed` with whether it holds the lease now. Returns the
    /// holder.
    fn update(&self, holder: Holder, changed: impl FnOnce(bool)) -> Holder {
        let mut state = self.0.lock();
        state.checked_at = Some(Instant::now());
        let was_held_here = matches!(state.holder, Holder::ThisNode(_));
        let is_outdated = match holder {
            Holder::Unknown => was_held_here,
            _ => holder.version() < state.holder.version(),
        };
        if is_outdated {
            return state.holder;
        }
        state.holder = holder;
        let is_held_here = matches!(holder, Holder::ThisNode(_));
        if was_held_here != is_held_here {
            changed(is_held_here);
        }
        holder
    }
}

/// Returns a fence under which no command is accepted: no entry ever has this version.
pub(crate) fn impossible_fence() -> Fence {
    fence(0)
}

/// Returns true if the fence is a version of the lease.
pub(crate) fn is_lease_fence(fence: &Fence) -> bool {
    &*fence.key == KEY
}

fn fence(version: u64) -> Fence {
    Fence { key: KEY.into(), version }
}

fn parse_holder(value: &StateEntry) -> Option<NodeId> {
    std::str::from_utf8(&value.bytes).ok()?.parse().ok().map(NodeId)
}

/// Stores a node as the holder, or removes the holder.
async fn write(
    session: &SessionHandle,
    expected: Option<u64>,
    node: Option<NodeId>,
) -> Result<Option<u64>, StateError> {
    session.put(KEY, expected, node.map(|node| Bytes::from(node.0.to_string()))).await
}

impl ClientSession {
    /// Takes the lease, unless a node that is alive holds it. Returns the holder.
    pub(crate) async fn claim(&self, session: &SessionHandle) -> Holder {
        self.claim_with(session, ClaimPolicy::IfHolderDead).await
    }

    /// Takes the lease from any holder. Used after opening a new upstream session: the previous
    /// holder has lost its upstream session.
    pub(crate) async fn seize(&self, session: &SessionHandle) -> Holder {
        self.claim_with(session, ClaimPolicy::Always).await
    }

    async fn claim_with(&self, session: &SessionHandle, policy: ClaimPolicy) -> Holder {
        if self.lease.is_held_here() || self.shared.is_draining() {
            return self.lease.holder();
        }
        let claimed = match session.get(KEY).await {
            Ok(entry) => self.claim_from(session, entry, policy).await,
            Err(error) => Err(error),
        };
        let holder = claimed.unwrap_or_else(|error| {
            // If the store cannot tell, no node takes the lease.
            tracing::debug!(session = self.short(), %error, "could not determine the holder of the lease");
            Holder::Unknown
        });
        self.lease.update(holder, |is_held_here| self.expect_forwarded_calls(session, is_held_here))
    }

    async fn claim_from(
        &self,
        session: &SessionHandle,
        mut entry: Option<StateEntry>,
        policy: ClaimPolicy,
    ) -> Result<Holder, StateError> {
        let this_node = session.engine().node();
        for _ in 0..MAX_CLAIM_RETRIES {
            let version = entry.as_ref().map(|value| value.version);
            match entry.as_ref().and_then(parse_holder).zip(version) {
                // Another call of this node was first. A new version would invalidate its token.
                Some((node, version)) if node == this_node => return Ok(Holder::ThisNode(version)),
                Some((node, version))
                    if policy == ClaimPolicy::IfHolderDead
                        && session.engine().store().is_alive(node).await? =>
                {
                    return Ok(Holder::OtherNode(node, version));
                }
                _ => {}
            }
            match write(session, version, Some(this_node)).await {
                Ok(version) => {
                    if policy == ClaimPolicy::IfHolderDead && entry.as_ref().and_then(parse_holder).is_some()
                    {
                        version.iter().for_each(|version| self.reopen_standalone_later(*version));
                    }
                    return Ok(version.map_or(Holder::Unknown, Holder::ThisNode));
                }
                // Another node has claimed the lease at the same time. The first write wins.
                Err(StateError::Conflict { current }) => entry = current,
                Err(error) => return Err(error),
            }
        }
        Ok(Holder::Unknown)
    }

    /// Opens the standalone stream again after a takeover. The previous holder counted as dead, but
    /// may only have been stopped, and then still has the stream.
    fn reopen_standalone_later(&self, version: u64) {
        if !self.shared.config.standalone || self.shared.instances.is_stdio() {
            return;
        }
        let (client_session, mut delay) =
            (Weak::clone(&self.this), self.shared.config.standalone_reopen_delay);
        tokio::spawn(async move {
            for _ in 0..MAX_REOPENS {
                tokio::time::sleep(delay).await;
                let Some(client_session) = client_session.upgrade() else { return };
                if client_session.lease.holder() != Holder::ThisNode(version) {
                    return;
                }
                client_session
                    .upstream_sessions()
                    .for_each(|session| session.client.reopen_standalone_stream());
                delay = delay.saturating_mul(REOPEN_BACKOFF_FACTOR);
            }
        });
    }

    /// Tells the engine whether other nodes may forward calls of the session to this node.
    pub(crate) fn expect_forwarded_calls(&self, session: &SessionHandle, is_held_here: bool) {
        if is_held_here && self.requires_single_node() {
            session.expect_forwarded_calls();
        } else if self.shared.requires_single_node() || self.shared.adapts_concurrency() {
            session.stop_expecting_forwarded_calls();
        }
    }

    /// Returns the fence under which this node starts forwarded calls, if all calls must run on one
    /// node. Otherwise no fence is needed. During a drain a child process still runs the calls that
    /// it has.
    pub(crate) fn fence_for_calls(&self) -> Option<Fence> {
        let keeps_calls = self.shared.instances.is_stdio() && self.shared.is_draining();
        if !self.requires_single_node() || keeps_calls {
            return None;
        }
        match self.lease.holder() {
            holder @ Holder::ThisNode(_) => holder.fence(),
            Holder::Unknown | Holder::OtherNode(..) => Some(impossible_fence()),
        }
    }

    /// Releases the lease during a drain, so that other nodes need not wait until this node is
    /// reaped. Calls that run here continue. Returns false if a call has begun but is not sent yet:
    /// then an HTTP server with a concurrency limit could get too many calls, and the lease is
    /// kept.
    pub(crate) async fn release_lease(&self) -> bool {
        let holder = self.lease.holder();
        let (Holder::ThisNode(version), Some(session)) = (holder, self.session()) else { return true };
        // Each node that has forwarded a call has done so before this write. Later forwards are
        // refused.
        let released = if self.shared.instances.is_stdio() {
            write(&session, Some(version), None).await.map(|_| true)
        } else {
            // The next holder opens the standalone streams.
            self.upstream_sessions().for_each(|session| session.client.close_standalone_stream());
            session.release_lease(fence(version)).await
        };
        match released {
            Ok(true) | Err(StateError::Conflict { .. }) => drop(self.lease.lose(version, || {})),
            Ok(false) => {
                self.upstream_sessions().for_each(|session| session.client.open_standalone_stream());
                return false;
            }
            Err(error) => {
                tracing::warn!(session = self.short(), %error, "could not release a lease");
            }
        }
        true
    }

    /// Handles the fact that another node has taken the lease that this node held under this
    /// version. If this node has claimed the lease again meanwhile, does nothing. Returns the
    /// upstream sessions that the caller must close.
    #[must_use = "child processes that are not closed keep running"]
    pub(crate) fn forget_lease(&self, version: u64) -> Vec<Arc<UpstreamSession>> {
        let (session, mut abandoned) = (self.session(), Vec::new());
        self.lease.lose(version, || {
            tracing::warn!(session = self.short(), "another node has taken the lease of a session");
            session.iter().for_each(|session| self.expect_forwarded_calls(session, false));
            self.upstream_sessions().for_each(|session| session.client.close_standalone_stream());
            if self.shared.instances.is_stdio() {
                abandoned = self.take_upstream_sessions();
            }
        });
        abandoned
    }

    pub(crate) async fn handle_lost_lease(&self, version: u64) {
        let abandoned = self.forget_lease(version);
        self.close_upstream_sessions(abandoned).await;
    }

    /// Checks after a pause of this node whether it still holds the lease.
    pub(crate) async fn verify_lease(&self) {
        let (Holder::ThisNode(version), Some(session)) = (self.lease.holder(), self.session()) else {
            return;
        };
        match session.get(KEY).await {
            Ok(entry) if entry.as_ref().map(|value| value.version) == Some(version) => {}
            Ok(_) => self.handle_lost_lease(version).await,
            // The engine refuses the next command if the lease was lost.
            Err(error) => tracing::debug!(session = self.short(), %error, "could not check a lease"),
        }
    }

    /// Checks the lease in the background while calls arrive, at most once per `LEASE_CACHE_TTL`,
    /// and takes it over if its holder is dead.
    pub(crate) fn check_lease_in_background(self: &Arc<Self>) {
        if !self.shared.config.standalone || !self.lease.start_check_if_due() {
            return;
        }
        let client_session = Arc::clone(self);
        tokio::spawn(async move {
            if let Some(session) = client_session.session() {
                client_session.take_over_lease(&session).await;
            }
        });
    }

    /// Takes the lease if its holder is dead, resumes the stored upstream sessions and holds their
    /// standalone streams.
    pub(crate) async fn take_over_lease(&self, session: &SessionHandle) {
        if let Holder::ThisNode(_) = self.claim(session).await {
            self.resume_stored_sessions().await;
            self.upstream_sessions().for_each(|session| session.client.open_standalone_stream());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A late report of a lost version must not affect a newer lease.
    #[test]
    fn a_late_report_does_not_affect_a_newer_lease() {
        let lease = Lease::default();
        let changes = Mutex::new(Vec::new());
        let update = |holder| {
            lease.update(holder, |is_held_here| changes.lock().push(is_held_here));
        };
        let lose = |version| lease.lose(version, || changes.lock().push(false));
        update(Holder::ThisNode(1));
        assert!(lose(1) && !lose(1), "it is lost once");
        update(Holder::ThisNode(3));
        assert!(!lose(1) && lease.holder() == Holder::ThisNode(3));
        update(Holder::ThisNode(3));
        assert!(lose(3));
        assert_eq!(*changes.lock(), [true, false, true, false], "each change is reported once");
        update(Holder::OtherNode(NodeId(7), 5));
        assert!(!lose(4) && lease.holder() == Holder::OtherNode(NodeId(7), 5));
        assert!(!lose(5) && lease.holder() == Holder::Unknown, "the other node's lease has another version");
    }

    /// Two checks run at the same time, and the one with the older version finishes last.
    #[test]
    fn an_older_version_does_not_replace_a_newer_one() {
        let (this_node, other_node) = (Holder::ThisNode, |version| Holder::OtherNode(NodeId(7), version));
        for (before, found, after) in [
            (this_node(2), other_node(1), this_node(2)),
            (this_node(2), Holder::Unknown, this_node(2)),
            (this_node(2), other_node(3), other_node(3)),
            (other_node(2), this_node(1), other_node(2)),
            (other_node(2), this_node(3), this_node(3)),
            (other_node(2), Holder::Unknown, Holder::Unknown),
            (Holder::Unknown, other_node(1), other_node(1)),
        ] {
            let (lease, mut change) = (Lease::default(), None);
            lease.update(before, |_| {});
            let known = lease.update(found, |is_held_here| change = Some(is_held_here));
            assert_eq!((known, lease.holder()), (after, after), "{before:?}, then {found:?}");
            let is_held_here = |holder| matches!(holder, Holder::ThisNode(_));
            let has_changed = is_held_here(before) != is_held_here(after);
            assert_eq!(change, has_changed.then_some(is_held_here(after)), "{before:?}, then {found:?}");
        }
    }
}
