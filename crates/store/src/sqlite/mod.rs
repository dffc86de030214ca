//! Sessions in a SQLite file: they survive the process, and several processes on one machine may share them.
//!
//! One thread writes. It takes all commands that wait, applies each to the session in its hands by the rules of
//! [`steadfast_session`], writes the rows that changed, commits once, and only then answers and signals. The
//! rules are therefore not repeated in SQL, and the price of a commit is shared by whoever is waiting.
//!
//! Other processes may write to the same file: a transaction begins with taking the file's write lock, and if
//! anybody else has committed since, whatever the writer had in memory is forgotten and read again.

mod apply;
mod cache;
mod failure;
mod job;
mod load;
mod locks;
mod persist;
mod queue;
mod reader;
mod schema;
mod slot;
mod sql;
mod value;
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
use crate::store::{Opened, Store, Usage};
use job::Job;
use queue::{Queue, Refused};
use reader::Query;
use writer::Shared;

/// Commands that wait for the writer. Beyond that, callers wait for room.
const QUEUED_JOBS: usize = 8192;

/// Reads that wait for a reader.
const QUEUED_QUERIES: usize = 8192;

/// How often a waiting reader looks for what other processes have written. One look costs some microseconds.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Threads that read.
const READERS: usize = 2;

/// How the file is used.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
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
    /// The end of the process, however it comes. A power cut may lose the last commands, never the file.
    #[default]
    Process,
    /// A power cut as well: each group of commands is forced to the disk before it is acknowledged.
    Power,
}

/// How much work was shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqliteStats {
    /// Commands and other jobs that were done.
    pub jobs: u64,
    /// Transactions that they took.
    pub commits: u64,
}

/// The store for one machine. Dropping it finishes what is queued.
#[derive(Debug)]
pub struct SqliteStore {
    shared: Shared,
    jobs: Arc<Queue<Job>>,
    queries: Arc<Queue<Query>>,
    /// The writer, then the readers.
    threads: Vec<JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens the file, or makes it. Its directory must exist.
    pub fn open(path: &Path, rules: Rules, options: SqliteOptions) -> Result<Self, StoreError> {
        let connection = schema::open_writer(path, &options)?;
        schema::refuse_read_only(path, &connection)?;
        let shared = Shared { rules: Arc::new(rules), outlet: Arc::default(), counters: Arc::default() };
        // Named before the first thread starts: if a later one fails to, dropping this ends the others.
        let mut store = Self {
            shared: shared.clone(),
            jobs: Arc::new(Queue::new(QUEUED_JOBS)),
            queries: Arc::new(Queue::new(QUEUED_QUERIES)),
            threads: Vec::new(),
        };
        let (file, jobs) = (path.to_owned(), Arc::clone(&store.jobs));
        store.spawn("sqlite-writer", Arc::clone(&store.jobs), move || {
            writer::run(&connection, &file, shared, &jobs)
        })?;
        for _ in 0..READERS {
            let connection = schema::open_reader(path, &options)?;
            let (file, queries) = (path.to_owned(), Arc::clone(&store.queries));
            store.spawn("sqlite-reader", Arc::clone(&store.queries), move || {
                reader::run(&connection, &file, &queries)
            })?;
        }
        Ok(store)
    }

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
            // However the thread ends, nobody may wait for it any more.
            let _end = queue::Abandon(&*queue);
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

/// Queues a job and gives the promise of its answer.
fn submit<J: Send + 'static, T: Send + Unpin + 'static>(
    queue: &Arc<Queue<J>>,
    job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> J,
) -> Reply<T> {
    let (to, answer) = oneshot::channel();
    match queue.push(job(to)) {
        Ok(()) => Reply::Waiting(answer),
        Err(Refused::Closed) => Reply::ready(Err(closed())),
        Err(Refused::Full(job)) => {
            let queue = Arc::clone(queue);
            Reply::later(async move {
                queue.push_when_there_is_room(job).await.map_err(|_| closed())?;
                Reply::Waiting(answer).await
            })
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("its threads have ended".into())
}

impl Store for SqliteStore {
    fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    fn open(&self, facts: Facts) -> Reply<Opened> {
        submit(&self.jobs, |to| Job::Open { facts, to })
    }

    fn no_room_for(&self, principal: &Principal) -> Reply<Option<Limit>> {
        let (principal, rules) = (principal.clone(), Arc::clone(&self.shared.rules));
        submit(&self.queries, |to| Query::Room { principal, rules, to })
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

    fn held(&self, session: SessionId, node: NodeId) -> Reply<Holdings> {
        submit(&self.queries, |to| Query::Held { session, node, to })
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

    fn bury_dead_nodes(&self, now: Time) -> Reply<usize> {
        submit(&self.jobs, |to| Job::Bury { now, to })
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        submit(&self.jobs, |to| Job::Leave { node, now, to })
    }

    /// Other processes share the file and cannot signal.
    fn poll_interval(&self) -> Option<Duration> {
        Some(LOOK_EVERY)
    }

    fn changes_elsewhere(&self) -> Reply<Option<u64>> {
        submit(&self.jobs, |to| Job::Elsewhere { to })
    }

    fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.shared.outlet.set(subscriber);
    }

    fn answers(&self) -> Reply<()> {
        submit(&self.queries, |to| Query::Answers { to })
    }

    fn usage(&self) -> Reply<Usage> {
        submit(&self.queries, |to| Query::Usage { to })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        // The readers first: whoever closes the file last tidies up its log, and they may not write.
        self.queries.close();
        self.threads.drain(self.threads.len().min(1)..).for_each(wait_for);
        self.jobs.close();
        self.threads.drain(..).for_each(wait_for);
    }
}

fn wait_for(thread: JoinHandle<()>) {
    // A subscriber may hold the last reference to its store: a thread cannot wait for itself.
    if thread.thread().id() != thread::current().id() && thread.join().is_err() {
        tracing::error!("a thread of the session store had panicked");
    }
}
