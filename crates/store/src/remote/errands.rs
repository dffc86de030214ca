//! What concerns many sessions, or none.

use std::rc::Rc;
use std::time::Duration;

use steadfast_session::command::{FailNode, Heir, Sweep, Swept};
use steadfast_session::{Limit, NodeId, Outcome, Principal, SessionId, Step, Time};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet, spawn_local};
use tokio::time::MissedTickBehavior;

use super::backing::{Answer, Backing, Listed, OpenSessions, Told};
use super::codec;
use super::job::{Job, Order, Work};
use super::slot::leaves_something;
use super::worker::Worker;
use crate::error::StoreError;
use crate::store::Usage;

/// Sessions that a sweep or a burial has in hand at once.
const STRIDE: usize = 64;

/// How often somebody who leaves looks whether it holds something in yet another session.
const FAREWELLS: usize = 1024;

/// When a session is swept again that could not be. Later than those that are due by now, so that it does not keep its place
/// before them.
const SWEPT_AGAIN: Duration = Duration::from_secs(5);

/// What has become of a node that is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freed {
    /// It is on no list any more.
    Struck,
    /// Others have to see to what it has left.
    ButForSome,
    /// It holds something again by now, or is alive.
    NotYet,
}

/// What came of freeing some sessions of a node.
#[derive(Default)]
struct Stride {
    /// It holds nothing in these, as of these versions.
    done: Vec<(SessionId, u64)>,
    /// How many stay on its list: for others, or because they could not be freed.
    stay: usize,
    failed: Option<StoreError>,
}

impl Stride {
    fn fail(&mut self, error: StoreError) {
        self.stay += 1;
        self.failed = Some(error);
    }
}

fn unknown(panic: &JoinError) -> StoreError {
    StoreError::Unknown(panic.to_string())
}

impl<B: Backing> Worker<B> {
    pub(crate) async fn run_errand(self: Rc<Self>, job: Job) {
        // Whoever does not wait any more does not want to know.
        match job {
            Job::Session(..) => {}
            Job::Sweep { now, batch, to } => drop(to.send(self.sweep(now, batch).await)),
            Job::Join { node, to } => drop(to.send(self.join(node).await)),
            Job::IsAlive { node, to } => {
                drop(to.send(self.patiently(|| self.backing.is_alive(node)).await));
            }
            Job::Bury { now, to } => drop(to.send(self.bury(now).await)),
            Job::Leave { node, now, to } => drop(to.send(self.leave(node, now).await)),
            Job::Room { principal, to } => drop(to.send(self.no_room_for(&principal).await)),
            Job::Answers { to } => drop(to.send(self.patiently(|| self.backing.ping()).await)),
            Job::Usage { to } => drop(to.send(self.usage().await)),
        }
    }

