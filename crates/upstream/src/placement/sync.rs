//! Keeps the lanes of this node in line with the stored placement. All nodes that serve a session
//! must use the same upstream session. If two nodes replace a lost upstream session at the same
//! time, the first to store its replacement wins, and the other node uses that one.

use steadfast_client::{LostSessionAction, OpenSession};
use steadfast_engine::SessionHandle;

use crate::placement::lease::Holder;
use crate::placement::server_instance::ServerInstance;
use crate::placement::stored_placement::{Placement, StoredSession};
use crate::placement::upstream_session::UpstreamSession;
use crate::session::client_session::ClientSession;

/// How often the placement is read again because this node has written a newer version meanwhile.
const MAX_READ_RETRIES: usize = 3;

/// Which lanes get the stored upstream session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneFilter {
    /// Lanes with an upstream session, if the version is new.
    Open,
    /// As `Open`, and lanes without an upstream session, even if the version is known.
    All,
    /// As `Open`, and this lane in any case.
    AndLane(usize),
    /// As `Open`, without this lane, which is about to get a new upstream session.
    ExceptLane(usize),
}

impl LaneFilter {
    fn includes(self, lane: usize, is_open: bool, is_new_version: bool) -> bool {
        match self {
            Self::AndLane(one) if one == lane => true,
            Self::ExceptLane(one) if one == lane => false,
            Self::All => is_new_version || !is_open,
            _ => is_new_version && is_open,
        }
    }
}

impl UpstreamSession {
    /// Returns the form in which the upstream session is stored.
    pub(crate) fn to_stored(&self) -> Option<StoredSession> {
        Some(StoredSession::new(&self.instance.name, &self.client.session()?))
    }
}

impl ClientSession {
    /// Returns the stored upstream session of a lane, if it differs from the lost one and its
    /// server instance is known here.
    pub(crate) fn stored_replacement(
        &self,
        placement: &Placement,
        lane: usize,
        lost: Option<&StoredSession>,
    ) -> Option<(ServerInstance, OpenSession)> {
        let (name, open) = placement.session(lane)?;
        let instance = self.shared.instances.find(&self.short(), name, &open)?;
        // The replica may have another name by now.
        let is_same_instance = |lost: &StoredSession| lost.instance == instance.name || lost.instance == name;
        let is_lost = lost.is_some_and(|lost| lost.id == open.id && is_same_instance(lost));
        (!is_lost).then_some((instance, open))
    }

    /// Decides what to do after an upstream session was lost at `instance` and another node has
    /// stored a replacement.
    pub(crate) fn use_stored_session(
        &self,
        lane: usize,
        instance: &str,
        placement: &Placement,
        version: u64,
    ) -> LostSessionAction {
        match self.stored_replacement(placement, lane, None) {
            Some((found, open)) if found.name == instance => {
                self.drop_outdated_lease(version);
                LostSessionAction::Adopt(open)
            }
            _ => {
                self.apply_placement(placement, version, LaneFilter::AndLane(lane));
                LostSessionAction::Moved
            }
        }
    }

    /// Replaces the upstream sessions of lanes by the stored ones. Calls that run in an old
    /// upstream session stay there. Returns false if a newer version has been applied already.
    ///
    /// The old upstream session is not closed: other nodes may have calls there. The server expires
    /// it.
    pub(crate) fn apply_placement(&self, placement: &Placement, version: u64, filter: LaneFilter) -> bool {
        let Some(guard) = self.known_placement.advance(version) else { return false };
        for (no, lane) in self.lanes.iter().enumerate() {
            let upstream_session = lane.upstream_session();
            // A child process belongs to this node while it holds the lease.
            let may_change = upstream_session.is_none() || !self.shared.instances.is_stdio();
            if !may_change || !filter.includes(no, upstream_session.is_some(), guard.is_new_version) {
                continue;
            }
            let current = upstream_session.as_ref().and_then(|session| session.to_stored());
            let Some((instance, open)) = self.stored_replacement(placement, no, current.as_ref()) else {
                continue;
            };
            if current.is_some() {
                let (session, to) = (self.short(), &instance.name);
                tracing::info!(session, to, "another node has moved a session");
                self.invalidate_tools();
                self.drop_outdated_lease(version);
            }
            match self.resume(no, instance, open) {
                Ok(upstream_session) => drop(self.set_upstream_session(no, upstream_session)),
                Err(error) => {
                    tracing::warn!(session = self.short(), %error, "stored upstream session is unusable; opening a new one");
                }
            }
        }
        true
    }

    /// Reads the stored placement and applies it. Returns the placement.
    pub(crate) async fn sync_placement(&self, session: &SessionHandle, filter: LaneFilter) -> Placement {
        let mut placement = Placement::default();
        for _ in 0..MAX_READ_RETRIES {
            // Without the stored placement a failover opens a new upstream session instead of
            // failing.
            let Ok(Some((found, version))) = Placement::load(session).await else { break };
            let is_newest = self.apply_placement(&found, version, filter);
            placement = found;
            if is_newest {
                break;
            }
        }
        placement
    }

    /// Drops the lease, because the node that opens an upstream session takes the lease. If that
    /// node did not take it, this node claims it again at the next check. A lease that is newer
    /// than the stored placement was claimed after it, and is kept. All entries of a session share
    /// one version counter.
    fn drop_outdated_lease(&self, placement_version: u64) {
        let shared = self.session().filter(|session| session.engine().shares_store());
        let Some(session) = shared.filter(|_| !self.shared.instances.is_stdio()) else { return };
        if let Holder::ThisNode(version) = self.lease.holder()
            && version < placement_version
        {
            self.lease.lose(version, || {
                self.expect_forwarded_calls(&session, false);
                self.upstream_sessions().for_each(|session| session.client.close_standalone_stream());
            });
        }
    }
}
