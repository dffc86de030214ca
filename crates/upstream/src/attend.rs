//! What a process does for sessions that are read at it, while no call comes: if whoever listened to their server is gone,
//! somebody has to listen in its place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use steadfast_client::Error;
use steadfast_engine::{NodeId, SessionHandle};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::lease::Held;
use crate::link::Link;

/// Leases that are claimed or looked at at once.
const AT_ONCE: usize = 64;

/// When it is tried again to give up a lease under which a call is about to run, and how long that may become.
const SOON: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_secs(1);

/// After so long a silence this process may have been taken for dead: it was stopped, or had no time.
const SLEPT: Duration = Duration::from_millis(2500);

/// When this was done last.
#[derive(Debug, Default)]
pub(crate) struct Attendance(Mutex<Option<Instant>>);

impl Attendance {
    /// Whether so much time has passed that others may have taken over.
    pub(crate) fn has_slept(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(Instant::now());
        before.is_some_and(|before| before.elapsed() > SLEPT)
    }
}

/// Looks which leases are still ours.
pub(crate) async fn verify(links: Vec<Arc<Link>>) {
    let ours: Vec<_> = links.into_iter().filter(|link| link.lease.is_ours()).collect();
    for some in ours.chunks(AT_ONCE) {
        let looks = some.iter().map(|link| link.verify_the_lease());
        side_by_side(looks).await;
    }
}

/// Gives all leases up; those of servers that take so many calls at a time when no call is there any more.
pub(crate) async fn give_up(links: Vec<Arc<Link>>) {
    let at_once = Arc::new(Semaphore::new(AT_ONCE));
    let mut given_up = JoinSet::new();
    for link in links {
        let at_once = Arc::clone(&at_once);
        given_up.spawn(async move {
            let mut pause = SOON;
            loop {
                link.is_done().await;
                // The semaphore is never closed.
                let one = at_once.acquire().await;
                if link.give_up().await {
                    return;
                }
                // A call that the session has is about to have its turn here.
                drop(one);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LATER);
            }
        });
    }
    // Tasks that the runtime cancels while it shuts down are no reason to panic.
    while given_up.join_next().await.is_some() {}
}

/// Takes over the leases of nodes that are gone. A node is asked for once, however many leases it has.
pub(crate) async fn take_over(attended: Vec<(SessionHandle, Arc<Link>)>) {
    let Some((first, _)) = attended.first() else { return };
    let engine = Arc::clone(first.engine());
    let mut of_others: BTreeMap<NodeId, Vec<&(SessionHandle, Arc<Link>)>> = BTreeMap::new();
    let mut claims = Vec::new();
    for one in &attended {
        match one.1.lease.held() {
            Held::Ours(_) => {}
            Held::Unknown => claims.push(one),
            Held::Theirs(node, _) => of_others.entry(node).or_default().push(one),
        }
    }
    let mut gone = BTreeSet::new();
    for node in of_others.keys() {
        // If the store does not know, nobody takes anything.
        if let Ok(false) = engine.store().is_alive(*node).await {
            gone.insert(*node);
        }
    }
    claims.extend(of_others.iter().filter(|(node, _)| gone.contains(node)).flat_map(|(_, some)| some));
    for some in claims.chunks(AT_ONCE) {
        side_by_side(some.iter().map(|(session, link)| link.take_over(session))).await;
    }
}

/// The right to look for another place to hear a server at: when a replica dies, all who only listened there do so.
#[derive(Debug)]
pub(crate) struct Moves(Semaphore);

impl Default for Moves {
    fn default() -> Self {
        Self(Semaphore::new(AT_ONCE))
    }
}

/// Somebody looks for another place for a lane, until this is dropped.
struct Moving<'a>(&'a AtomicBool);

impl<'a> Moving<'a> {
    fn begin(is_moving: &'a AtomicBool) -> Option<Self> {
        (!is_moving.swap(true, Ordering::Relaxed)).then(|| Self(is_moving))
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Link {
    /// The server is not heard on this seat of a lane. If it is not there any more and has another replica, the lane moves, as it
    /// does for a call.
    pub(crate) async fn listen_elsewhere(&self, lane: usize, seat: u64, error: &Error) {
        let here = || self.lanes[lane].seat().filter(|here| here.no == seat && self.lease.is_ours());
        let has_other = here().is_some_and(|here| self.shared.servers.has_other(&here.place.name));
        if !has_other {
            return;
        }
        let Some(_moving) = Moving::begin(&self.lanes[lane].is_moving) else { return };
        // The semaphore is never closed.
        let Ok(_move) = self.shared.moves.0.acquire().await else { return };
        // A call may have been first.
        let Some(lost) = here() else { return };
        if let Err(error) = self.heal(lane, &lost, error).await {
            tracing::debug!(session = self.short(), %error, "the server cannot be heard elsewhere");
        }
    }
}

/// Waits for all of them, which get on side by side.
async fn side_by_side<F: Future<Output = ()>>(all: impl Iterator<Item = F>) {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        all.retain_mut(|one| one.as_mut().poll(context).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
