//! Runs the jobs of the writer, one by one, within a transaction.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use steadfast_session::command::{FailNode, NodeFailed, Successor, Sweep, Swept};
use steadfast_session::{
    CallNo, Changes, Command, Facts, Lifecycle, Limit, NodeId, Outcome, Session, SessionId, Time,
};

use super::Writer;
use super::job::{Deferred, Job, PendingReply};
use crate::error::StoreError;
use crate::sqlite::cached_session::CachedSession;
use crate::sqlite::columns::{Column, instant, int};
use crate::sqlite::errors::{affects_one_session, classify_error};
use crate::sqlite::load::load;
use crate::sqlite::persist;
use crate::store::{Opened, newly_forwarded_to, no_session, nodes_gaining_holdings, target_node_missing};

/// After how many sessions a sweep or a reap writes them, so that the cache keeps its limit.
const SESSIONS_PER_FLUSH: usize = 256;

impl Writer<'_> {
    /// Runs one job and defers its reply. An error aborts the whole transaction.
    pub(super) fn handle(&mut self, job: Job) -> rusqlite::Result<()> {
        match job {
            Job::Open { facts, to } => {
                let opened = self.open(facts);
                self.defer_reply(opened, |answer| PendingReply::Opened(to, answer))
            }
            Job::Apply { session, command, now, to } => {
                let outcome = self.apply(session, command, now);
                self.defer_reply(outcome, |answer| PendingReply::Outcome(to, answer))
            }
            Job::Sweep { now, batch, to } => {
                let count = self.sweep(now, batch);
                self.defer_reply(count, |answer| PendingReply::Count(to, answer))
            }
            Job::Join { node, now, to } => {
                let joined = self.join(node, now);
                self.defer_reply(joined, |answer| PendingReply::Done(to, answer.flatten()))
            }
            Job::Reap { now, to } => {
                let count = self.reap(now);
                self.defer_reply(count, |answer| PendingReply::Count(to, answer))
            }
            Job::Leave { node, now, to } => {
                let left = self.leave(node, now);
                self.defer_reply(left, |answer| PendingReply::Done(to, answer))
            }
            Job::ExternalChangeCount { to } => {
                // Updated when this transaction began.
                let seen = self.external_change_count;
                let found = self.find_forwarded_calls();
                self.defer_reply(found, |found| {
                    PendingReply::ExternalChangeCount(to, found.map(|()| Some(seen)))
                })
            }
        }
    }

    /// Looks for calls that other processes have forwarded to local nodes. Other processes cannot
    /// send signals, and the nodes may not know the sessions. So the writer searches once after
    /// each commit of another process.
    fn find_forwarded_calls(&mut self) -> rusqlite::Result<()> {
        let seen = self.external_change_count;
        if seen == self.forwarded_calls_searched_at {
            return Ok(());
        }
        let rows = self.statements.forwarded.query_map([], |row| {
            let (session, call, owner): (_, Column<u64>, _) =
                (row.get::<_, Column<_>>(0)?, row.get(1)?, row.get::<_, Column<_>>(2)?);
            Ok((session.0, CallNo(call.0), owner.0))
        })?;
        let mut forwarded: Vec<(SessionId, CallNo, NodeId)> = rows.collect::<Result<_, _>>()?;
        forwarded.retain(|(_, _, owner)| self.node_locks.holds(*owner));
        self.deferred.push(Deferred::ForwardedCalls(seen, forwarded));
        Ok(())
    }

    /// Defers the reply to a job until the commit. The caller gets a reply even if the transaction
    /// is aborted here.
    fn defer_reply<T>(
        &mut self,
        result: rusqlite::Result<T>,
        answer: impl FnOnce(Result<T, StoreError>) -> PendingReply,
    ) -> rusqlite::Result<()> {
        let (result, verdict) = match isolate(result) {
            Ok(result) => (result, Ok(())),
            Err(error) => (Err(classify_error(&error)), Err(error)),
        };
        self.deferred.push(Deferred::PendingReply(answer(result)));
        verdict
    }

    fn open(&mut self, facts: Facts) -> rusqlite::Result<Opened> {
        if self.cached(facts.id)?.is_some() {
            return Ok(Opened::IdInUse);
        }
        let facts = Arc::new(facts);
        let session = Session::open(Arc::clone(&facts));
        let store_bytes = session.held_bytes();
        if let Some(limit) = self.reached_limit(&facts, store_bytes)? {
            return Ok(Opened::OverLimit(limit));
        }
        let key = self.statements.add_session.insert(params![
            facts.id.as_bytes(),
            facts.principal.as_str(),
            facts.revision.as_str(),
            &facts.initialize[..],
            instant(facts.opened_at),
        ])?;
        self.statements.admit.execute([facts.principal.as_str()])?;
        self.session_delta += 1;
        self.count_bytes(0, store_bytes);
        let mut cached = CachedSession::new(key, session, None);
        let check_at = cached.session.next_check(&self.shared.rules);
        persist::schedule(&mut self.statements, &mut cached, check_at)?;
        cached.dirty.meta = true;
        cached.dirty.listed = true;
        self.unwritten.push(facts.id);
        self.cache.insert(facts.id, cached);
        let mut changes = self.fresh_changes();
        changes.lifecycle.push(Lifecycle::Opened);
        self.deferred.push(Deferred::Signal(Arc::clone(&facts), changes));
        Ok(Opened::Opened(facts))
    }

    fn reached_limit(&mut self, facts: &Facts, bytes: u64) -> rusqlite::Result<Option<Limit>> {
        let limits = &self.shared.rules.limits;
        let sessions: i64 = self.statements.sessions.query_row([], |row| row.get(0))?;
        if (sessions + self.session_delta).cast_unsigned() >= limits.sessions {
            return Ok(Some(Limit::Sessions));
        }
        let own: Option<i64> =
            self.statements.sessions_of.query_row([facts.principal.as_str()], |row| row.get(0)).optional()?;
        if own.unwrap_or(0).cast_unsigned() >= limits.sessions_per_principal {
            return Ok(Some(Limit::SessionsPerPrincipal));
        }
        Ok(self.shared_usage()?.plus(bytes).exceeded_limit(&self.shared.rules.limits))
    }

    fn cached(&mut self, id: SessionId) -> rusqlite::Result<Option<&mut CachedSession>> {
        if self.cache.get(&id).is_none() {
            let Some(cached) = load(&mut self.statements, id)? else { return Ok(None) };
            self.cache.insert(id, cached);
        }
        Ok(self.cache.get(&id))
    }

    fn apply(&mut self, id: SessionId, command: Command, now: Time) -> rusqlite::Result<Outcome> {
        if self.cached(id)?.is_none() {
            return Ok(no_session(&command));
        }
        let shared_usage = self.shared_usage()?;
        let mut changes = self.fresh_changes();
        let Some(cached) = self.cache.get(&id) else { return Ok(no_session(&command)) };
        if let Some(owner) = newly_forwarded_to(&command, &cached.session)
            && !cached.nodes.contains(&owner)
            && (!self.statements.node.exists([int(owner.0)])? || self.node_locks.is_dead(owner))
        {
            self.recycle(changes);
            return Ok(target_node_missing(&command));
        }
        let before = cached.session.held_bytes();
        let nodes = nodes_gaining_holdings(&command);
        let outcome =
            cached.session.apply_with_usage(command, now, &self.shared.rules, shared_usage, &mut changes);
        let after = cached.session.held_bytes();
        persist::write_events(&mut self.statements, cached, &changes)?;
        cached.dirty.add(&changes);
        for node in nodes.into_iter().flatten() {
            if !cached.nodes.contains(&node) {
                self.statements.add_presence.execute([cached.key, int(node.0)])?;
                cached.nodes.push(node);
            }
        }
        // Move the entry only if the session is due earlier than scheduled. If it is due later, the
        // scheduled sweep moves it, so that a busy session is not rescheduled with every command.
        let check_at = cached.session.next_check(&self.shared.rules);
        if check_at.is_some_and(|at| cached.check_at.is_none_or(|scheduled| at < scheduled)) {
            persist::schedule(&mut self.statements, cached, check_at)?;
        }
        if !cached.dirty.listed {
            cached.dirty.listed = true;
            self.unwritten.push(id);
        }
        let facts = Arc::clone(cached.session.facts());
        self.count_bytes(before, after);
        if changes.lifecycle.iter().any(|event| matches!(event, Lifecycle::Closed(_))) {
            self.statements.release.execute([facts.principal.as_str()])?;
            self.statements.forget_principal.execute([facts.principal.as_str()])?;
            self.session_delta -= 1;
        }
        self.defer_signal(facts, changes);
        Ok(outcome)
    }

    fn defer_signal(&mut self, facts: Arc<Facts>, changes: Box<Changes>) {
        if changes.lifecycle.is_empty() && crate::signal::SessionUpdate::of(facts.id, &changes).is_empty() {
            self.recycle(changes);
        } else {
            self.deferred.push(Deferred::Signal(facts, changes));
        }
    }

    fn sweep(&mut self, now: Time, batch: usize) -> rusqlite::Result<usize> {
        self.flush()?;
        let limit = i64::try_from(batch).unwrap_or(i64::MAX);
        let due: Vec<(Time, i64, SessionId)> = self
            .statements
            .due
            .query_map([instant(now), limit], |row| {
                Ok((row.get::<_, Column<_>>(0)?.0, row.get(1)?, row.get::<_, Column<_>>(2)?.0))
            })?
            .collect::<Result<_, _>>()?;
        for (i, (scheduled, key, id)) in due.iter().enumerate() {
            match isolate(self.sweep_one(*id, now))? {
                Ok(()) => {}
                Err(error) => {
                    // Kept for inspection by an operator, but not swept again.
                    tracing::error!(session = id.short(), %error, "cannot sweep a session: its data is unreadable");
                    self.statements.drop_agenda.execute([instant(*scheduled), *key])?;
                }
            }
            if i % SESSIONS_PER_FLUSH == SESSIONS_PER_FLUSH - 1 {
                self.flush()?;
            }
        }
        Ok(due.len())
    }

    fn sweep_one(&mut self, id: SessionId, now: Time) -> rusqlite::Result<()> {
        let outcome = self.apply(id, Command::Sweep(Sweep), now)?;
        let Some(cached) = self.cache.get(&id) else { return Ok(()) };
        if let Outcome::Sweep(Swept::Next(next)) = outcome {
            return persist::schedule(&mut self.statements, cached, next);
        }
        let store_bytes = cached.session.held_bytes();
        persist::remove(&mut self.statements, cached)?;
        self.cache.remove(&id);
        self.count_bytes(store_bytes, 0);
        Ok(())
    }

    fn join(&mut self, node: NodeId, now: Time) -> rusqlite::Result<Result<(), StoreError>> {
        if let Err(error) = self.node_locks.hold(node) {
            let text = format!("cannot lock the file that shows that this node is alive: {error}");
            return Ok(Err(StoreError::Unavailable(text)));
        }
        self.statements.add_node.execute([int(node.0), instant(now)])?;
        // The node may have left just before, in this same transaction.
        self.deferred.retain(|effect| !matches!(effect, Deferred::Unlock(left) if *left == node));
        Ok(Ok(()))
    }

    fn reap(&mut self, now: Time) -> rusqlite::Result<usize> {
        let mut nodes: Vec<NodeId> = self
            .statements
            .nodes
            .query_map([], |row| row.get::<_, Column<_>>(0).map(|Column(node)| node))?
            .collect::<Result<_, _>>()?;
        // Sorted here, because SQL would compare the ids as signed numbers.
        nodes.sort_unstable();
        // A node that leaves in this same transaction gives up its lock after the commit.
        let leaves = |node: &NodeId| {
            self.deferred.iter().any(|effect| matches!(effect, Deferred::Unlock(left) if left == node))
        };
        let dead: Vec<NodeId> =
            nodes.into_iter().filter(|node| self.node_locks.is_dead(*node) || leaves(node)).collect();
        let mut reaped = 0;
        for node in dead {
            let signal_sink = Arc::clone(&self.shared.signal_sink);
            if self.fail_node(node, now, |facts| signal_sink.successor(facts))? {
                self.deferred.push(Deferred::Unlock(node));
                reaped += 1;
            }
        }
        Ok(reaped)
    }

    /// Without its lock the node counts as dead, so that the next reap of another process takes
    /// over what is left.
    fn leave(&mut self, node: NodeId, now: Time) -> rusqlite::Result<()> {
        self.fail_node(node, now, |_| Successor::Reaper)?;
        self.deferred.push(Deferred::Unlock(node));
        Ok(())
    }

    /// Settles what a node holds in every session, and deregisters the node. Returns false if the
    /// node still has calls, which wait for the node that reaps it.
    fn fail_node(
        &mut self,
        node: NodeId,
        now: Time,
        successor: impl Fn(&Facts) -> Successor,
    ) -> rusqlite::Result<bool> {
        self.flush()?;
        let sessions: Vec<SessionId> = self
            .statements
            .sessions_of_node
            .query_map([int(node.0)], |row| row.get::<_, Column<_>>(0).map(|Column(id)| id))?
            .collect::<Result<_, _>>()?;
        let mut holds_nothing = true;
        for (i, id) in sessions.iter().enumerate() {
            match isolate(self.release_session(*id, node, &successor, now))? {
                Ok(left) => holds_nothing &= left == 0,
                Err(error) => {
                    tracing::error!(session = id.short(), %error, "cannot release a session from a dead or leaving node: its data is unreadable");
                }
            }
            if i % SESSIONS_PER_FLUSH == SESSIONS_PER_FLUSH - 1 {
                self.flush()?;
            }
        }
        if holds_nothing {
            self.statements.drop_node.execute([int(node.0)])?;
            self.statements.drop_presence_of_node.execute([int(node.0)])?;
            self.cache.forget_node(node);
        }
        Ok(holds_nothing)
    }

    /// Settles what a node holds in one session. Returns how many calls the node still has.
    fn release_session(
        &mut self,
        id: SessionId,
        node: NodeId,
        successor: impl Fn(&Facts) -> Successor,
        now: Time,
    ) -> rusqlite::Result<u64> {
        let Some(cached) = self.cached(id)? else { return Ok(0) };
        let fail = FailNode { node, successor: successor(cached.session.facts()) };
        match self.apply(id, Command::FailNode(fail), now)? {
            Outcome::FailNode(NodeFailed::Failed { kept, .. }) => Ok(kept),
            _ => Ok(0),
        }
    }
}

/// Separates an error of one unreadable session from errors that abort the transaction.
fn isolate<T>(result: rusqlite::Result<T>) -> rusqlite::Result<Result<T, StoreError>> {
    match result {
        Err(error) if affects_one_session(&error) => Ok(Err(classify_error(&error))),
        other => other.map(Ok),
    }
}
