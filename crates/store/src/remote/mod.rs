//! Keeps sessions in a database that many processes share. Redis and PostgreSQL build on this.
//!
//! A store applies commands to a copy of the session in memory, by the rules of
//! [`steadfast_session`]. Then it commits the changed rows **if the session in the database still
//! has the version of the copy**. If another process has committed first, the database returns the
//! newer session, and the store applies the commands again to that.
//!
//! No process owns a session. A command costs one round trip unless two processes collide. The
//! session rules exist only once, in Rust, and not a second time in the language of the database.
//!
//! [`Database`] lists the operations that a database must offer.

mod cache;
mod cached_session;
mod codec;
mod commands;
pub(crate) mod database;
mod external_changes;
mod job;
mod lifecycle;
mod maintenance;
mod queries;
mod worker;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use steadfast_session::{
    Command, Facts, Holdings, Limit, NodeId, Outcome, Principal, Read, Rules, SessionId, StreamNo, Time,
};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::LocalSet;

use crate::error::StoreError;
use crate::reply::Reply;
use crate::signal::{SignalSink, Subscriber};
use crate::store::{EvictionSample, Opened, Store, Usage};
#[cfg(feature = "postgres")]
pub(crate) use codec::META;
use database::{ChangeHint, Database, StoreResult};
use job::{Job, QueuedCommand, QueuedJob, ReplySender, ReplyTo, SessionJob};
use worker::Worker;

/// How many jobs may be queued or running. Beyond that, callers wait.
const MAX_JOBS: usize = 8192;

/// How many hints may wait. Beyond that they are dropped, and nodes find the changes by polling.
const MAX_PENDING_HINTS: usize = 8192;

/// How a store uses its database.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How often a process sends a heartbeat.
    pub(crate) heartbeat: Duration,
    /// How long a request is retried while the database does not reply.
    pub(crate) retry_window: Duration,
    /// The pause before each retry.
    pub(crate) retry_interval: Duration,
    /// How long the database keeps a session that no process touches.
    pub(crate) session_ttl: Duration,
    /// How often nodes poll for changes whose hint was lost.
    pub(crate) poll_interval: Duration,
    /// True if the store sends and receives hints, and signals what other processes change.
    pub(crate) receives_hints: bool,
}

/// Returns how long the database keeps a session that no process touches: longer than the session
/// can live without being touched. While any process runs, the sweep touches each session before
/// half of this time is over.
pub(crate) fn session_ttl(rules: &Rules) -> Duration {
    const MARGIN: Duration = Duration::from_secs(60 * 60);
    const MAX: Duration = Duration::from_secs(400 * 24 * 60 * 60);
    let timing = &rules.timing;
    [timing.idle, timing.grace, timing.retention, timing.linger, timing.touch]
        .into_iter()
        .fold(MARGIN, Duration::saturating_add)
        .min(MAX)
}

/// A handle to the worker thread of a store. Dropping it waits until all queued jobs are done.
#[derive(Debug)]
pub(crate) struct RemoteStore {
    rules: Rules,
    signal_sink: Arc<SignalSink>,
    jobs: Option<mpsc::UnboundedSender<QueuedJob>>,
    job_permits: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
    poll_interval: Duration,
    nodes: Mutex<BTreeSet<NodeId>>,
}

impl RemoteStore {
    /// Starts the worker thread and opens the database there. `open` gets the channel for the hints
    /// that the database receives. Fails with the error of `open`.
    pub(crate) fn start<D: Database>(
        name: &str,
        rules: Rules,
        settings: Settings,
        open: impl AsyncFnOnce(mpsc::Sender<ChangeHint>) -> StoreResult<D> + Send + 'static,
    ) -> StoreResult<Self> {
        let unavailable =
            |error: std::io::Error| StoreError::Unavailable(format!("cannot start a thread: {error}"));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unavailable)?;
        let (jobs, received) = mpsc::unbounded_channel();
        let (opened, is_open) = std::sync::mpsc::channel();
        let signal_sink: Arc<SignalSink> = Arc::default();
        let poll_interval = settings.poll_interval;
        let (worker_rules, worker_signal_sink) = (rules.clone(), Arc::clone(&signal_sink));
        let body = move || {
            let work = async {
                let (hint_sender, hints) = mpsc::channel(MAX_PENDING_HINTS);
                match open(hint_sender).await {
                    Ok(database) => {
                        let _ = opened.send(Ok(()));
                        Worker::new(database, worker_rules, settings, worker_signal_sink)
                            .run(received, hints)
                            .await;
                    }
                    Err(error) => drop(opened.send(Err(error))),
                }
            };
            LocalSet::new().block_on(&runtime, work);
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(unavailable)?;
        is_open.recv().unwrap_or_else(|_| Err(worker_ended()))?;
        let job_permits = Arc::new(Semaphore::new(MAX_JOBS));
        Ok(Self {
            rules,
            signal_sink,
            jobs: Some(jobs),
            job_permits,
            thread: Some(thread),
            poll_interval,
            nodes: Mutex::default(),
        })
    }

