//! Takeover of leases: of dead nodes for sessions that have readers at this node, and the checks
//! and releases that belong to it. Also moves the standalone stream when its replica dies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use steadfast_client::Error;
use steadfast_engine::{NodeId, SessionHandle};
use steadfast_wire::DoublingDelay;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::placement::lease::Holder;
use crate::session::client_session::ClientSession;

/// How many leases are claimed or checked at a time.
const MAX_CONCURRENT: usize = 64;

/// The delay before a lease is released that is needed by a call about to run.
const RELEASE_RETRY: DoublingDelay =
    DoublingDelay { first: Duration::from_millis(20), longest: Duration::from_secs(1) };

/// If `readers_present` was not called for this long, this node was stopped or overloaded, and
/// other nodes may have reaped it.
const PAUSE_THRESHOLD: Duration = Duration::from_millis(2500);

/// Detects that this node was stopped for a while.
#[derive(Debug, Default)]
pub(crate) struct PauseDetector(Mutex<Option<Instant>>);

impl PauseDetector {
    /// Returns true if so much time has passed since the last call that other nodes may have taken
    /// the leases.
    pub(crate) fn was_paused(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(Instant::now());
        before.is_some_and(|before| before.elapsed() > PAUSE_THRESHOLD)
    }
}

/// Checks which leases this node still holds.
pub(crate) async fn verify_leases(client_sessions: Vec<Arc<ClientSession>>) {
    let held: Vec<_> = client_sessions.into_iter().filter(|session| session.lease.is_held_here()).collect();
    for some in held.chunks(MAX_CONCURRENT) {
        let checks = some.iter().map(|session| session.verify_lease());
        run_concurrently(checks).await;
    }
}

/// Releases all leases. For an HTTP server with a concurrency limit, waits until no call of the
/// session is left.
pub(crate) async fn release_leases(client_sessions: Vec<Arc<ClientSession>>) {
    let limit = Arc::new(Semaphore::new(MAX_CONCURRENT));
    let mut releases = JoinSet::new();
    for client_session in client_sessions {
        let limit = Arc::clone(&limit);
        releases.spawn(async move {
            for failures in 1.. {
                client_session.calls_done().await;
                // The semaphore is never closed.
                let permit = limit.acquire().await;
                if client_session.release_lease().await {
                    return;
                }
                // A call of the session has begun and is about to be sent.
                drop(permit);
                tokio::time::sleep(RELEASE_RETRY.after(failures)).await;
            }
        });
    }
    // The runtime may cancel tasks while it shuts down. That must not cause a panic.
    while releases.join_next().await.is_some() {}
}

/// Takes over the leases of dead nodes. Asks the store once per node, not once per lease.
pub(crate) async fn take_over_leases(readers_present: Vec<(SessionHandle, Arc<ClientSession>)>) {
    let Some((first, _)) = readers_present.first() else { return };
    let engine = Arc::clone(first.engine());
    let mut by_node: BTreeMap<NodeId, Vec<&(SessionHandle, Arc<ClientSession>)>> = BTreeMap::new();
    let mut claims = Vec::new();
    for reader in &readers_present {
        match reader.1.lease.holder() {
            Holder::ThisNode(_) => {}
            Holder::Unknown => claims.push(reader),
            Holder::OtherNode(node, _) => by_node.entry(node).or_default().push(reader),
        }
    }
    let mut dead = BTreeSet::new();
    for node in by_node.keys() {
        // If the store cannot tell, this node takes no lease.
        if let Ok(false) = engine.store().is_alive(*node).await {
            dead.insert(*node);
        }
    }
    claims.extend(by_node.iter().filter(|(node, _)| dead.contains(node)).flat_map(|(_, some)| some));
    for some in claims.chunks(MAX_CONCURRENT) {
        run_concurrently(
            some.iter().map(|(session, client_session)| client_session.take_over_lease(session)),
        )
        .await;
    }
}

/// Limits how many sessions move at a time to get a standalone stream. When a replica dies, all
/// sessions that only listened there move.
#[derive(Debug)]
pub(crate) struct MoveLimit(Semaphore);

impl Default for MoveLimit {
    fn default() -> Self {
        Self(Semaphore::new(MAX_CONCURRENT))
    }
}

/// Marks a lane as moving until it is dropped.
struct MoveGuard<'a>(&'a AtomicBool);

impl<'a> MoveGuard<'a> {
    fn begin(is_moving: &'a AtomicBool) -> Option<Self> {
        (!is_moving.swap(true, Ordering::Relaxed)).then(|| Self(is_moving))
    }
}

impl Drop for MoveGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl ClientSession {
    /// Handles the loss of the standalone stream of a lane. If the replica is down and another one
    /// is up, the lane moves, as it does for a call.
    pub(crate) async fn move_standalone_stream(&self, lane: usize, session_no: u64, error: &Error) {
        let current = || {
            self.lanes[lane]
                .upstream_session()
                .filter(|current| current.no == session_no && self.lease.is_held_here())
        };
        let has_other =
            current().is_some_and(|current| self.shared.instances.has_other(&current.instance.name));
        if !has_other {
            return;
        }
        let Some(_move_guard) = MoveGuard::begin(&self.lanes[lane].is_moving) else { return };
        // The semaphore is never closed.
        let Ok(_move_permit) = self.shared.move_limit.0.acquire().await else { return };
        // A call may have moved the lane meanwhile.
        let Some(lost) = current() else { return };
        if let Err(error) = self.fail_over(lane, &lost, error).await {
            tracing::debug!(session = self.short(), %error, "could not get a standalone stream at another replica");
        }
    }
}

async fn run_concurrently<F: Future<Output = ()>>(all: impl Iterator<Item = F>) {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        all.retain_mut(|one| one.as_mut().poll(context).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
