//! Jobs that concern many sessions or none: sweeps, heartbeats, nodes that join, leave or die,
//! limits and usage.

use std::rc::Rc;
use std::time::Duration;

use steadfast_session::command::{FailNode, Successor, Sweep, Swept};
use steadfast_session::{Limit, NodeId, Outcome, Principal, SessionId, Step, Time};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet, spawn_local};
use tokio::time::MissedTickBehavior;

use super::cached_session::has_remaining_holdings;
use super::codec;
use super::database::{
    ChangeHint, Database, EvictionRows, IndexKey, NodeExit, OpenSessionCounts, StoreResult,
};
use super::job::{Job, QueuedCommand, SessionJob};
use super::worker::Worker;
use crate::error::StoreError;
use crate::store::{EvictionSample, SampledSession, Usage};

/// How many sessions a sweep or a reap works on at once.
const MAX_PARALLEL_SESSIONS: usize = 64;

/// How often a node that leaves checks again whether it has got something in another session.
const MAX_LEAVE_ROUNDS: usize = 1024;

/// The delay before a session is swept again after its sweep failed. It is then behind the sessions
/// that are due now, so it does not block them.
const SWEEP_RETRY_DELAY: Duration = Duration::from_secs(5);

/// How far a node that is dead or leaves was settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeRelease {
    /// It holds nothing and is removed from the list of nodes.
    Delisted,
    /// It still has calls, which wait for the node that reaps it.
    HoldingsRemain,
    /// It has got something new meanwhile, or is alive after all.
    Incomplete,
}

#[derive(Default)]
struct BatchResult {
    /// Sessions in which the node holds nothing, with the version that shows it.
    released: Vec<(SessionId, u64)>,
    /// How many sessions stay on the node's list: with remaining holdings, or because of an error.
    remaining: usize,
    error: Option<StoreError>,
}

impl BatchResult {
    fn fail(&mut self, error: StoreError) {
        self.remaining += 1;
        self.error = Some(error);
    }
}

fn unknown(panic: &JoinError) -> StoreError {
    StoreError::Unknown(panic.to_string())
}

impl<D: Database> Worker<D> {
    /// Runs a job that does not belong to one session, and sends its result.
    pub(crate) async fn run_maintenance(self: Rc<Self>, job: Job) {
        // If the receiver is gone, the caller does not need the result.
        match job {
            Job::Session(..) => {}
            Job::Sweep { now, batch, to } => drop(to.send(self.sweep(now, batch).await)),
            Job::Join { node, to } => drop(to.send(self.join(node).await)),
            Job::IsAlive { node, to } => {
                drop(to.send(self.with_retry(|| self.database.is_alive(node)).await));
            }
            Job::Reap { now, to } => drop(to.send(self.reap(now).await)),
            Job::Leave { node, now, to } => drop(to.send(self.leave(node, now).await)),
            Job::ReachedLimit { principal, to } => drop(to.send(self.reached_limit(&principal).await)),
            Job::EvictionSample { requester, of, from, to } => {
                drop(to.send(self.eviction_sample(&requester, of.as_ref(), from).await));
            }
            Job::Ping { to } => drop(to.send(self.with_retry(|| self.database.ping()).await)),
            Job::Usage { to } => drop(to.send(self.usage().await)),
        }
    }

