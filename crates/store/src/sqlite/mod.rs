//! [`SqliteStore`]: keeps sessions in a SQLite file. They survive the process, and several
//! processes on one machine can share them.
//!
//! One thread writes. It takes all waiting commands, applies each to the session in memory by the
//! rules of [`steadfast_session`], writes the rows that changed, and commits once. Only then does
//! it send replies and signals. So the session rules exist only in Rust and not in SQL, and all
//! waiting commands share the cost of one commit.
//!
//! Other processes may write to the same file. Each transaction first takes the write lock of the
//! file. If another process has committed since the last transaction, the writer drops all sessions
//! in memory and reads them again.

mod cache;
mod cached_session;
mod columns;
mod errors;
mod load;
mod node_locks;
mod open_file;
mod persist;
mod queue;
mod reader;
mod statements;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use steadfast_session::{
    Command, Facts, Holdings, Limit, NodeId, Outcome, Principal, Read, Rules, SessionId, StreamNo, Time,
};
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::reply::Reply;
use crate::signal::Subscriber;
use crate::store::{EvictionSample, Opened, Store, Usage};
use queue::{PushError, Queue};
use reader::Query;
use writer::Shared;
use writer::job::Job;

/// How many commands may wait for the writer. Beyond that, callers wait.
const MAX_QUEUED_JOBS: usize = 8192;

/// How many queries may wait for a reader.
const MAX_QUEUED_QUERIES: usize = 8192;

/// How often nodes poll for what other processes have written. One poll costs some microseconds.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The number of reader threads.
const READERS: usize = 2;

/// How to use the file.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// What an acknowledged command survives.
    pub durability: Durability,
    /// How long to wait while another process writes.
    pub busy_timeout: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { durability: Durability::default(), busy_timeout: Duration::from_secs(5) }
    }
}

/// What an acknowledged command survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process, however it ends. A power cut may lose the last commands but never
    /// damages the file.
    #[default]
    Process,
    /// Also a power cut: each group of commands is flushed to the disk before it is acknowledged.
    Power,
}

/// How many commands shared a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteStats {
    /// Commands and other jobs that the writer has done.
    pub jobs: u64,
    /// Transactions that these jobs took.
    pub commits: u64,
}

/// A store in a file, for processes of one machine. Dropping it waits until all queued operations
/// are done.
#[derive(Debug)]
pub struct SqliteStore {
    shared: Shared,
    jobs: Arc<Queue<Job>>,
    queries: Arc<Queue<Query>>,
    /// The writer, then the readers.
    threads: Vec<JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens the file, or creates it. Its directory must exist. Fails if the file is not usable as
    /// a session store.
    pub fn open(path: &Path, rules: Rules, options: SqliteOptions) -> Result<Self, StoreError> {
        let connection = open_file::open_writer(path, &options)?;
        open_file::refuse_read_only(path, &connection)?;
        let shared = Shared { rules: Arc::new(rules), signal_sink: Arc::default(), counters: Arc::default() };
        // Constructed before the first thread starts, so that the threads end if a later one fails
        // to start.
        let mut store = Self {
            shared: shared.clone(),
            jobs: Arc::new(Queue::new(MAX_QUEUED_JOBS)),
            queries: Arc::new(Queue::new(MAX_QUEUED_QUERIES)),
            threads: Vec::new(),
        };
        let (file, jobs) = (path.to_owned(), Arc::clone(&store.jobs));
        store.spawn("sqlite-writer", Arc::clone(&store.jobs), move || {
            writer::run(&connection, &file, shared, &jobs)
        })?;
        for _ in 0..READERS {
            let connection = open_file::open_reader(path, &options)?;
            let (file, queries) = (path.to_owned(), Arc::clone(&store.queries));
            store.spawn("sqlite-reader", Arc::clone(&store.queries), move || {
                reader::run(&connection, &file, &queries)
            })?;
        }
        Ok(store)
    }

    /// Returns how many jobs and commits the writer has done.
    pub fn stats(&self) -> SqliteStats {
        let counters = &self.shared.counters;
        SqliteStats {
            jobs: counters.jobs.load(Ordering::Relaxed),
            commits: counters.commits.load(Ordering::Relaxed),
        }
    }

