//! The thread's state, and the queue of each session.
//!
//! Everything happens in tasks of one thread, so there are no locks: a session is in the hands of one task at a time,
//! which takes what waits for it, in order, and gives it back when nothing does. Sessions do not wait for each other.

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
use super::backing::{Answer, Backing, Told};
use super::cache::Cache;
use super::job::{Done, Job, Order, Queued, ToWhom, Work};
use super::slot::Slot;
use super::watch::Watch;
use crate::error::StoreError;
use crate::signal::Outlet;

/// Commands of one session that share a commit.
const GROUP: usize = 256;

/// What they may bring along, so that no commit holds up the database. A single command may bring more.
const GROUP_BYTES: usize = 1 << 20;

pub(crate) struct Worker<B> {
    pub(crate) backing: B,
    pub(crate) rules: Rules,
    pub(crate) settings: Settings,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) sessions: RefCell<Sessions>,
    /// Nodes of this process.
    pub(crate) own: RefCell<Vec<NodeId>>,
    /// One heartbeat at a time, and none while a node leaves.
    pub(crate) beating: tokio::sync::Mutex<()>,
    /// How many sessions on the lists of dead nodes the next burial passes over, because those before could not free them.
    pub(crate) passed_over: RefCell<HashMap<NodeId, usize>>,
    attempts: Cell<u64>,
    salt: RandomState,
}

#[derive(Default)]
pub(crate) struct Sessions {
    pub(crate) cache: Cache,
    pub(crate) watches: HashMap<SessionId, Watch>,
    /// Sessions that a task has in hand, and what waits for it.
    queues: HashMap<SessionId, VecDeque<(Work, Option<OwnedSemaphorePermit>)>>,
}

/// What is taken from a queue at once.
enum Turn {
    Commands(Vec<Order>),
    Other(Work),
}

impl<B: Backing> Worker<B> {
    pub(crate) fn new(backing: B, rules: Rules, settings: Settings, outlet: Arc<Outlet>) -> Rc<Self> {
        Rc::new(Self {
            backing,
            rules,
            settings,
            outlet,
            sessions: RefCell::default(),
            own: RefCell::default(),
            beating: tokio::sync::Mutex::default(),
            passed_over: RefCell::default(),
            attempts: Cell::new(0),
            salt: RandomState::new(),
        })
    }

    /// Runs until the store is dropped and everything that was queued is done.
    pub(crate) async fn run(
        self: Rc<Self>,
        mut jobs: mpsc::UnboundedReceiver<Queued>,
        mut heard: mpsc::Receiver<Told>,
    ) {
        let beats = spawn_local(Rc::clone(&self).keep_beating());
        let mut errands: VecDeque<JoinHandle<()>> = VecDeque::new();
        loop {
            tokio::select! {
                job = jobs.recv() => match job {
                    None => break,
                    Some(Queued { job, room }) => errands.extend(self.start(job, room)),
                },
                Some(told) = heard.recv() => self.look_at(told),
            }
            while errands.front().is_some_and(JoinHandle::is_finished) {
                errands.pop_front();
            }
        }
        for errand in errands {
            drop(errand.await);
        }
        while !self.sessions.borrow().queues.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        beats.abort();
    }

    fn start(self: &Rc<Self>, job: Job, room: OwnedSemaphorePermit) -> Option<JoinHandle<()>> {
        if let Job::Session(session, work) = job {
            self.queue(session, work, Some(room));
            return None;
        }
        let worker = Rc::clone(self);
        Some(spawn_local(async move {
            worker.run_errand(job).await;
            drop(room);
        }))
    }

    /// Something has happened to a session, says another process. That matters only if somebody here holds something of it, or
    /// is to from now on.
    fn look_at(self: &Rc<Self>, Told { session, errand }: Told) {
        if errand || self.sessions.borrow().watches.contains_key(&session) {
            self.queue(session, Work::Look, None);
        }
    }

    pub(crate) fn queue(self: &Rc<Self>, id: SessionId, work: Work, room: Option<OwnedSemaphorePermit>) {
        let mut sessions = self.sessions.borrow_mut();
        if let Some(queue) = sessions.queues.get_mut(&id) {
            // One look finds everything that has happened before it.
            let is_looked_at =
                matches!(work, Work::Look) && queue.iter().any(|(w, _)| matches!(w, Work::Look));
            if !is_looked_at {
                queue.push_back((work, room));
            }
            return;
        }
        sessions.queues.insert(id, VecDeque::from([(work, room)]));
        drop(sessions);
        spawn_local(Rc::clone(self).serve(id));
    }

    /// Asks something of a session on behalf of the thread itself.
    pub(crate) async fn order(
        self: &Rc<Self>,
        id: SessionId,
        order: impl FnOnce(ToWhom) -> Order,
    ) -> Answer<Done> {
        let (to, done) = oneshot::channel();
        self.queue(id, Work::Command(order(ToWhom::Errand(to))), None);
        done.await.unwrap_or_else(|_| Err(StoreError::Unknown("the command was not done".into())))
    }

    async fn serve(self: Rc<Self>, id: SessionId) {
        while let Some((turn, rooms)) = self.next_turn(id) {
            let worker = Rc::clone(&self);
            // In a task of its own: a bug that shows as a panic costs what is in it, not all that comes after.
            let done = spawn_local(async move {
                match turn {
                    Turn::Commands(orders) => worker.run_commands(id, orders).await,
                    Turn::Other(work) => worker.run_other(id, work).await,
                }
            });
            if let Err(panic) = done.await {
                tracing::error!(session = id.short(), %panic, "a command could not be applied");
            }
            drop(rooms);
        }
    }

    /// What comes next; if nothing does, the session is given back.
    fn next_turn(&self, id: SessionId) -> Option<(Turn, Vec<Option<OwnedSemaphorePermit>>)> {
        let mut sessions = self.sessions.borrow_mut();
        let queue = sessions.queues.get_mut(&id)?;
        let (mut orders, mut rooms, mut bytes) = (Vec::new(), Vec::new(), 0);
        while orders.len() < GROUP
            && bytes < GROUP_BYTES
            && let Some((work, room)) = queue.pop_front()
        {
            match work {
                Work::Command(order) => {
                    bytes += payload_bytes(&order.command);
                    orders.push(order);
                    rooms.push(room);
                }
                other if orders.is_empty() => return Some((Turn::Other(other), vec![room])),
                other => {
                    queue.push_front((other, room));
                    break;
                }
            }
        }
        if orders.is_empty() {
            sessions.queues.remove(&id);
            return None;
        }
        Some((Turn::Commands(orders), rooms))
    }

    /// A name that no other commit has.
    pub(crate) fn attempt(&self) -> u64 {
        self.attempts.set(self.attempts.get() + 1);
        self.salt.hash_one(self.attempts.get())
    }

    pub(crate) fn take(&self, id: &SessionId) -> Option<Box<Slot>> {
        self.sessions.borrow_mut().cache.take(id)
    }

    pub(crate) fn keep(&self, id: SessionId, slot: Box<Slot>) {
        self.sessions.borrow_mut().cache.put(id, slot);
    }
}

fn payload_bytes(command: &Command) -> usize {
    match command {
        Command::Append(append) => append.payload.len(),
        Command::Finish(finish) => finish.payload.len(),
        Command::OpenAsk(open) => open.rest.len(),
        Command::Answer(answer) => answer.message.len(),
        Command::Begin(begin) => begin.requests.iter().flatten().map(|request| request.text.len()).sum(),
        Command::PutState(put) => put.value.as_ref().map_or(0, bytes::Bytes::len),
        _ => 0,
    }
}
