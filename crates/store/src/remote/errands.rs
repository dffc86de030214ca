//! What concerns many sessions, or none.

use std::rc::Rc;

use steadfast_session::command::{FailNode, Heir, Sweep, Swept};
use steadfast_session::{NodeId, Outcome, Step, Time};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, spawn_local};

use super::backing::{Answer, Backing, Listed, Told};
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
            Job::Usage { to } => drop(to.send(self.usage().await)),
        }
    }

    pub(crate) async fn keep_beating(self: Rc<Self>) {
        loop {
            tokio::time::sleep(self.settings.heartbeat).await;
            let _one = self.beating.lock().await;
            let own = self.own.borrow().clone();
            if !own.is_empty()
                && let Err(error) = self.backing.beat(&own).await
            {
                tracing::warn!(%error, "the session store does not hear that this process is alive");
            }
        }
    }

    async fn sweep(self: &Rc<Self>, now: Time, batch: usize) -> Answer<usize> {
        let due = self.patiently(|| self.backing.due(now, batch)).await?;
        for stride in due.chunks(STRIDE) {
            let mut set = JoinSet::new();
            for (listed, seen) in stride.iter().cloned() {
                let worker = Rc::clone(self);
                set.spawn_local(async move { worker.sweep_one(listed, seen, now).await });
            }
            while let Some(swept) = set.join_next().await {
                swept.unwrap_or_else(|panic| Err(StoreError::Corrupt(panic.to_string())))?;
            }
        }
        Ok(due.len())
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
            Err(error) => Err(error),
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
        let mut buried = 0;
        for node in self.patiently(|| self.backing.dead_nodes()).await? {
            // This process may have been stopped for a while. It is not dead: it asks.
            let is_own = self.own.borrow().contains(&node);
            if !is_own && self.fail_node(node, now, false).await? == Freed::Struck {
                buried += 1;
            }
        }
        Ok(buried)
    }

    async fn leave(self: &Rc<Self>, node: NodeId, now: Time) -> Answer<()> {
        self.own.borrow_mut().retain(|own| *own != node);
        // A heartbeat that is on its way must not put it on the list again.
        drop(self.beating.lock().await);
        for _ in 0..FAREWELLS {
            if self.fail_node(node, now, true).await? != Freed::NotYet {
                break;
            }
        }
        if self.settings.hears_others
            && let Err(error) = self.backing.stop_hearing(node).await
        {
            tracing::debug!(%error, "a node that has left is still told of changes");
        }
        Ok(())
    }

    /// Frees every session of a node, and strikes it off the list.
    async fn fail_node(self: &Rc<Self>, node: NodeId, now: Time, leaves: bool) -> Answer<Freed> {
        let mut freed = Freed::NotYet;
        loop {
            let sessions = self.patiently(|| self.backing.sessions_of(node, STRIDE)).await?;
            let mut set = JoinSet::new();
            for &id in &sessions {
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
            let mut done = Vec::new();
            while let Some(failed) = set.join_next().await {
                let (id, failed) = failed.map_err(|panic| StoreError::Corrupt(panic.to_string()))?;
                let version = match failed {
                    Ok(failed) if leaves_something(&failed.outcome) => {
                        freed = Freed::ButForSome;
                        continue;
                    }
                    // A session that is gone holds nothing in any version.
                    Ok(failed) => failed.version.unwrap_or(u64::MAX),
                    Err(error @ StoreError::Corrupt(_)) => {
                        tracing::error!(session = id.short(), %error, "a session cannot be freed of a node");
                        u64::MAX
                    }
                    Err(error) => return Err(error),
                };
                done.push((id, version));
            }
            if self.patiently(|| self.backing.strike(node, &done, leaves)).await? {
                return Ok(Freed::Struck);
            }
            // What is left for others may fill the whole stride, time and again.
            if sessions.len() < STRIDE || done.is_empty() {
                return Ok(freed);
            }
        }
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
