//! Sessions in a database that many processes share.
//!
//! The rules are applied here, by [`steadfast_session`], to a copy in memory, and the rows that changed are committed **if
//! the database still has the version that the copy is of**. Whoever comes too late gets the newer session with the
//! refusal, and applies its command anew. So no process owns a session, a command costs one round trip unless two
//! processes meet, and no rule is written a second time in another language.
//!
//! What a database has to do for that is [`Backing`](backing::Backing).

pub(crate) mod backing;
mod cache;
mod codec;
mod commands;
mod errands;
#[cfg(test)]
mod golden;
mod job;
mod others;
mod slot;
mod watch;
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
use crate::signal::{Outlet, Subscriber};
use crate::store::{Opened, Store, Usage};
use backing::{Answer, Backing, Told};
#[cfg(feature = "postgres")]
pub(crate) use codec::META;
pub(crate) use codec::{class_code, class_of};
use job::{Job, Order, Queued, To, ToWhom, Work};
use worker::Worker;

/// Jobs that wait or are being done. Beyond that, callers wait for room.
const JOBS: usize = 8192;

/// News of other processes that wait to be looked at. Beyond that they are lost, and found by looking from time to time.
const NEWS: usize = 8192;

/// How a database is used.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// How often a process shows that it is alive.
    pub(crate) heartbeat: Duration,
    /// How long a command is tried while the database does not answer, and how long to wait in between.
    pub(crate) patience: Duration,
    pub(crate) pause: Duration,
    /// How long a session is kept that nobody has looked at.
    pub(crate) keep: Duration,
    /// How often to look for news that were lost.
    pub(crate) poll_interval: Duration,
    /// Whether changes that other processes make are signalled, too.
    pub(crate) hears_others: bool,
}

/// How long the database keeps a session after the last look at it: longer than it may live without one. While any
/// process runs, it is looked at every half of this.
pub(crate) fn keep_for(rules: &Rules) -> Duration {
    const MARGIN: Duration = Duration::from_secs(60 * 60);
    const LONGEST: Duration = Duration::from_secs(400 * 24 * 60 * 60);
    let timing = &rules.timing;
    [timing.idle, timing.grace, timing.retention, timing.linger, timing.touch]
        .into_iter()
        .fold(MARGIN, Duration::saturating_add)
        .min(LONGEST)
}

/// The store's side of the thread that does the work. Dropping it finishes what is queued.
#[derive(Debug)]
pub(crate) struct Remote {
    rules: Rules,
    outlet: Arc<Outlet>,
    jobs: Option<mpsc::UnboundedSender<Queued>>,
    room: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
    poll_interval: Duration,
    nodes: Mutex<BTreeSet<NodeId>>,
}

impl Remote {
    /// Starts the thread. `open` runs there, and gets where to put what others tell.
    pub(crate) fn start<B: Backing>(
        name: &str,
        rules: Rules,
        settings: Settings,
        open: impl AsyncFnOnce(mpsc::Sender<Told>) -> Answer<B> + Send + 'static,
    ) -> Answer<Self> {
        let unavailable =
            |error: std::io::Error| StoreError::Unavailable(format!("cannot start a thread: {error}"));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unavailable)?;
        let (jobs, received) = mpsc::unbounded_channel();
        let (opened, is_open) = std::sync::mpsc::channel();
        let outlet: Arc<Outlet> = Arc::default();
        let poll_interval = settings.poll_interval;
        let (worker_rules, worker_outlet) = (rules.clone(), Arc::clone(&outlet));
        let body = move || {
            let work = async {
                let (news, heard) = mpsc::channel(NEWS);
                match open(news).await {
                    Ok(backing) => {
                        let _ = opened.send(Ok(()));
                        Worker::new(backing, worker_rules, settings, worker_outlet)
                            .run(received, heard)
                            .await;
                    }
                    Err(error) => drop(opened.send(Err(error))),
                }
            };
            LocalSet::new().block_on(&runtime, work);
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(unavailable)?;
        is_open.recv().unwrap_or_else(|_| Err(StoreError::Unavailable("its thread has ended".into())))?;
        let room = Arc::new(Semaphore::new(JOBS));
        Ok(Self {
            rules,
            outlet,
            jobs: Some(jobs),
            room,
            thread: Some(thread),
            poll_interval,
            nodes: Mutex::default(),
        })
    }