    fn spawn<T: Send + 'static>(
        &mut self,
        name: &str,
        queue: Arc<Queue<T>>,
        run: impl FnOnce() -> rusqlite::Result<()> + Send + 'static,
    ) -> Result<(), StoreError> {
        let body = move || {
            // However the thread ends, no caller must wait for it any more.
            let _end = queue::CloseOnDrop(&*queue);
            if let Err(error) = run() {
                tracing::error!(%error, "a thread of the session store could not start");
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
        let thread =
            thread.map_err(|error| StoreError::Unavailable(format!("cannot start a thread: {error}")))?;
        self.threads.push(thread);
        Ok(())
    }
}

fn submit<J: Send + 'static, T: Send + Unpin + 'static>(
    queue: &Arc<Queue<J>>,
    job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> J,
) -> Reply<T> {
    let (to, answer) = oneshot::channel();
    match queue.push(job(to)) {
        Ok(()) => Reply::Waiting(answer),
        Err(PushError::Closed) => Reply::ready(Err(closed())),
        Err(PushError::Full(job)) => {
            let queue = Arc::clone(queue);
            Reply::later(async move {
                queue.push_when_possible(job).await.map_err(|_| closed())?;
                Reply::Waiting(answer).await
            })
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the threads of the store have ended".into())
}

impl Store for SqliteStore {
    fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    fn open(&self, facts: Facts) -> Reply<Opened> {
        submit(&self.jobs, |to| Job::Open { facts, to })
    }

    fn reached_limit(&self, principal: &Principal) -> Reply<Option<Limit>> {
        let (principal, rules) = (principal.clone(), Arc::clone(&self.shared.rules));
        submit(&self.queries, |to| Query::ReachedLimit { principal, rules, to })
    }

    fn eviction_sample(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
        from: SessionId,
    ) -> Reply<EvictionSample> {
        let (requester, of) = (requester.clone(), of.cloned());
        submit(&self.queries, |to| Query::EvictionSample { requester, of, from, to })
    }

    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome> {
        submit(&self.jobs, |to| Job::Apply { session, command, now, to })
    }

    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read> {
        submit(&self.queries, |to| Query::Read { session, stream, after, budget, to })
    }

    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>> {
        submit(&self.queries, |to| Query::Facts { session, to })
    }

    fn holdings(&self, session: SessionId, node: NodeId) -> Reply<Holdings> {
        submit(&self.queries, |to| Query::Holdings { session, node, to })
    }

    fn sweep(&self, now: Time, batch: usize) -> Reply<usize> {
        submit(&self.jobs, |to| Job::Sweep { now, batch, to })
    }

    fn join(&self, node: NodeId, now: Time) -> Reply<()> {
        submit(&self.jobs, |to| Job::Join { node, now, to })
    }

    fn is_alive(&self, node: NodeId) -> Reply<bool> {
        submit(&self.queries, |to| Query::IsAlive { node, to })
    }

    fn reap_dead_nodes(&self, now: Time) -> Reply<usize> {
        submit(&self.jobs, |to| Job::Reap { now, to })
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        submit(&self.jobs, |to| Job::Leave { node, now, to })
    }

    /// Returns the interval: other processes share the file and cannot send signals.
    fn poll_interval(&self) -> Option<Duration> {
        Some(POLL_INTERVAL)
    }

    fn external_change_count(&self) -> Reply<Option<u64>> {
        submit(&self.jobs, |to| Job::ExternalChangeCount { to })
    }

    fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.shared.signal_sink.set(subscriber);
    }

    fn ping(&self) -> Reply<()> {
        submit(&self.queries, |to| Query::Ping { to })
    }

    fn usage(&self) -> Reply<Usage> {
        submit(&self.queries, |to| Query::Usage { to })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // Stop the readers first. The last connection to the file cleans up the write-ahead log,
        // and readers are not allowed to write.
        self.queries.close();
        self.threads.drain(self.threads.len().min(1)..).for_each(wait_for);
        self.jobs.close();
        self.threads.drain(..).for_each(wait_for);
    }
}

fn wait_for(thread: JoinHandle<()>) {
    // A subscriber may drop the last reference to its store on a thread of the store, which cannot
    // wait for itself.
    if thread.thread().id() != thread::current().id() && thread.join().is_err() {
        tracing::error!("a thread of the session store panicked");
    }
}
