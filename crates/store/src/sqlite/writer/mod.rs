//! The writer thread. It takes all waiting jobs, runs them in one transaction, commits once, and
//! only then sends replies and signals.

pub(super) mod job;
mod run_jobs;

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use steadfast_session::{CallNo, Changes, NodeId, Rules, SessionId, SharedUsage};

use crate::error::StoreError;
use crate::signal::{SessionUpdate, SignalSink};
use crate::sqlite::cache::Cache;
use crate::sqlite::columns::int;
use crate::sqlite::errors::classify_error;
use crate::sqlite::node_locks::NodeLocks;
use crate::sqlite::persist;
use crate::sqlite::queue::Queue;
use crate::sqlite::statements::WriterStatements;
use job::{Deferred, Job};

/// How many jobs share a transaction. The limit bounds the time that the first of them waits.
const MAX_JOBS_PER_COMMIT: usize = 1024;

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
    pub(super) signal_sink: Arc<SignalSink>,
    pub(super) counters: Arc<Counters>,
}

pub(super) struct Writer<'c> {
    connection: &'c Connection,
    pub(super) statements: WriterStatements<'c>,
    pub(super) shared: Shared,
    pub(super) cache: Cache,
    pub(super) node_locks: NodeLocks,
    /// Sessions with rows that differ from the file.
    pub(super) unwritten: Vec<SessionId>,
    /// How the totals differ from those in the file.
    pub(super) session_delta: i64,
    byte_delta: i64,
    /// The bytes that all sessions hold. `None` until needed, and after another process has
    /// written.
    store_bytes: Option<i64>,
    pub(super) deferred: Vec<Deferred>,
    /// Empty change lists for reuse. Boxed, because they are passed around as boxes.
    #[expect(clippy::vec_box)]
    spare: Vec<Box<Changes>>,
    /// SQLite changes this number when another connection has written to the file.
    data_version: i64,
    /// How often `data_version` has changed.
    pub(super) external_change_count: u64,
    /// The external change count at the last search for forwarded calls.
    pub(super) forwarded_calls_searched_at: u64,
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
    while queue.take(&mut jobs, MAX_JOBS_PER_COMMIT) {
        writer.run_group(&mut jobs);
    }
    Ok(())
}

impl<'c> Writer<'c> {
    fn new(connection: &'c Connection, path: &Path, shared: Shared) -> rusqlite::Result<Self> {
        Ok(Self {
            connection,
            statements: WriterStatements::prepare(connection)?,
            shared,
            cache: Cache::default(),
            node_locks: NodeLocks::new(path),
            unwritten: Vec::new(),
            session_delta: 0,
            byte_delta: 0,
            store_bytes: None,
            deferred: Vec::new(),
            spare: Vec::new(),
            data_version: 0,
            external_change_count: 0,
            forwarded_calls_searched_at: 0,
        })
    }

    fn run_group(&mut self, jobs: &mut Vec<Job>) {
        if let Err(error) = self.begin() {
            let error = classify_error(&error);
            self.roll_back();
            jobs.drain(..).for_each(|job| job.refuse(error.clone()));
            return;
        }
        self.shared.counters.jobs.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        let mut jobs = jobs.drain(..);
        // A panic fails this group and not the store: what the group touched is read again from the
        // file.
        let work = || jobs.by_ref().try_for_each(|job| self.handle(job)).and_then(|()| self.flush());
        let committed = match std::panic::catch_unwind(AssertUnwindSafe(work)) {
            Ok(Ok(())) => {
                self.statements.commit.execute([]).map_err(|error| StoreError::Unknown(error.to_string()))
            }
            Ok(Err(error)) => Err(classify_error(&error)),
            Err(_) => Err(StoreError::Corrupt("a command panicked".into())),
        };
        match committed {
            Ok(_) => self.publish_deferred(),
            Err(error) => {
                tracing::error!(%error, "could not commit a group of commands");
                self.roll_back();
                self.refuse_deferred(&error);
                jobs.for_each(|job| job.refuse(error.clone()));
            }
        }
    }

