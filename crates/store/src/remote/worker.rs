//! The worker thread of a remote store: its state, and the job queue of each session.
//!
//! All work runs in tasks of one thread, so no locks are needed. One task at a time works on a
//! session: it takes the waiting jobs of the session in order, and ends when none is left. Jobs on
//! different sessions do not wait for each other.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use steadfast_session::{Command, NodeId, Rules, SessionId};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_local};

use super::Settings;
use super::cache::Cache;
use super::cached_session::CachedSession;
use super::database::{ChangeHint, Database, StoreResult};
use super::external_changes::LocalHoldings;
use super::job::{AppliedCommand, Job, QueuedCommand, QueuedJob, ReplyTo, SessionJob};
use crate::error::StoreError;
use crate::signal::SignalSink;

/// How many commands of one session may share a commit.
const MAX_COMMANDS_PER_COMMIT: usize = 256;

/// How many payload bytes a commit may carry before no further command joins it, so that a commit
/// does not block the database for long. A single command may carry more.
const MAX_BYTES_PER_COMMIT: usize = 1 << 20;

pub(crate) struct Worker<D> {
    pub(crate) database: D,
    pub(crate) rules: Rules,
    pub(crate) settings: Settings,
    pub(crate) signal_sink: Arc<SignalSink>,
    pub(crate) sessions: RefCell<Sessions>,
    /// The nodes that have joined through this store.
    pub(crate) local_nodes: RefCell<Vec<NodeId>>,
    /// Held while a heartbeat is sent. A node that leaves waits for it.
    pub(crate) heartbeat_lock: tokio::sync::Mutex<()>,
    /// For each dead node: how many sessions at the head of its list the next reap must skip,
    /// because earlier reaps could not release them.
    pub(crate) sessions_to_skip: RefCell<HashMap<NodeId, usize>>,
    /// Number of commit names generated so far.
    commit_count: Cell<u64>,
    commit_name_hasher: RandomState,
}

#[derive(Default)]
pub(crate) struct Sessions {
    pub(crate) cache: Cache,
    pub(crate) local_holdings: HashMap<SessionId, LocalHoldings>,
    /// The waiting jobs of each session that a task works on.
    queues: HashMap<SessionId, VecDeque<(SessionJob, Option<OwnedSemaphorePermit>)>>,
}

/// The jobs that a task takes from a queue at once.
enum Batch {
    /// Consecutive commands, which share a commit.
    Commands(Vec<QueuedCommand>),
    Other(SessionJob),
}

impl<D: Database> Worker<D> {
    pub(crate) fn new(
        database: D,
        rules: Rules,
        settings: Settings,
        signal_sink: Arc<SignalSink>,
    ) -> Rc<Self> {
        Rc::new(Self {
            database,
            rules,
            settings,
            signal_sink,
            sessions: RefCell::default(),
            local_nodes: RefCell::default(),
            heartbeat_lock: tokio::sync::Mutex::default(),
            sessions_to_skip: RefCell::default(),
            commit_count: Cell::new(0),
            commit_name_hasher: RandomState::new(),
        })
    }

    /// Runs until the store is dropped and all queued jobs are done.
    pub(crate) async fn run(
        self: Rc<Self>,
        mut jobs: mpsc::UnboundedReceiver<QueuedJob>,
        mut hints: mpsc::Receiver<ChangeHint>,
    ) {
        let heartbeat = spawn_local(Rc::clone(&self).run_heartbeat());
        let mut maintenance: VecDeque<JoinHandle<()>> = VecDeque::new();
        loop {
            tokio::select! {
                job = jobs.recv() => match job {
                    None => break,
                    Some(QueuedJob { job, permit }) => maintenance.extend(self.start(job, permit)),
                },
                Some(hint) = hints.recv() => self.on_hint(hint),
            }
            while maintenance.front().is_some_and(JoinHandle::is_finished) {
                maintenance.pop_front();
            }
        }
        for task in maintenance {
            drop(task.await);
        }
        while !self.sessions.borrow().queues.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        heartbeat.abort();
    }

    /// Starts a job. Returns the task of a job that does not belong to one session.
    fn start(self: &Rc<Self>, job: Job, permit: OwnedSemaphorePermit) -> Option<JoinHandle<()>> {
        if let Job::Session(session, job) = job {
            self.enqueue(session, job, Some(permit));
            return None;
        }
        let worker = Rc::clone(self);
        Some(spawn_local(async move {
            worker.run_maintenance(job).await;
            drop(permit);
        }))
    }