    /// Sends heartbeats for the local nodes. A failed heartbeat is repeated at once: a node without
    /// heartbeats for too long loses its calls.
    pub(crate) async fn run_heartbeat(self: Rc<Self>) {
        let mut ticks = tokio::time::interval(self.settings.heartbeat.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut succeeded = true;
        loop {
            if succeeded {
                ticks.tick().await;
            } else {
                tokio::time::sleep(self.settings.retry_interval).await;
            }
            let sent = self.heartbeat().await;
            match &sent {
                // Logged once, not with every retry.
                Err(error) if succeeded => {
                    tracing::warn!(
                        %error,
                        "cannot send a heartbeat to the session store; other nodes may take this node for dead"
                    );
                }
                Ok(()) if !succeeded => tracing::info!("heartbeats reach the session store again"),
                _ => {}
            }
            succeeded = sent.is_ok();
        }
    }

    async fn heartbeat(&self) -> StoreResult<()> {
        let _guard = self.heartbeat_lock.lock().await;
        let nodes = self.local_nodes.borrow().clone();
        if nodes.is_empty() { Ok(()) } else { self.database.send_heartbeat(&nodes).await }
    }

    /// Sweeps the sessions that are due. A session that cannot be swept does not stop the others:
    /// the sweep goes on and returns the error at the end.
    async fn sweep(self: &Rc<Self>, now: Time, batch: usize) -> StoreResult<usize> {
        let due = self.with_retry(|| self.database.due_sessions(now, batch)).await?;
        let mut failed = None;
        for chunk in due.chunks(MAX_PARALLEL_SESSIONS) {
            let mut set = JoinSet::new();
            for (index_key, scheduled) in chunk.iter().cloned() {
                let worker = Rc::clone(self);
                set.spawn_local(async move { worker.sweep_session(index_key, scheduled, now).await });
            }
            while let Some(swept) = set.join_next().await {
                failed = swept.unwrap_or_else(|panic| Err(unknown(&panic))).err().or(failed);
            }
        }
        failed.map_or(Ok(due.len()), Err)
    }

    async fn sweep_session(
        self: Rc<Self>,
        index_key: IndexKey,
        scheduled: Time,
        now: Time,
    ) -> StoreResult<()> {
        let sweep =
            |to| QueuedCommand { command: Sweep.into_command(), now, delists: None, reaps: false, to };
        let id = index_key.session;
        match self.run_command(id, sweep).await {
            Ok(applied) if matches!(applied.outcome, Outcome::Sweep(Swept::Next(_))) => {
                self.database.reschedule(&index_key, scheduled, applied.check_at).await
            }
            Ok(_) => {
                let (to, removed) = oneshot::channel();
                self.enqueue(id, SessionJob::Remove { index_key, now, to }, None);
                let dropped = || StoreError::Unknown("the worker dropped the removal of a session".into());
                removed.await.unwrap_or_else(|_| Err(dropped()))
            }
            Err(error @ StoreError::Corrupt(_)) => {
                // Kept for inspection by an operator, but not swept again soon.
                tracing::error!(session = id.short(), %error, "cannot sweep a session: its data is unreadable");
                self.database.reschedule(&index_key, scheduled, now.plus(self.settings.session_ttl)).await
            }
            Err(error) => {
                tracing::warn!(session = id.short(), %error, "cannot sweep a session; will retry");
                self.database.reschedule(&index_key, scheduled, now.plus(SWEEP_RETRY_DELAY)).await?;
                Err(error)
            }
        }
    }

    async fn join(&self, node: NodeId) -> StoreResult<()> {
        if self.settings.receives_hints {
            self.with_retry(|| self.database.subscribe_node(node)).await?;
        }
        let nodes = [node];
        self.with_retry(|| self.database.send_heartbeat(&nodes)).await?;
        let mut local_nodes = self.local_nodes.borrow_mut();
        if !local_nodes.contains(&node) {
            local_nodes.push(node);
        }
        Ok(())
    }

    /// Reaps the dead nodes. Returns how many were removed from the list of nodes.
    async fn reap(self: &Rc<Self>, now: Time) -> StoreResult<usize> {
        let (mut reaped, mut failed) = (0, None);
        let dead = self.with_retry(|| self.database.dead_nodes()).await?;
        self.sessions_to_skip.borrow_mut().retain(|node, _| dead.contains(node));
        for node in dead {
            // A local node may look dead because this process was stopped for a while. It is
            // running now, so it does not reap itself.
            let is_local = self.local_nodes.borrow().contains(&node);
            if is_local {
                continue;
            }
            match self.release_node(node, now, NodeExit::Dead).await {
                Ok(NodeRelease::Delisted) => reaped += 1,
                Ok(NodeRelease::HoldingsRemain | NodeRelease::Incomplete) => {}
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(reaped), Err)
    }

    async fn leave(self: &Rc<Self>, node: NodeId, now: Time) -> StoreResult<()> {
        self.local_nodes.borrow_mut().retain(|local| *local != node);
        // Wait for a heartbeat in flight: it must not put the node back on the list.
        drop(self.heartbeat_lock.lock().await);
        let mut left = Ok(NodeRelease::Incomplete);
        for _ in 0..MAX_LEAVE_ROUNDS {
            left = self.release_node(node, now, NodeExit::Leaving).await;
            if left != Ok(NodeRelease::Incomplete) {
                break;
            }
        }
        if self.settings.receives_hints
            && let Err(error) = self.database.unsubscribe_node(node).await
        {
            tracing::debug!(%error, "could not unsubscribe from the hints for a node that has left");
        }
        left.map(drop)
    }

    /// Settles what a node holds in all sessions, and removes it from the list of nodes if it holds
    /// nothing any more.
    async fn release_node(
        self: &Rc<Self>,
        node: NodeId,
        now: Time,
        exit: NodeExit,
    ) -> StoreResult<NodeRelease> {
        // Sessions that stay on the node's list are always at its head. Skip them.
        let mut skip = self.sessions_to_skip.borrow_mut().remove(&node).unwrap_or(0);
        loop {
            let wanted = skip.saturating_add(MAX_PARALLEL_SESSIONS);
            let listed = self.with_retry(|| self.database.sessions_of_node(node, wanted)).await?;
            let is_last = listed.len() < wanted;
            let batch = listed.into_iter().skip(skip).collect();
            let BatchResult { released, remaining, error } =
                self.release_sessions(batch, node, now, exit).await;
            if self.with_retry(|| self.database.delist_node(node, &released, exit)).await? {
                return Ok(NodeRelease::Delisted);
            }
            skip += remaining;
            if let Some(error) = error {
                // Each failed session may have used up the whole retry window, so stop here. The
                // next reap continues after this batch.
                if !is_last && exit == NodeExit::Dead {
                    self.sessions_to_skip.borrow_mut().insert(node, skip);
                }
                return Err(error);
            }
            if is_last {
                return Ok(if skip > 0 { NodeRelease::HoldingsRemain } else { NodeRelease::Incomplete });
            }
        }
    }

    /// Settles what a node holds in these sessions. A session that fails does not stop the others.
    async fn release_sessions(
        self: &Rc<Self>,
        sessions: Vec<SessionId>,
        node: NodeId,
        now: Time,
        exit: NodeExit,
    ) -> BatchResult {
        let mut set = JoinSet::new();
        for id in sessions {
            let worker = Rc::clone(self);
            set.spawn_local(async move {
                let (successor, reaps) = match exit {
                    NodeExit::Leaving => (Successor::Reaper, false),
                    // The subscriber names the successor when the command is applied.
                    NodeExit::Dead => (Successor::None, true),
                };
                let command = FailNode { node, successor }.into_command();
                let fail = |to| QueuedCommand { command, now, delists: Some(node), reaps, to };
                (id, worker.run_command(id, fail).await)
            });
        }
        let mut batch = BatchResult::default();
        while let Some(failed) = set.join_next().await {
            match failed {
                Ok((_, Ok(applied))) if has_remaining_holdings(&applied.outcome) => batch.remaining += 1,
                // In a session that does not exist, the node holds nothing in any version.
                Ok((id, Ok(applied))) => batch.released.push((id, applied.version.unwrap_or(u64::MAX))),
                Ok((id, Err(error @ StoreError::Corrupt(_)))) => {
                    tracing::error!(
                        session = id.short(),
                        %error,
                        "cannot release a session from a dead or leaving node: its data is unreadable"
                    );
                    batch.released.push((id, u64::MAX));
                }
                Ok((id, Err(error))) => {
                    tracing::warn!(
                        session = id.short(),
                        %error,
                        "cannot release a session from a dead or leaving node; will retry"
                    );
                    batch.fail(error);
                }
                Err(panic) => batch.fail(unknown(&panic)),
            }
        }
        batch
    }

    async fn reached_limit(&self, principal: &Principal) -> StoreResult<Option<Limit>> {
        let counts = self.with_retry(|| self.database.count_open_sessions(principal)).await?;
        let OpenSessionCounts { total, of_principal } = counts;
        let limits = &self.rules.limits;
        Ok(if total >= limits.sessions {
            Some(Limit::Sessions)
        } else {
            let is_reached = of_principal.is_some_and(|count| count >= limits.sessions_per_principal);
            is_reached.then_some(Limit::SessionsPerPrincipal)
        })
    }

    async fn eviction_sample(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
        from: SessionId,
    ) -> StoreResult<EvictionSample> {
        let rows = self.with_retry(|| self.database.eviction_rows(requester, of, from)).await?;
        let EvictionRows { open, principals, own, largest, .. } = rows;
        let mut sessions = Vec::with_capacity(rows.sessions.len());
        for (IndexKey { session: id, principal }, held_by_principal, meta) in rows.sessions {
            if let Some(last_use) = codec::last_use_of(meta)? {
                sessions.push(SampledSession { id, principal, last_use, held_by_principal });
            }
        }
        Ok(EvictionSample { sessions, open, principals, own, largest })
    }

    /// Returns the usage. The bytes are exact if the sample has all sessions, and otherwise
    /// estimated from the sample.
    async fn usage(&self) -> StoreResult<Usage> {
        let sample = self.with_retry(|| self.database.sample_usage()).await?;
        let sampled = sample.meta_rows.len() as u64;
        let mut bytes = 0;
        for row in sample.meta_rows {
            bytes += codec::bytes_of(row)?;
        }
        if sampled > 0 && sampled < sample.stored {
            bytes = bytes / sampled * sample.stored;
        }
        Ok(Usage { sessions: sample.open, bytes })
    }

    /// Sends a hint in a task of its own, so that no command waits for it. If the hint is lost, the
    /// nodes find the change by polling.
    pub(crate) fn spawn_hint(self: &Rc<Self>, nodes: Vec<NodeId>, hint: ChangeHint) {
        let worker = Rc::clone(self);
        spawn_local(async move {
            if let Err(error) = worker.database.send_hint(&nodes, hint).await {
                let session = hint.session.short();
                tracing::debug!(session, %error, "could not send a change hint to other nodes");
            }
        });
    }
}