    /// Submits a job and returns its future result.
    fn submit<T: Send + Unpin + 'static>(&self, job: impl FnOnce(ReplySender<T>) -> Job) -> Reply<T> {
        let (to, answer) = oneshot::channel();
        let job = job(to);
        let Some(jobs) = &self.jobs else { return Reply::ready(Err(worker_ended())) };
        if let Ok(permit) = Arc::clone(&self.job_permits).try_acquire_owned() {
            return match jobs.send(QueuedJob { job, permit }) {
                Ok(()) => Reply::Waiting(answer),
                Err(_) => Reply::ready(Err(worker_ended())),
            };
        }
        let (jobs, job_permits) = (jobs.clone(), Arc::clone(&self.job_permits));
        Reply::later(async move {
            let permit = job_permits.acquire_owned().await.map_err(|_| worker_ended())?;
            jobs.send(QueuedJob { job, permit }).map_err(|_| worker_ended())?;
            Reply::Waiting(answer).await
        })
    }

    /// Returns the nodes that have joined through this store and have not left.
    pub(crate) fn nodes(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit_for_session<T: Send + Unpin + 'static>(
        &self,
        id: SessionId,
        job: impl FnOnce(ReplySender<T>) -> SessionJob,
    ) -> Reply<T> {
        self.submit(|to| Job::Session(id, job(to)))
    }
}

/// Implements `Store` for a newtype of [`RemoteStore`] by delegation.
macro_rules! remote_store {
    ($store:ty) => {
        const _: () = {
            use std::sync::Arc;
            use std::time::Duration;

            use steadfast_session::{
                Command, Facts, Holdings, Limit, NodeId, Outcome, Principal, Read, Rules, SessionId, StreamNo,
                Time,
            };
            use $crate::{EvictionSample, Opened, Reply, Subscriber, Usage};

            $crate::remote::remote_store! { $store:
                rules() -> &Rules;
                open(facts: Facts) -> Reply<Opened>;
                reached_limit(principal: &Principal) -> Reply<Option<Limit>>;
                eviction_sample(requester: &Principal, of: Option<&Principal>, from: SessionId)
                    -> Reply<EvictionSample>;
                apply(session: SessionId, command: Command, now: Time) -> Reply<Outcome>;
                read(session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read>;
                facts(session: SessionId) -> Reply<Option<Arc<Facts>>>;
                holdings(session: SessionId, node: NodeId) -> Reply<Holdings>;
                sweep(now: Time, batch: usize) -> Reply<usize>;
                join(node: NodeId, now: Time) -> Reply<()>;
                is_alive(node: NodeId) -> Reply<bool>;
                reap_dead_nodes(now: Time) -> Reply<usize>;
                leave(node: NodeId, now: Time) -> Reply<()>;
                poll_interval() -> Option<Duration>;
                external_change_count() -> Reply<Option<u64>>;
                subscribe(subscriber: Arc<dyn Subscriber>) -> ();
                ping() -> Reply<()>;
                usage() -> Reply<Usage>;
            }
        };
    };
    ($store:ty: $($name:ident($($argument:ident: $type:ty),*) -> $reply:ty;)+) => {
        impl $crate::Store for $store {
            $(fn $name(&self, $($argument: $type),*) -> $reply {
                self.0.$name($($argument),*)
            })+
        }
    };
}
pub(crate) use remote_store;

fn worker_ended() -> StoreError {
    StoreError::Unavailable("the worker thread of the store has ended".into())
}

impl Store for RemoteStore {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn open(&self, facts: Facts) -> Reply<Opened> {
        self.submit_for_session(facts.id, |to| SessionJob::Open { facts, to })
    }

    fn reached_limit(&self, principal: &Principal) -> Reply<Option<Limit>> {
        let principal = principal.clone();
        self.submit(|to| Job::ReachedLimit { principal, to })
    }

    fn eviction_sample(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
        from: SessionId,
    ) -> Reply<EvictionSample> {
        let (requester, of) = (requester.clone(), of.cloned());
        self.submit(|to| Job::EvictionSample { requester, of, from, to })
    }

    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome> {
        let queued = |to| {
            SessionJob::Command(QueuedCommand {
                command,
                now,
                delists: None,
                reaps: false,
                to: ReplyTo::Caller(to),
            })
        };
        self.submit_for_session(session, queued)
    }

    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read> {
        self.submit_for_session(session, |to| SessionJob::Read { stream, after, budget, to })
    }

    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>> {
        self.submit_for_session(session, |to| SessionJob::Facts { to })
    }

    fn holdings(&self, session: SessionId, node: NodeId) -> Reply<Holdings> {
        self.submit_for_session(session, |to| SessionJob::Holdings { node, to })
    }

    fn sweep(&self, now: Time, batch: usize) -> Reply<usize> {
        self.submit(|to| Job::Sweep { now, batch, to })
    }

    fn join(&self, node: NodeId, _now: Time) -> Reply<()> {
        self.nodes().insert(node);
        self.submit(|to| Job::Join { node, to })
    }

    fn is_alive(&self, node: NodeId) -> Reply<bool> {
        self.submit(|to| Job::IsAlive { node, to })
    }

    fn reap_dead_nodes(&self, now: Time) -> Reply<usize> {
        self.submit(|to| Job::Reap { now, to })
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        self.nodes().remove(&node);
        self.submit(|to| Job::Leave { node, now, to })
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(self.poll_interval)
    }

    /// Returns `None`: changes arrive as hints, and a lost hint leaves no trace that could be
    /// counted.
    fn external_change_count(&self) -> Reply<Option<u64>> {
        Reply::ready(Ok(None))
    }

    fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.signal_sink.set(subscriber);
    }

    fn ping(&self) -> Reply<()> {
        self.submit(|to| Job::Ping { to })
    }

    fn usage(&self) -> Reply<Usage> {
        self.submit(|to| Job::Usage { to })
    }
}

impl Drop for RemoteStore {
    fn drop(&mut self) {
        self.jobs = None;
        let Some(thread) = self.thread.take() else { return };
        // A subscriber may drop the last reference to its store on the worker thread, which cannot
        // wait for itself.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!("the worker thread of the session store panicked");
        }
    }
}