    /// Begins a transaction, and drops the cache if another process has written since the last one.
    fn begin(&mut self) -> rusqlite::Result<()> {
        self.statements.begin.execute([])?;
        // This transaction has the write lock, so the file cannot change after this check.
        let data_version = self.statements.data_version.query_row([], |row| row.get(0))?;
        if data_version != self.data_version {
            self.cache.clear();
            self.store_bytes = None;
            self.data_version = data_version;
            self.external_change_count += 1;
        }
        Ok(())
    }

    /// Writes all changed sessions to the file, within the transaction.
    pub(super) fn flush(&mut self) -> rusqlite::Result<()> {
        for id in self.unwritten.drain(..) {
            // A session that was removed meanwhile has no rows to write.
            let Some(cached) = self.cache.get(&id) else { continue };
            persist::write_rows(&mut self.statements, cached)?;
            self.cache.update_size(&id);
        }
        if (self.session_delta, self.byte_delta) != (0, 0) {
            self.statements.add_to_total.execute([self.session_delta, self.byte_delta])?;
            (self.session_delta, self.byte_delta) = (0, 0);
        }
        self.cache.trim();
        Ok(())
    }

    /// Updates the total after the bytes of one session changed from `before` to `after`.
    pub(super) fn count_bytes(&mut self, before: u64, after: u64) {
        let delta = int(after) - int(before);
        self.byte_delta += delta;
        self.store_bytes = self.store_bytes.map(|store_bytes| store_bytes + delta);
    }

    /// Returns what all sessions hold. Bytes are not counted per principal: that would be one more
    /// row to write with every command.
    pub(super) fn shared_usage(&mut self) -> rusqlite::Result<SharedUsage> {
        let store_bytes = match self.store_bytes {
            Some(store_bytes) => store_bytes,
            None => self.statements.bytes.query_row([], |row| row.get::<_, i64>(0))? + self.byte_delta,
        };
        self.store_bytes = Some(store_bytes);
        Ok(SharedUsage {
            store_bytes: Some(u64::try_from(store_bytes).unwrap_or_default()),
            principal_bytes: None,
        })
    }

    /// Carries out the deferred effects after the commit.
    fn publish_deferred(&mut self) {
        self.shared.counters.commits.fetch_add(1, Ordering::Relaxed);
        let mut deferred = std::mem::take(&mut self.deferred);
        for effect in deferred.drain(..) {
            match effect {
                Deferred::Signal(facts, changes) => {
                    self.shared.signal_sink.publish(&facts, &changes);
                    self.recycle(changes);
                }
                Deferred::ForwardedCalls(seen, forwarded) => {
                    self.forwarded_calls_searched_at = seen;
                    self.signal_forwarded_calls(&forwarded);
                }
                Deferred::PendingReply(answer) => answer.send(),
                Deferred::Unlock(node) => self.node_locks.release(node),
            }
        }
        self.deferred = deferred;
    }

    fn signal_forwarded_calls(&self, forwarded: &[(SessionId, CallNo, NodeId)]) {
        for of_session in forwarded.chunk_by(|(one, ..), (other, ..)| one == other) {
            let calls: Vec<_> = of_session.iter().map(|(_, call, owner)| (*call, *owner)).collect();
            if let Some((session, ..)) = of_session.first() {
                self.shared.signal_sink.signal_update(SessionUpdate::of_forwarded_calls(*session, &calls));
            }
        }
    }

    /// Sends an error for each deferred reply, because there was no commit.
    fn refuse_deferred(&mut self, error: &StoreError) {
        for effect in self.deferred.drain(..) {
            if let Deferred::PendingReply(answer) = effect {
                answer.refuse(error.clone());
            }
        }
    }

    /// Rolls back the transaction and drops everything that may differ from the file.
    fn roll_back(&mut self) {
        self.cache.clear();
        self.unwritten.clear();
        (self.session_delta, self.byte_delta) = (0, 0);
        self.store_bytes = None;
        // SQLite may have rolled back by itself.
        if !self.connection.is_autocommit()
            && let Err(error) = self.statements.rollback.execute([])
        {
            tracing::error!(%error, "could not roll back a transaction");
        }
    }

    pub(super) fn fresh_changes(&mut self) -> Box<Changes> {
        self.spare.pop().unwrap_or_default()
    }

    pub(super) fn recycle(&mut self, mut changes: Box<Changes>) {
        if self.spare.len() < MAX_JOBS_PER_COMMIT {
            changes.clear();
            self.spare.push(changes);
        }
    }
}
