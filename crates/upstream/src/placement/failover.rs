//! Failover: replaces an upstream session that the server has lost, or whose replica is down, and
//! restores its settings. The client session continues.

use std::sync::Arc;
use std::time::Duration;

use steadfast_client::{CallOptions, Error, LostSessionAction, OpenSession, ReplayRequest};
use steadfast_engine::{Class, SessionHandle, StateError};
use steadfast_wire::rpc::warning;

use crate::placement::open::no_replica;
use crate::placement::retry_delays::{RETRY_DELAY, RetryDelays};
use crate::placement::stored_placement::{Placement, StoredSession};
use crate::placement::sync::LaneFilter;
use crate::placement::upstream_session::UpstreamSession;
use crate::session::client_session::ClientSession;
use crate::session::lane::Lane;
use crate::session::replay_state::ReplayState;

/// How long a request of the replay state may take.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(10);

impl ClientSession {
    /// Handles a call that failed because the server is down. Waits until the replica responds
    /// again, or moves the lane to another replica. Returns `Ok` if another attempt is worthwhile.
    /// If several calls fail at the same time, one of them does the work, and none waits longer
    /// than it would alone.
    pub(crate) async fn fail_over(
        &self,
        lane: usize,
        lost: &Arc<UpstreamSession>,
        error: &Error,
    ) -> Result<(), Error> {
        let Some(replica) = lost.instance.replica() else { return Ok(()) };
        let deadline = self.reconnect_deadline();
        let placement_lock = self.lanes[lane].lock_placement(self.plus_initialize_time(deadline)).await;
        let _lock = placement_lock.ok_or_else(|| error.clone())?;
        if self.lanes[lane]
            .upstream_session()
            .is_none_or(|upstream_session| !Arc::ptr_eq(&upstream_session, lost))
        {
            return Ok(());
        }
        let lost_session = lost.to_stored();
        let mut delays = RetryDelays::until(deadline);
        // A proxy may answer probes in place of the server. It does not answer calls.
        let mut is_probe_misleading =
            lost.is_probe_misleading() && self.shared.instances.has_other(&replica.name);
        // A process that is being killed may still respond for a moment.
        tokio::time::sleep(RETRY_DELAY.first).await;
        loop {
            if self.follow_move(lane, lost_session.as_ref()).await {
                return Ok(());
            }
            // The failure may have been transient. A move would lose the state that the server
            // keeps in memory.
            if !std::mem::take(&mut is_probe_misleading) && replica.responds().await {
                lost.probe_succeeded();
                replica.succeeded();
                return Ok(());
            }
            replica.failed();
            if self.shared.instances.has_other(&replica.name)
                && let Ok(upstream_session) = self.try_each_instance(lane, Some(&replica.name)).await
            {
                let (session, from, to) = (self.short(), &replica.name, &upstream_session.instance.name);
                tracing::info!(session, from, to, "moving a session to another replica");
                return self.install_upstream_session(lane, lost_session, upstream_session).await.map(drop);
            }
            if delays.wait().await.is_err() {
                return Err(error.clone());
            }
        }
    }

    /// Starts a failover for the next calls. The call that failed has its error and does not wait.
    pub(crate) fn fail_over_in_background(
        self: &Arc<Self>,
        lane: usize,
        lost: &Arc<UpstreamSession>,
        error: &Error,
    ) {
        let has_other =
            lost.instance.replica().is_some_and(|replica| self.shared.instances.has_other(&replica.name));
        let is_in_progress = self.lanes[lane].placement_lock.try_lock().is_err();
        if !has_other || is_in_progress {
            return;
        }
        let (client_session, lost, error) = (Arc::clone(self), Arc::clone(lost), error.clone());
        tokio::spawn(async move {
            if let Err(error) = client_session.fail_over(lane, &lost, &error).await {
                tracing::debug!(session = client_session.short(), %error, "could not move a session to another replica");
            }
        });
    }

    /// Decides what to do after the server has lost an upstream session. The client session may
    /// have ended, or another node may have opened a new upstream session already.
    pub(crate) async fn lost_session_action(
        &self,
        lane: usize,
        instance: &str,
        lost: &OpenSession,
    ) -> LostSessionAction {
        let Some(session) = self.session() else { return LostSessionAction::End };
        let lost_session = StoredSession::new(instance, lost);
        match Placement::load(&session).await {
            Err(StateError::NoSession) => {
                if let Some(client_session) = self.this() {
                    tokio::spawn(async move { client_session.close_ended().await });
                }
                LostSessionAction::End
            }
            Ok(Some((placement, version)))
                if self.stored_replacement(&placement, lane, Some(&lost_session)).is_some() =>
            {
                self.use_stored_session(lane, instance, &placement, version)
            }
            Ok(_) | Err(_) => LostSessionAction::Renew,
        }
    }

