//! The one thread that writes: it takes all jobs that wait, does them in one transaction, commits once, and only
//! then lets anybody know.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use steadfast_session::{CallNo, Changes, Crowd, NodeId, Rules, SessionId};

use super::cache::Cache;
use super::failure::not_done;
use super::job::{Deferred, Job};
use super::locks::Locks;
use super::persist;
use super::queue::Queue;
use super::sql::WriterSql;
use super::value::int;
use crate::error::StoreError;
use crate::signal::{News, Outlet};

/// Jobs in one transaction, so that the first of them does not wait for ever longer.
const GROUP: usize = 1024;

/// What the writer has done, for tests and metrics.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) commits: AtomicU64,
    pub(super) jobs: AtomicU64,
}

/// What the writer shares with the store.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) rules: Arc<Rules>,
    pub(super) outlet: Arc<Outlet>,
    pub(super) counters: Arc<Counters>,
}

pub(super) struct Writer<'c> {
    connection: &'c Connection,
    pub(super) sql: WriterSql<'c>,
    pub(super) shared: Shared,
    pub(super) cache: Cache,
    pub(super) locks: Locks,
    /// Sessions with rows that differ from the file.
    pub(super) unwritten: Vec<SessionId>,
    /// How the totals differ from the file.
    pub(super) more_sessions: i64,
    more_bytes: i64,
    /// What all sessions hold, once it was asked for and while nobody else writes.
    held: Option<i64>,
    pub(super) deferred: Vec<Deferred>,
    /// Emptied lists, for reuse. Boxed, because they come and go as such.
    #[expect(clippy::vec_box)]
    spare: Vec<Box<Changes>>,
    /// Changes when another connection has written to the file.
    data_version: i64,
    /// How often that was seen.
    pub(super) changes_elsewhere: u64,
    /// How often it had been when calls that others give to this process were looked for.
    pub(super) errands_looked_for: u64,
}

/// Runs until the queue is closed and empty.
pub(super) fn run(
    connection: &Connection,
    path: &Path,
    shared: Shared,
    queue: &Queue<Job>,
) -> rusqlite::Result<()> {
    let mut writer = Writer::new(connection, path, shared)?;
    let mut jobs = Vec::new();
    while queue.take(&mut jobs, GROUP) {
        writer.run_group(&mut jobs);
    }
    Ok(())
}