    /// Handles a hint that another process has changed a session. The hint matters only if a local
    /// node holds something in the session, or was forwarded a call.
    fn on_hint(self: &Rc<Self>, ChangeHint { session, has_forwarded_call }: ChangeHint) {
        if has_forwarded_call || self.sessions.borrow().local_holdings.contains_key(&session) {
            self.enqueue(session, SessionJob::Refresh, None);
        }
    }

    /// Adds a job to the queue of a session. Starts a task for the session if none works on it.
    pub(crate) fn enqueue(
        self: &Rc<Self>,
        id: SessionId,
        job: SessionJob,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let mut sessions = self.sessions.borrow_mut();
        if let Some(queue) = sessions.queues.get_mut(&id) {
            // A refresh that is still queued will find this change, too.
            let is_refresh = |job: &SessionJob| matches!(job, SessionJob::Refresh);
            if !(is_refresh(&job) && queue.iter().any(|(queued, _)| is_refresh(queued))) {
                queue.push_back((job, permit));
            }
            return;
        }
        sessions.queues.insert(id, VecDeque::from([(job, permit)]));
        drop(sessions);
        spawn_local(Rc::clone(self).process_queue(id));
    }

    /// Applies a command on behalf of a maintenance job.
    pub(crate) async fn run_command(
        self: &Rc<Self>,
        id: SessionId,
        command: impl FnOnce(ReplyTo) -> QueuedCommand,
    ) -> StoreResult<AppliedCommand> {
        let (to, applied) = oneshot::channel();
        self.enqueue(id, SessionJob::Command(command(ReplyTo::Maintenance(to))), None);
        applied.await.unwrap_or_else(|_| Err(StoreError::Unknown("the worker dropped the command".into())))
    }

    /// Runs the jobs of a session until its queue is empty.
    async fn process_queue(self: Rc<Self>, id: SessionId) {
        while let Some((batch, permits)) = self.next_batch(id) {
            let worker = Rc::clone(&self);
            // Each batch has its own task, so that a panic ends the batch and not the queue.
            let done = spawn_local(async move {
                match batch {
                    Batch::Commands(commands) => worker.run_commands(id, commands).await,
                    Batch::Other(job) => worker.run_session_job(id, job).await,
                }
            });
            if let Err(panic) = done.await {
                tracing::error!(session = id.short(), %panic, "a job on a session panicked");
            }
            drop(permits);
        }
    }

    /// Takes the next jobs from the queue of a session. Removes the queue if it is empty.
    fn next_batch(&self, id: SessionId) -> Option<(Batch, Vec<Option<OwnedSemaphorePermit>>)> {
        let mut sessions = self.sessions.borrow_mut();
        let queue = sessions.queues.get_mut(&id)?;
        let (mut commands, mut permits, mut bytes) = (Vec::new(), Vec::new(), 0);
        while commands.len() < MAX_COMMANDS_PER_COMMIT
            && bytes < MAX_BYTES_PER_COMMIT
            && let Some((job, permit)) = queue.pop_front()
        {
            match job {
                SessionJob::Command(command) => {
                    bytes += payload_bytes(&command.command);
                    commands.push(command);
                    permits.push(permit);
                }
                other if commands.is_empty() => return Some((Batch::Other(other), vec![permit])),
                other => {
                    queue.push_front((other, permit));
                    break;
                }
            }
        }
        if commands.is_empty() {
            sessions.queues.remove(&id);
            return None;
        }
        Some((Batch::Commands(commands), permits))
    }

    pub(crate) fn new_commit_name(&self) -> u64 {
        self.commit_count.set(self.commit_count.get() + 1);
        self.commit_name_hasher.hash_one(self.commit_count.get())
    }

    pub(crate) fn take_cached(&self, id: &SessionId) -> Option<Box<CachedSession>> {
        self.sessions.borrow_mut().cache.take(id)
    }

    pub(crate) fn put_cached(&self, id: SessionId, cached: Box<CachedSession>) {
        self.sessions.borrow_mut().cache.put(id, cached);
    }
}

fn payload_bytes(command: &Command) -> usize {
    match command {
        Command::Append(append) => append.payload.len(),
        Command::Finish(finish) => finish.payload.len(),
        Command::OpenServerRequest(open) => open.rest.len(),
        Command::Answer(answer) => answer.message.len(),
        Command::Begin(begin) => begin.requests.iter().flatten().map(|request| request.text.len()).sum(),
        Command::PutState(put) => put.value.as_ref().map_or(0, bytes::Bytes::len),
        _ => 0,
    }
}
