//! Opens upstream sessions: at the stored server instance if it is reachable, else at the best one.

use std::sync::Arc;

use steadfast_client::Error;
use steadfast_engine::SessionHandle;
use tokio::time::Instant;

use crate::placement::lease::Holder;
use crate::placement::retry_delays::RetryDelays;
use crate::placement::stored_placement::StoredSession;
use crate::placement::sync::LaneFilter;
use crate::placement::upstream_session::UpstreamSession;
use crate::replicas::health::{ResponseWait, unresponsive};
use crate::replicas::replica::is_unavailable;
use crate::session::client_session::ClientSession;

impl ClientSession {
    /// Returns the time until which a call that begins to wait now waits for the server.
    pub(crate) fn reconnect_deadline(&self) -> Instant {
        Instant::now() + self.shared.config.unavailable_timeout
    }

    /// Returns the time until which a task that stops trying at `deadline` may be busy. Its last
    /// attempt may begin just before the deadline and then take as long as `initialize` may take.
    pub(crate) fn plus_initialize_time(&self, deadline: Instant) -> Instant {
        deadline + self.shared.config.timeouts.control
    }

    /// Returns the upstream session of a lane. If the lane has none, resumes the stored one or
    /// opens a new one.
    pub(crate) async fn upstream_session_of(&self, lane: usize) -> Result<Arc<UpstreamSession>, Error> {
        match self.lanes[lane].upstream_session() {
            Some(upstream_session) => Ok(upstream_session),
            // Boxed because it is rare and large: its future must not enlarge that of every call.
            None => Box::pin(self.open_upstream_session(lane)).await,
        }
    }

    async fn open_upstream_session(&self, lane: usize) -> Result<Arc<UpstreamSession>, Error> {
        let deadline = self.reconnect_deadline();
        let _lock = self.lanes[lane]
            .lock_placement(self.plus_initialize_time(deadline))
            .await
            .ok_or_else(no_replica)?;
        if let Some(upstream_session) = self.lanes[lane].upstream_session() {
            return Ok(upstream_session);
        }
        let session = self.session().ok_or(Error::Closed)?;
        self.claim_lease_if_needed(&session).await?;
        let placement = self.sync_placement(&session, LaneFilter::AndLane(lane)).await;
        if let Some(upstream_session) = self.lanes[lane].upstream_session() {
            return Ok(upstream_session);
        }
        let lost = placement.lane(lane).cloned();
        if let Some(StoredSession { instance, .. }) = &lost {
            let session = self.short();
            tracing::info!(
                session,
                instance,
                "the replica of a session is gone; opening a session at another one"
            );
        }
        let upstream_session = self.open_anywhere(lane, deadline).await?;
        self.install_upstream_session(lane, lost, upstream_session).await
    }

    /// Claims the lease if this node needs it for an upstream session. Fails for a stdio server if
    /// another node holds the lease: this node cannot reach the process.
    async fn claim_lease_if_needed(&self, session: &SessionHandle) -> Result<(), Error> {
        let is_stdio = self.shared.instances.is_stdio();
        if !self.shared.config.standalone && !is_stdio {
            return Ok(());
        }
        match self.claim(session).await {
            Holder::ThisNode(_) => Ok(()),
            _ if is_stdio => Err(Error::Connect(
                "another node of this gateway runs the process of this session".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Resumes all upstream sessions that the stored placement names.
    pub(crate) async fn resume_stored_sessions(&self) {
        let Some(session) = self.session() else { return };
        if self.claim_lease_if_needed(&session).await.is_err() {
            return;
        }
        self.sync_placement(&session, LaneFilter::All).await;
    }

    /// Opens an upstream session at the best server instance. Retries transient errors until the
    /// deadline.
    pub(crate) async fn open_anywhere(
        &self,
        lane: usize,
        deadline: Instant,
    ) -> Result<UpstreamSession, Error> {
        let mut delays = RetryDelays::until(deadline);
        loop {
            match self.try_each_instance(lane, None).await {
                Err(error) if is_transient(&error) => {
                    if delays.wait().await.is_err() {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Tries each server instance except `avoid`, the best first. Returns a transient error rather
    /// than a permanent one.
    pub(crate) async fn try_each_instance(
        &self,
        lane: usize,
        avoid: Option<&str>,
    ) -> Result<UpstreamSession, Error> {
        let mut tried: Vec<_> = avoid.into_iter().map(str::to_owned).collect();
        let mut last_error = None;
        while let Some(instance) = self.shared.instances.next(&self.short(), &tried) {
            let (name, replica) = (instance.name.clone(), instance.replica().cloned());
            let waiting = self.shared.instances.await_response(&instance, self.shared.config.health_check);
            let error = match open_unless_suspected(waiting, self.connect(lane, instance)).await {
                Ok(upstream_session) => {
                    replica.iter().for_each(|replica| replica.succeeded());
                    return Ok(upstream_session);
                }
                // Opening a session twice is harmless, so the next server instance may be tried.
                Err(error) if is_transient(&error) => error,
                Err(error @ Error::Untrusted(_)) => {
                    tracing::error!(replica = name, %error, "a replica is not trusted");
                    error
                }
                Err(error) => return Err(error),
            };
            replica.iter().for_each(|replica| replica.failed());
            if last_error.as_ref().is_none_or(|last| !is_transient(last) || is_transient(&error)) {
                last_error = Some(error);
            }
            tried.push(name);
        }
        Err(last_error.unwrap_or_else(no_replica))
    }
}

/// Opens an upstream session. Fails if the replica does not respond to probes meanwhile: opening
/// the session at another replica is harmless.
async fn open_unless_suspected(
    waiting: Option<ResponseWait>,
    opening: impl Future<Output = Result<UpstreamSession, Error>>,
) -> Result<UpstreamSession, Error> {
    let Some(waiting) = waiting else { return opening.await };
    tokio::select! {
        biased;
        opened = opening => opened,
        () = waiting.suspected() => Err(unresponsive()),
    }
}

/// Returns true if another attempt, or another replica, may succeed.
fn is_transient(error: &Error) -> bool {
    match error {
        Error::Connect(_) | Error::Broken(_) | Error::Timeout(_) | Error::OutcomeUnknown { .. } => true,
        Error::Refused { status, .. } => is_unavailable(*status),
        _ => false,
    }
}

pub(crate) fn no_replica() -> Error {
    Error::Connect("no replica is available".to_owned())
}