    /// Queues a job and gives the promise of its answer.
    fn submit<T: Send + Unpin + 'static>(&self, job: impl FnOnce(To<T>) -> Job) -> Reply<T> {
        let (to, answer) = oneshot::channel();
        let job = job(to);
        let Some(jobs) = &self.jobs else { return Reply::ready(Err(ended())) };
        if let Ok(room) = Arc::clone(&self.room).try_acquire_owned() {
            return match jobs.send(Queued { job, room }) {
                Ok(()) => Reply::Waiting(answer),
                Err(_) => Reply::ready(Err(ended())),
            };
        }
        let (jobs, room) = (jobs.clone(), Arc::clone(&self.room));
        Reply::later(async move {
            let room = room.acquire_owned().await.map_err(|_| ended())?;
            jobs.send(Queued { job, room }).map_err(|_| ended())?;
            Reply::Waiting(answer).await
        })
    }

    /// Nodes that have joined through this store and not left.
    pub(crate) fn nodes(&self) -> MutexGuard<'_, BTreeSet<NodeId>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn about<T: Send + Unpin + 'static>(&self, id: SessionId, work: impl FnOnce(To<T>) -> Work) -> Reply<T> {
        self.submit(|to| Job::Session(id, work(to)))
    }
}

/// Makes a store of a type that is a [`Remote`] by another name.
macro_rules! remote_store {
    ($store:ty) => {
        const _: () = {
            use std::sync::Arc;
            use std::time::Duration;

            use steadfast_session::{
                Command, Facts, Holdings, Limit, NodeId, Outcome, Principal, Read, Rules, SessionId, StreamNo,
                Time,
            };
            use $crate::{Opened, Reply, Subscriber, Usage};

            $crate::remote::remote_store! { $store:
                rules() -> &Rules;
                open(facts: Facts) -> Reply<Opened>;
                no_room_for(principal: &Principal) -> Reply<Option<Limit>>;
                apply(session: SessionId, command: Command, now: Time) -> Reply<Outcome>;
                read(session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read>;
                facts(session: SessionId) -> Reply<Option<Arc<Facts>>>;
                held(session: SessionId, node: NodeId) -> Reply<Holdings>;
                sweep(now: Time, batch: usize) -> Reply<usize>;
                join(node: NodeId, now: Time) -> Reply<()>;
                is_alive(node: NodeId) -> Reply<bool>;
                bury_dead_nodes(now: Time) -> Reply<usize>;
                leave(node: NodeId, now: Time) -> Reply<()>;
                poll_interval() -> Option<Duration>;
                changes_elsewhere() -> Reply<Option<u64>>;
                subscribe(subscriber: Arc<dyn Subscriber>) -> ();
                answers() -> Reply<()>;
                usage() -> Reply<Usage>;
            }
        };
    };
    ($store:ty: $($name:ident($($argument:ident: $type:ty),*) -> $given:ty;)+) => {
        impl $crate::Store for $store {
            $(fn $name(&self, $($argument: $type),*) -> $given {
                self.0.$name($($argument),*)
            })+
        }
    };
}
pub(crate) use remote_store;

fn ended() -> StoreError {
    StoreError::Unavailable("its thread has ended".into())
}

impl Store for Remote {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn open(&self, facts: Facts) -> Reply<Opened> {
        self.about(facts.id, |to| Work::Open { facts, to })
    }

    fn no_room_for(&self, principal: &Principal) -> Reply<Option<Limit>> {
        let principal = principal.clone();
        self.submit(|to| Job::Room { principal, to })
    }

    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome> {
        let order =
            |to| Work::Command(Order { command, now, strikes: None, buries: false, to: ToWhom::Caller(to) });
        self.about(session, order)
    }

    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read> {
        self.about(session, |to| Work::Read { stream, after, budget, to })
    }

    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>> {
        self.about(session, |to| Work::Facts { to })
    }

    fn held(&self, session: SessionId, node: NodeId) -> Reply<Holdings> {
        self.about(session, |to| Work::Held { node, to })
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

    fn bury_dead_nodes(&self, now: Time) -> Reply<usize> {
        self.submit(|to| Job::Bury { now, to })
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        self.nodes().remove(&node);
        self.submit(|to| Job::Leave { node, now, to })
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(self.poll_interval)
    }

    /// News come by themselves, and those that are lost leave no trace: there is no number to go by.
    fn changes_elsewhere(&self) -> Reply<Option<u64>> {
        Reply::ready(Ok(None))
    }

    fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.outlet.set(subscriber);
    }

    fn answers(&self) -> Reply<()> {
        self.submit(|to| Job::Answers { to })
    }

    fn usage(&self) -> Reply<Usage> {
        self.submit(|to| Job::Usage { to })
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.jobs = None;
        let Some(thread) = self.thread.take() else { return };
        // A subscriber may hold the last reference to its store: a thread cannot wait for itself.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!("a thread of the session store had panicked");
        }
    }
}