impl<'c> Writer<'c> {
    fn new(connection: &'c Connection, path: &Path, shared: Shared) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            sql: WriterSql::prepare(connection)?,
            shared,
            cache: Cache::default(),
            locks: Locks::new(path),
            unwritten: Vec::new(),
            more_sessions: 0,
            more_bytes: 0,
            held: None,
            deferred: Vec::new(),
            spare: Vec::new(),
            data_version: 0,
            changes_elsewhere: 0,
            errands_looked_for: 0,
        })
    }

    fn run_group(&mut self, jobs: &mut Vec<Job>) {
        if let Err(error) = self.begin() {
            let error = not_done(&error);
            self.roll_back();
            jobs.drain(..).for_each(|job| job.refuse(error.clone()));
            return;
        }
        self.shared.counters.jobs.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        let mut jobs = jobs.drain(..);
        // A bug that shows as a panic costs this group, not the store: what it touched is read anew from the file.
        let work = || jobs.by_ref().try_for_each(|job| self.handle(job)).and_then(|()| self.flush());
        let committed = match std::panic::catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => self.sql.commit.execute([]).map_err(|error| StoreError::Unknown(error.to_string())),
            Ok(Err(error)) => Err(not_done(&error)),
            Err(_) => Err(StoreError::Corrupt("a command could not be applied".into())),
        };
        match committed {
            Ok(_) => self.let_everybody_know(),
            Err(error) => {
                tracing::error!(%error, "a group of commands was not committed");
                self.roll_back();
                self.refuse_everybody(&error);
                jobs.for_each(|job| job.refuse(error.clone()));
            }
        }
    }

    fn begin(&mut self) -> rusqlite::Result<()> {
        self.sql.begin.execute([])?;
        // The write lock is ours now, so nobody can change the file behind this check.
        let data_version = self.sql.data_version.query_row([], |row| row.get(0))?;
        if data_version != self.data_version {
            self.cache.clear();
            self.held = None;
            self.data_version = data_version;
            self.changes_elsewhere += 1;
        }
        Ok(())
    }

    /// Brings the file up to date with the sessions in memory, within the transaction.
    pub(super) fn flush(&mut self) -> rusqlite::Result<()> {
        for id in self.unwritten.drain(..) {
            // A session that was removed in the meantime has no rows to write.
            let Some(slot) = self.cache.get(&id) else { continue };
            persist::rows(&mut self.sql, slot)?;
            self.cache.weigh(&id);
        }
        if (self.more_sessions, self.more_bytes) != (0, 0) {
            self.sql.add_to_total.execute([self.more_sessions, self.more_bytes])?;
            (self.more_sessions, self.more_bytes) = (0, 0);
        }
        self.cache.trim();
        Ok(())
    }

    /// A session holds so much in place of so much.
    pub(super) fn count_bytes(&mut self, before: u64, after: u64) {
        let more = int(after) - int(before);
        self.more_bytes += more;
        self.held = self.held.map(|held| held + more);
    }

    /// What all sessions hold. Those of a principal are not counted apart: that would be one more row to write with each command.
    pub(super) fn crowd(&mut self) -> rusqlite::Result<Crowd> {
        let held = match self.held {
            Some(held) => held,
            None => self.sql.bytes.query_row([], |row| row.get::<_, i64>(0))? + self.more_bytes,
        };
        self.held = Some(held);
        Ok(Crowd { store_bytes: Some(u64::try_from(held).unwrap_or_default()), principal_bytes: None })
    }

    fn let_everybody_know(&mut self) {
        self.shared.counters.commits.fetch_add(1, Ordering::Relaxed);
        let mut deferred = std::mem::take(&mut self.deferred);
        for effect in deferred.drain(..) {
            match effect {
                Deferred::Signal(facts, changes) => {
                    self.shared.outlet.publish(&facts, &changes);
                    self.recycle(changes);
                }
                Deferred::Errands(seen, errands) => {
                    self.errands_looked_for = seen;
                    self.tell_of_errands(&errands);
                }
                Deferred::Answer(answer) => answer.send(),
                Deferred::Unlock(node) => self.locks.release(node),
            }
        }
        self.deferred = deferred;
    }

    fn tell_of_errands(&self, errands: &[(SessionId, CallNo, NodeId)]) {
        for of_session in errands.chunk_by(|(one, ..), (other, ..)| one == other) {
            let calls: Vec<_> = of_session.iter().map(|(_, call, owner)| (*call, *owner)).collect();
            if let Some((session, ..)) = of_session.first() {
                self.shared.outlet.publish_found(News::of_errands(*session, &calls));
            }
        }
    }

    fn refuse_everybody(&mut self, error: &StoreError) {
        for effect in self.deferred.drain(..) {
            if let Deferred::Answer(answer) = effect {
                answer.refuse(error.clone());
            }
        }
    }

    /// Goes back to what the file says.
    fn roll_back(&mut self) {
        self.cache.clear();
        self.unwritten.clear();
        (self.more_sessions, self.more_bytes) = (0, 0);
        self.held = None;
        // SQLite may have rolled back by itself.
        if !self.connection.is_autocommit()
            && let Err(error) = self.sql.rollback.execute([])
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }

    pub(super) fn fresh_changes(&mut self) -> Box<Changes> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn recycle(&mut self, mut changes: Box<Changes>) {
        if self.spare.len() < GROUP {
            changes.clear();
            self.spare.push(changes);
        }
    }
}
