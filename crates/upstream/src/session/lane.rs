//! A lane: the slot for one of the upstream sessions among which the calls of a client session are
//! distributed. Usually a client session has one lane. The upstream session in a lane can change.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use steadfast_client::ReplayRequest;
use tokio::time::Instant;

use crate::placement::upstream_session::UpstreamSession;
use crate::session::replay_state::MAX_SUBSCRIPTIONS;

#[derive(Default)]
pub(crate) struct Lane {
    upstream_session: RwLock<Option<Arc<UpstreamSession>>>,
    /// Held while the upstream session of the lane is chosen.
    pub(crate) placement_lock: tokio::sync::Mutex<()>,
    /// Session settings that were sent to the server in another lane only: the newest request per
    /// setting.
    missed: Mutex<BTreeMap<String, ReplayRequest>>,
    /// The standalone stream is lost, and the log says so.
    pub(crate) has_lost_standalone: AtomicBool,
    /// A task is moving the lane to get a standalone stream.
    pub(crate) is_moving: AtomicBool,
}

impl Lane {
    pub(crate) fn upstream_session(&self) -> Option<Arc<UpstreamSession>> {
        self.upstream_session.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the right to choose the upstream session of the lane. Returns `None` at the
    /// deadline.
    pub(crate) async fn lock_placement(&self, deadline: Instant) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        tokio::time::timeout_at(deadline, self.placement_lock.lock()).await.ok()
    }

    /// Removes and returns the requests that must be sent before the next call.
    pub(crate) fn take_missed(&self) -> Vec<ReplayRequest> {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *missed).into_values().collect()
    }

    /// Adds a request that must be sent before the next call. Returns false if there are too many.
    pub(crate) fn add_missed(&self, setting: &str, repeat: ReplayRequest) -> bool {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = missed.len() < MAX_SUBSCRIPTIONS || missed.contains_key(setting);
        if has_room {
            missed.insert(setting.to_owned(), repeat);
        }
        has_room
    }

    /// Replaces the upstream session and returns the previous one, so that the caller drops it
    /// without the lock.
    pub(crate) fn replace(
        &self,
        upstream_session: Option<Arc<UpstreamSession>>,
    ) -> Option<Arc<UpstreamSession>> {
        std::mem::replace(
            &mut *self.upstream_session.write().unwrap_or_else(PoisonError::into_inner),
            upstream_session,
        )
    }
}
