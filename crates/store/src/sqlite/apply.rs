//! The writer's jobs, one by one, within a transaction.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use steadfast_session::command::{FailNode, Heir, NodeFailed, Sweep, Swept};
use steadfast_session::{
    CallNo, Changes, Command, Facts, Lifecycle, Limit, NodeId, Outcome, Session, SessionId, Time,
};

use super::failure::{concerns_one_session, not_done};
use super::job::{Answer, Deferred, Job};
use super::load::load;
use super::persist;
use super::slot::Slot;
use super::value::{Col, instant, int};
use super::writer::Writer;
use crate::error::StoreError;
use crate::store::{Opened, holders, newly_mailed_to, no_session, not_there};

/// Sessions that a sweep or a burial changes before it writes them, so that the cache keeps its bound.
const STRIDE: usize = 256;

impl Writer<'_> {
    /// Does one job and defers its answer. An error ends the whole transaction.
    pub(super) fn handle(&mut self, job: Job) -> rusqlite::Result<()> {
        match job {
            Job::Open { facts, to } => {
                let opened = self.open(facts);
                self.owe(opened, |answer| Answer::Opened(to, answer))
            }
            Job::Apply { session, command, now, to } => {
                let outcome = self.apply(session, command, now);
                self.owe(outcome, |answer| Answer::Outcome(to, answer))
            }
            Job::Sweep { now, batch, to } => {
                let count = self.sweep(now, batch);
                self.owe(count, |answer| Answer::Count(to, answer))
            }
            Job::Join { node, now, to } => {
                let joined = self.join(node, now);
                self.owe(joined, |answer| Answer::Done(to, answer.flatten()))
            }
            Job::Bury { now, to } => {
                let count = self.bury(now);
                self.owe(count, |answer| Answer::Count(to, answer))
            }
            Job::Leave { node, now, to } => {
                let left = self.leave(node, now);
                self.owe(left, |answer| Answer::Done(to, answer))
            }
            Job::Elsewhere { to } => {
                // Noticed when this transaction began.
                let seen = self.changes_elsewhere;
                let found = self.find_errands();
                self.owe(found, |found| Answer::Elsewhere(to, found.map(|()| Some(seen))))
            }
        }
    }

    /// Nobody tells this process of calls that others give to its nodes, which may know nothing of their sessions. So it looks,
    /// once after each change of others.
    fn find_errands(&mut self) -> rusqlite::Result<()> {
        let seen = self.changes_elsewhere;
        if seen == self.errands_looked_for {
            return Ok(());
        }
        let rows = self.sql.errands.query_map([], |row| {
            let (session, call, owner): (_, Col<u64>, _) =
                (row.get::<_, Col<_>>(0)?, row.get(1)?, row.get::<_, Col<_>>(2)?);
            Ok((session.0, CallNo(call.0), owner.0))
        })?;
        let mut errands: Vec<(SessionId, CallNo, NodeId)> = rows.collect::<Result<_, _>>()?;
        errands.retain(|(_, _, owner)| self.locks.holds(*owner));
        self.deferred.push(Deferred::Errands(seen, errands));
        Ok(())
    }

    /// Defers an answer. Whoever waits gets one even if the transaction ends here.
    fn owe<T>(
        &mut self,
        result: rusqlite::Result<T>,
        answer: impl FnOnce(Result<T, StoreError>) -> Answer,
    ) -> rusqlite::Result<()> {
        let (result, verdict) = match isolate(result) {
            Ok(result) => (result, Ok(())),
            Err(error) => (Err(not_done(&error)), Err(error)),
        };
        self.deferred.push(Deferred::Answer(answer(result)));
        verdict
    }

    fn open(&mut self, facts: Facts) -> rusqlite::Result<Opened> {
        if self.slot(facts.id)?.is_some() {
            return Ok(Opened::Taken);
        }
        let facts = Arc::new(facts);
        let session = Session::open(Arc::clone(&facts));
        let held = session.held_bytes();
        if let Some(limit) = self.no_room_for(&facts, held)? {
            return Ok(Opened::OverLimit(limit));
        }
        let key = self.sql.add_session.insert(params![
            facts.id.as_bytes(),
            facts.principal.as_str(),
            facts.revision.as_str(),
            &facts.initialize[..],
            instant(facts.opened_at),
        ])?;
        self.sql.admit.execute([facts.principal.as_str()])?;
        self.more_sessions += 1;
        self.count_bytes(0, held);
        let mut slot = Slot::new(key, session, None);
        let check_at = slot.session.next_check(&self.shared.rules);
        persist::schedule(&mut self.sql, &mut slot, check_at)?;
        slot.dirty.meta = true;
        slot.dirty.listed = true;
        self.unwritten.push(facts.id);
        self.cache.insert(facts.id, slot);
        let mut changes = self.fresh_changes();
        changes.lifecycle.push(Lifecycle::Opened);
        self.deferred.push(Deferred::Signal(Arc::clone(&facts), changes));
        Ok(Opened::Opened(facts))
    }

    fn no_room_for(&mut self, facts: &Facts, bytes: u64) -> rusqlite::Result<Option<Limit>> {
        let limits = &self.shared.rules.limits;
        let sessions: i64 = self.sql.sessions.query_row([], |row| row.get(0))?;
        if (sessions + self.more_sessions).cast_unsigned() >= limits.sessions {
            return Ok(Some(Limit::Sessions));
        }
        let own: Option<i64> =
            self.sql.sessions_of.query_row([facts.principal.as_str()], |row| row.get(0)).optional()?;
        if own.unwrap_or(0).cast_unsigned() >= limits.sessions_per_principal {
            return Ok(Some(Limit::SessionsPerPrincipal));
        }
        Ok(self.crowd()?.and(bytes).over(&self.shared.rules.limits))
    }

    fn slot(&mut self, id: SessionId) -> rusqlite::Result<Option<&mut Slot>> {
        if self.cache.get(&id).is_none() {
            let Some(slot) = load(&mut self.sql, id)? else { return Ok(None) };
            self.cache.insert(id, slot);
        }
        Ok(self.cache.get(&id))
    }

    fn apply(&mut self, id: SessionId, command: Command, now: Time) -> rusqlite::Result<Outcome> {
        if self.slot(id)?.is_none() {
            return Ok(no_session(&command));
        }
        let crowd = self.crowd()?;
        let mut changes = self.fresh_changes();
        let Some(slot) = self.cache.get(&id) else { return Ok(no_session(&command)) };
        if let Some(owner) = newly_mailed_to(&command, &slot.session)
            && !slot.nodes.contains(&owner)
            && (!self.sql.node.exists([int(owner.0)])? || self.locks.is_dead(owner))
        {
            self.recycle(changes);
            return Ok(not_there(&command));
        }
        let before = slot.session.held_bytes();
        let nodes = holders(&command);
        let outcome = slot.session.apply_among(command, now, &self.shared.rules, crowd, &mut changes);
        let after = slot.session.held_bytes();
        persist::log(&mut self.sql, slot, &changes)?;
        slot.dirty.add(&changes);
        for node in nodes.into_iter().flatten() {
            if !slot.nodes.contains(&node) {
                self.sql.add_presence.execute([slot.key, int(node.0)])?;
                slot.nodes.push(node);
            }
        }
        // Earlier than agreed: look earlier. Later than agreed: the sweep will see, so that a busy session does
        // not move in the agenda with each request.
        let check_at = slot.session.next_check(&self.shared.rules);
        if check_at.is_some_and(|at| slot.check_at.is_none_or(|agreed| at < agreed)) {
            persist::schedule(&mut self.sql, slot, check_at)?;
        }
        if !slot.dirty.listed {
            slot.dirty.listed = true;
            self.unwritten.push(id);
        }
        let facts = Arc::clone(slot.session.facts());
        self.count_bytes(before, after);
        if changes.lifecycle.iter().any(|event| matches!(event, Lifecycle::Closed(_))) {
            self.sql.release.execute([facts.principal.as_str()])?;
            self.sql.forget_principal.execute([facts.principal.as_str()])?;
            self.more_sessions -= 1;
        }
        self.defer_signal(facts, changes);
        Ok(outcome)
    }

    fn defer_signal(&mut self, facts: Arc<Facts>, changes: Box<Changes>) {
        if changes.lifecycle.is_empty() && crate::signal::News::of(facts.id, &changes).is_empty() {
            self.recycle(changes);
        } else {
            self.deferred.push(Deferred::Signal(facts, changes));
        }
    }

    fn sweep(&mut self, now: Time, batch: usize) -> rusqlite::Result<usize> {
        self.flush()?;
        let limit = i64::try_from(batch).unwrap_or(i64::MAX);
        let due: Vec<(Time, i64, SessionId)> = self
            .sql
            .due
            .query_map([instant(now), limit], |row| {
                Ok((row.get::<_, Col<_>>(0)?.0, row.get(1)?, row.get::<_, Col<_>>(2)?.0))
            })?
            .collect::<Result<_, _>>()?;
        for (i, (agreed, key, id)) in due.iter().enumerate() {
            match isolate(self.sweep_one(*id, now))? {
                Ok(()) => {}
                Err(error) => {
                    // Left as it is for somebody to look at, but not again and again.
                    tracing::error!(session = id.short(), %error, "a session cannot be swept");
                    self.sql.drop_agenda.execute([instant(*agreed), *key])?;
                }
            }
            if i % STRIDE == STRIDE - 1 {
                self.flush()?;
            }
        }
        Ok(due.len())
    }

    fn sweep_one(&mut self, id: SessionId, now: Time) -> rusqlite::Result<()> {
        let outcome = self.apply(id, Command::Sweep(Sweep), now)?;
        let Some(slot) = self.cache.get(&id) else { return Ok(()) };
        if let Outcome::Sweep(Swept::Next(next)) = outcome {
            return persist::schedule(&mut self.sql, slot, next);
        }
        let held = slot.session.held_bytes();
        persist::remove(&mut self.sql, slot)?;
        self.cache.remove(&id);
        self.count_bytes(held, 0);
        Ok(())
    }

    fn join(&mut self, node: NodeId, now: Time) -> rusqlite::Result<Result<(), StoreError>> {
        if let Err(error) = self.locks.hold(node) {
            let text = format!("cannot lock the file that shows that this process is alive: {error}");
            return Ok(Err(StoreError::Unavailable(text)));
        }
        self.sql.add_node.execute([int(node.0), instant(now)])?;
        // It may have left just before, in this same transaction.
        self.deferred.retain(|effect| !matches!(effect, Deferred::Unlock(left) if *left == node));
        Ok(Ok(()))
    }

    fn bury(&mut self, now: Time) -> rusqlite::Result<usize> {
        let mut nodes: Vec<NodeId> = self
            .sql
            .nodes
            .query_map([], |row| row.get::<_, Col<_>>(0).map(|Col(node)| node))?
            .collect::<Result<_, _>>()?;
        // In the order of their ids, which SQL would take for signed numbers.
        nodes.sort_unstable();
        let dead: Vec<NodeId> = nodes.into_iter().filter(|node| self.locks.is_dead(*node)).collect();
        let mut buried = 0;
        for node in dead {
            let outlet = Arc::clone(&self.shared.outlet);
            if self.fail_node(node, now, |facts| outlet.heir(facts))? {
                self.deferred.push(Deferred::Unlock(node));
                buried += 1;
            }
        }
        Ok(buried)
    }

    /// Without its lock a node counts as dead, so that whoever looks next takes over what it leaves.
    fn leave(&mut self, node: NodeId, now: Time) -> rusqlite::Result<()> {
        self.fail_node(node, now, |_| Heir::Later)?;
        self.deferred.push(Deferred::Unlock(node));
        Ok(())
    }

    /// Frees every session of a node and strikes it off the list. `false` if something is left for others.
    fn fail_node(
        &mut self,
        node: NodeId,
        now: Time,
        heir: impl Fn(&Facts) -> Heir,
    ) -> rusqlite::Result<bool> {
        self.flush()?;
        let sessions: Vec<SessionId> = self
            .sql
            .sessions_of_node
            .query_map([int(node.0)], |row| row.get::<_, Col<_>>(0).map(|Col(id)| id))?
            .collect::<Result<_, _>>()?;
        let mut is_free = true;
        for (i, id) in sessions.iter().enumerate() {
            match isolate(self.free(*id, node, &heir, now))? {
                Ok(left) => is_free &= left == 0,
                Err(error) => {
                    tracing::error!(session = id.short(), %error, "a session cannot be freed of a node");
                }
            }
            if i % STRIDE == STRIDE - 1 {
                self.flush()?;
            }
        }
        if is_free {
            self.sql.drop_node.execute([int(node.0)])?;
            self.sql.drop_presence_of_node.execute([int(node.0)])?;
            self.cache.forget_node(node);
        }
        Ok(is_free)
    }

    /// Gives how many calls are still the node's.
    fn free(
        &mut self,
        id: SessionId,
        node: NodeId,
        heir: impl Fn(&Facts) -> Heir,
        now: Time,
    ) -> rusqlite::Result<u64> {
        let Some(slot) = self.slot(id)? else { return Ok(0) };
        let fail = FailNode { node, heir: heir(slot.session.facts()) };
        match self.apply(id, Command::FailNode(fail), now)? {
            Outcome::FailNode(NodeFailed::Failed { left, .. }) => Ok(left),
            _ => Ok(0),
        }
    }
}

/// Keeps one unreadable session from failing everybody's transaction.
fn isolate<T>(result: rusqlite::Result<T>) -> rusqlite::Result<Result<T, StoreError>> {
    match result {
        Err(error) if concerns_one_session(&error) => Ok(Err(not_done(&error))),
        other => other.map(Ok),
    }
}