    /// A beat that is not heard is repeated at once: whoever is silent for too long has lost its calls.
    pub(crate) async fn keep_beating(self: Rc<Self>) {
        let mut ticks = tokio::time::interval(self.settings.heartbeat.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_heard = true;
        loop {
            if is_heard {
                ticks.tick().await;
            } else {
                tokio::time::sleep(self.settings.pause).await;
            }
            let beat = self.beat().await;
            match &beat {
                // Once, and not with each try.
                Err(error) if is_heard => {
                    tracing::warn!(%error, "the session store does not hear that this process is alive");
                }
                Ok(()) if !is_heard => tracing::info!("the session store hears this process again"),
                _ => {}
            }
            is_heard = beat.is_ok();
        }
    }

    async fn beat(&self) -> Answer<()> {
        let _one = self.beating.lock().await;
        let own = self.own.borrow().clone();
        if own.is_empty() { Ok(()) } else { self.backing.beat(&own).await }
    }

    /// A session that cannot be swept is its own trouble and that of no other: all that are due have their turn, and the error
    /// is told at the end.
    async fn sweep(self: &Rc<Self>, now: Time, batch: usize) -> Answer<usize> {
        let due = self.patiently(|| self.backing.due(now, batch)).await?;
        let mut failed = None;
        for stride in due.chunks(STRIDE) {
            let mut set = JoinSet::new();
            for (listed, seen) in stride.iter().cloned() {
                let worker = Rc::clone(self);
                set.spawn_local(async move { worker.sweep_one(listed, seen, now).await });
            }
            while let Some(swept) = set.join_next().await {
                failed = swept.unwrap_or_else(|panic| Err(unknown(&panic))).err().or(failed);
            }
        }
        failed.map_or(Ok(due.len()), Err)
    }

    async fn sweep_one(self: Rc<Self>, listed: Listed, seen: Time, now: Time) -> Answer<()> {
        let sweep = |to| Order { command: Sweep.into_command(), now, strikes: None, buries: false, to };
        let id = listed.session;
        match self.order(id, sweep).await {
            Ok(done) if matches!(done.outcome, Outcome::Sweep(Swept::Next(_))) => {
                self.backing.reschedule(&listed, seen, done.check_at).await
            }
            Ok(_) => {
                let (to, removed) = oneshot::channel();
                self.queue(id, Work::Remove { listed, now, to }, None);
                removed.await.unwrap_or_else(|_| Err(StoreError::Unknown("not removed".into())))
            }
            Err(error @ StoreError::Corrupt(_)) => {
                // Left as it is for somebody to look at, but not again and again.
                tracing::error!(session = id.short(), %error, "a session cannot be swept");
                self.backing.reschedule(&listed, seen, now.plus(self.settings.keep)).await
            }
            Err(error) => {
                tracing::warn!(session = id.short(), %error, "a session cannot be swept yet");
                self.backing.reschedule(&listed, seen, now.plus(SWEPT_AGAIN)).await?;
                Err(error)
            }
        }
    }

    async fn join(&self, node: NodeId) -> Answer<()> {
        if self.settings.hears_others {
            self.patiently(|| self.backing.hear(node)).await?;
        }
        let nodes = [node];
        self.patiently(|| self.backing.beat(&nodes)).await?;
        let mut own = self.own.borrow_mut();
        if !own.contains(&node) {
            own.push(node);
        }
        Ok(())
    }

    async fn bury(self: &Rc<Self>, now: Time) -> Answer<usize> {
        let (mut buried, mut failed) = (0, None);
        let dead = self.patiently(|| self.backing.dead_nodes()).await?;
        self.passed_over.borrow_mut().retain(|node, _| dead.contains(node));
        for node in dead {
            // This process may have been stopped for a while. It is not dead: it asks.
            let is_own = self.own.borrow().contains(&node);
            if is_own {
                continue;
            }
            match self.fail_node(node, now, false).await {
                Ok(Freed::Struck) => buried += 1,
                Ok(Freed::ButForSome | Freed::NotYet) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(buried), Err)
    }

    async fn leave(self: &Rc<Self>, node: NodeId, now: Time) -> Answer<()> {
        self.own.borrow_mut().retain(|own| *own != node);
        // A heartbeat that is on its way must not put it on the list again.
        drop(self.beating.lock().await);
        let mut left = Ok(Freed::NotYet);
        for _ in 0..FAREWELLS {
            left = self.fail_node(node, now, true).await;
            if left != Ok(Freed::NotYet) {
                break;
            }
        }
        if self.settings.hears_others
            && let Err(error) = self.backing.stop_hearing(node).await
        {
            tracing::debug!(%error, "a node that has left is still told of changes");
        }
        left.map(drop)
    }

    /// Frees every session of a node, and strikes it off the list.
    async fn fail_node(self: &Rc<Self>, node: NodeId, now: Time, leaves: bool) -> Answer<Freed> {
        // Those that stay on its list stand before the others, time and again.
        let mut passed_over = self.passed_over.borrow_mut().remove(&node).unwrap_or(0);
        loop {
            let wanted = passed_over.saturating_add(STRIDE);
            let listed = self.patiently(|| self.backing.sessions_of(node, wanted)).await?;
            let is_last = listed.len() < wanted;
            let stride = listed.into_iter().skip(passed_over).collect();
            let Stride { done, stay, failed } = self.free(stride, node, now, leaves).await;
            if self.patiently(|| self.backing.strike(node, &done, leaves)).await? {
                return Ok(Freed::Struck);
            }
            passed_over += stay;
            if let Some(error) = failed {
                // Each may have taken as long as a command is tried: the next burial goes on from here.
                if !is_last && !leaves {
                    self.passed_over.borrow_mut().insert(node, passed_over);
                }
                return Err(error);
            }
            if is_last {
                return Ok(if passed_over > 0 { Freed::ButForSome } else { Freed::NotYet });
            }
        }
    }

    /// Frees some sessions of a node. One that cannot be freed is its own trouble and that of no other.
    async fn free(
        self: &Rc<Self>,
        sessions: Vec<SessionId>,
        node: NodeId,
        now: Time,
        leaves: bool,
    ) -> Stride {
        let mut set = JoinSet::new();
        for id in sessions {
            let worker = Rc::clone(self);
            set.spawn_local(async move {
                let heir = if leaves { Heir::Later } else { Heir::Nobody };
                let fail = |to| Order {
                    command: FailNode { node, heir }.into_command(),
                    now,
                    strikes: Some(node),
                    buries: !leaves,
                    to,
                };
                (id, worker.order(id, fail).await)
            });
        }
        let mut stride = Stride::default();
        while let Some(failed) = set.join_next().await {
            match failed {
                Ok((_, Ok(failed))) if leaves_something(&failed.outcome) => stride.stay += 1,
                // A session that is gone holds nothing in any version.
                Ok((id, Ok(failed))) => stride.done.push((id, failed.version.unwrap_or(u64::MAX))),
                Ok((id, Err(error @ StoreError::Corrupt(_)))) => {
                    tracing::error!(session = id.short(), %error, "a session cannot be freed of a node");
                    stride.done.push((id, u64::MAX));
                }
                Ok((id, Err(error))) => {
                    tracing::warn!(session = id.short(), %error, "a session cannot be freed of a node yet");
                    stride.fail(error);
                }
                Err(panic) => stride.fail(unknown(&panic)),
            }
        }
        stride
    }

    async fn no_room_for(&self, principal: &Principal) -> Answer<Option<Limit>> {
        let OpenSessions { all, own } = self.patiently(|| self.backing.open_sessions(principal)).await?;
        let limits = &self.rules.limits;
        Ok(if all >= limits.sessions {
            Some(Limit::Sessions)
        } else {
            own.filter(|own| *own >= limits.sessions_per_principal).map(|_| Limit::SessionsPerPrincipal)
        })
    }

    /// Exact for few sessions; the bytes of many are estimated from some of them.
    async fn usage(&self) -> Answer<Usage> {
        let count = self.patiently(|| self.backing.count()).await?;
        let seen = count.sample.len() as u64;
        let mut bytes = 0;
        for row in count.sample {
            bytes += codec::bytes_of(row)?;
        }
        if seen > 0 && seen < count.listed {
            bytes = bytes / seen * count.listed;
        }
        Ok(Usage { sessions: count.open, bytes })
    }

    /// Nobody waits for this, and if it is lost others find out by themselves.
    pub(crate) fn tell_later(self: &Rc<Self>, nodes: Vec<NodeId>, told: Told) {
        let worker = Rc::clone(self);
        spawn_local(async move {
            if let Err(error) = worker.backing.tell(&nodes, told).await {
                let session = told.session.short();
                tracing::debug!(session, %error, "other nodes were not told of a change");
            }
        });
    }
}