    /// The MCP client has opened a new session at the same server instance, because the server had
    /// lost the old one. Returns the requests to replay.
    pub(crate) async fn renewed(
        &self,
        lane: usize,
        instance: &str,
        lost: &OpenSession,
        open: &OpenSession,
    ) -> Result<Vec<ReplayRequest>, LostSessionAction> {
        let recorded =
            self.record_new_session(lane, Some(&StoredSession::new(instance, lost)), instance, open).await;
        if recorded.is_ok() {
            // The lost upstream session may have been one without a standalone stream.
            self.open_standalone_stream(&self.lanes[lane]);
        }
        recorded.map_err(|AlreadyPlaced { placement, version }| {
            self.use_stored_session(lane, instance, &placement, version)
        })
    }

    /// Holds the standalone stream of a lane if this node holds the lease.
    fn open_standalone_stream(&self, lane: &Lane) {
        if self.shared.config.standalone && self.lease.is_held_here() {
            lane.upstream_session().iter().for_each(|session| session.client.open_standalone_stream());
        }
    }

    /// Holds the standalone streams of all lanes if this node holds the lease.
    pub(crate) fn hold_standalone_streams(&self) {
        self.lanes.iter().for_each(|lane| self.open_standalone_stream(lane));
    }

    /// If another node has replaced the lost upstream session of a lane, uses the replacement and
    /// returns true.
    async fn follow_move(&self, lane: usize, lost: Option<&StoredSession>) -> bool {
        let Some(session) = self.session() else { return false };
        match Placement::load(&session).await {
            Ok(Some((placement, version))) if self.stored_replacement(&placement, lane, lost).is_some() => {
                self.apply_placement(&placement, version, LaneFilter::AndLane(lane));
                true
            }
            _ => false,
        }
    }

    /// Makes a new upstream session the current one of a lane, in place of one that is lost, and
    /// replays the settings. If another node has replaced the lost session first, closes the new
    /// upstream session and returns that of the other node.
    pub(crate) async fn install_upstream_session(
        &self,
        lane: usize,
        lost: Option<StoredSession>,
        upstream_session: UpstreamSession,
    ) -> Result<Arc<UpstreamSession>, Error> {
        let client_session = self.this().ok_or(Error::Closed)?;
        // In a task of its own: the caller may be cancelled, and other nodes rely on the stored
        // placement.
        let task =
            tokio::spawn(
                async move { client_session.install_now(lane, lost.as_ref(), upstream_session).await },
            );
        task.await.unwrap_or(Err(Error::Closed))
    }

    async fn install_now(
        &self,
        lane: usize,
        lost: Option<&StoredSession>,
        upstream_session: UpstreamSession,
    ) -> Result<Arc<UpstreamSession>, Error> {
        let Some(open) = upstream_session.client.session() else {
            return Ok(self.set_upstream_session(lane, upstream_session));
        };
        match self.record_new_session(lane, lost, &upstream_session.instance.name, &open).await {
            Ok(repeats) => {
                self.replay(&upstream_session, repeats).await;
                Ok(self.set_upstream_session(lane, upstream_session))
            }
            Err(AlreadyPlaced { placement, version }) => {
                let session = self.short();
                tokio::spawn(async move {
                    if let Err(error) = upstream_session.client.close().await {
                        tracing::debug!(session, %error, "could not close an upstream session that is not needed");
                    }
                });
                self.apply_placement(&placement, version, LaneFilter::AndLane(lane));
                self.lanes[lane].upstream_session().ok_or_else(no_replica)
            }
        }
    }

    /// Sends settings that were sent in another lane only. The caller must have a permit for the
    /// lane.
    pub(crate) async fn replay_missed(&self, lane: usize, upstream_session: &UpstreamSession) {
        let missed = self.lanes[lane].take_missed();
        if !missed.is_empty() {
            Box::pin(self.replay(upstream_session, missed)).await;
        }
    }

    async fn replay(&self, upstream_session: &UpstreamSession, repeats: Vec<ReplayRequest>) {
        for ReplayRequest { method, params } in repeats {
            let options = CallOptions { timeout: Some(REPLAY_TIMEOUT), progress: false };
            let answer = match upstream_session.client.call_with(&method, params.as_deref(), options) {
                Ok(call) => call.answer().await,
                Err(error) => Err(error),
            };
            if let Err(error) = answer {
                tracing::warn!(session = self.short(), method, %error, "could not replay a request in the new upstream session");
            }
        }
    }

    /// Stores a new upstream session of a lane, takes the lease and notifies the client. Returns
    /// the requests to replay.
    async fn record_new_session(
        &self,
        lane: usize,
        lost: Option<&StoredSession>,
        instance: &str,
        open: &OpenSession,
    ) -> Result<Vec<ReplayRequest>, AlreadyPlaced> {
        let Some(session) = self.session() else { return Ok(Vec::new()) };
        let Recorded { placement, is_new } =
            self.store_placement(&session, lane, lost, instance, open).await?;
        if !is_new {
            // The server may be another version by now, so old annotations must not justify a
            // retry.
            self.invalidate_tools();
        }
        if !self.shared.instances.is_stdio() {
            // The node that opens an upstream session receives what the server sends in it, and in
            // all other lanes.
            self.seize(&session).await;
            self.lanes
                .iter()
                .enumerate()
                .filter(|(no, _)| *no != lane)
                .for_each(|(_, lane)| self.open_standalone_stream(lane));
        }
        let mut replay_state = ReplayState::load(&session).await.ok().flatten().unwrap_or_default();
        if lane > 0 {
            // Other lanes keep no state that the client could miss, and only the first lane
            // subscribes to resources.
            replay_state.subscriptions.clear();
            return Ok(replay_state.repeats());
        }
        if is_new {
            return Ok(replay_state.repeats());
        }
        tracing::warn!(
            session = self.short(),
            instance,
            "the server had lost an upstream session; opened a new one"
        );
        self.shared.count_failover();
        session.report_failover();
        self.announce_failover(&session, &placement, &replay_state).await;
        Ok(replay_state.repeats())
    }

    /// Stores the new upstream session of a lane, unless another node has replaced the lost one
    /// first.
    async fn store_placement(
        &self,
        session: &SessionHandle,
        lane: usize,
        lost: Option<&StoredSession>,
        instance: &str,
        open: &OpenSession,
    ) -> Result<Recorded, AlreadyPlaced> {
        // While this node holds the lease, no other node uses its child processes.
        let is_used_by_other_nodes = !self.shared.instances.is_stdio();
        let opened = Placement::from_open_session(instance, open);
        let (mut current, mut is_new, mut already_placed) = (opened.clone(), false, None);
        let stored = Placement::update(session, |placement, version| {
            if is_used_by_other_nodes && self.stored_replacement(placement, lane, lost).is_some() {
                already_placed =
                    version.map(|version| AlreadyPlaced { placement: placement.clone(), version });
                return false;
            }
            is_new = placement.lane(lane).is_none();
            placement.set(lane, StoredSession::new(instance, open));
            placement.capabilities.clone_from(&opened.capabilities);
            current = placement.clone();
            true
        });
        let stored = stored.await;
        if let Some(already_placed) = already_placed {
            return Err(already_placed);
        }
        match stored {
            // Another node may have moved the other lanes.
            Ok(Some(version)) => drop(self.apply_placement(&current, version, LaneFilter::ExceptLane(lane))),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(session = self.short(), %error, "could not store the placement of a session");
                self.known_placement.mark_unknown();
            }
        }
        Ok(Recorded { placement: current, is_new })
    }

    /// Notifies the client that the server has lost the session and that cached lists may be
    /// outdated.
    async fn announce_failover(
        &self,
        session: &SessionHandle,
        placement: &Placement,
        replay_state: &ReplayState,
    ) {
        if placement.offers("logging", None) && replay_state.wants_warnings() {
            let data = r#"{"event":"session_healed","message":"The server had lost this session and was initialized again. What it kept in memory for the session is gone."}"#;
            self.notify_client(session, Class::Droppable, warning(data).into()).await;
        }
        self.announce_changes(session, placement, replay_state).await;
    }
}

/// The new upstream session is stored.
struct Recorded {
    placement: Placement,
    /// The lane had no upstream session before.
    is_new: bool,
}

/// Another node has replaced the upstream session first. Contains the stored placement.
struct AlreadyPlaced {
    placement: Placement,
    version: u64,
}
