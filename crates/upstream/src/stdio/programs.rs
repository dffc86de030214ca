//! All processes of one program.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use steadfast_client::Backoff;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::child::Child;
use super::process::Process;
use super::restarts::Restarts;
use super::session_id::SessionId;
use super::unavailable::Unavailable;
use super::watch::Watch;
use crate::config::{Sharing, Stdio};

/// How long the operating system may take to end what was killed.
const FORCE: Duration = Duration::from_secs(5);
/// The longest wait before a restart. If it has to be longer, whoever wants it is refused.
const RESTART_PATIENCE: Duration = Duration::from_secs(1);

/// Starts a program as often as it is needed, within its bounds. Dropped, it ends them all.
#[derive(Debug)]
pub struct Programs {
    yard: Arc<Yard>,
    shared: OnceLock<Arc<Child>>,
}

/// What all processes of a program have in common.
#[derive(Debug)]
pub(super) struct Yard {
    pub(super) stdio: Stdio,
    pace: Mutex<Pace>,
    /// Tells the sessions of this run of ours from those of earlier ones.
    pub(super) boot: u64,
    /// How many processes there were.
    pub(super) generations: AtomicU64,
    /// By the newest generation of each that has had one.
    children: Mutex<BTreeMap<u64, Weak<Child>>>,
    openings: Mutex<Restarts>,
    /// A process that was started to ask it for its revisions and that has sessions. The next session has it.
    spare: Mutex<Option<Arc<Process>>>,
    /// One permit for each process that may run.
    pub(super) places: Arc<Semaphore>,
    pub(super) watch: Arc<Watch>,
    pub(super) ending: CancellationToken,
}

/// What may be another while processes run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How long a process may take to answer `initialize`.
    pub(super) opening: Duration,
    /// How soon a program that keeps ending is started again.
    pub(super) backoff: Backoff,
}

impl Yard {
    pub(super) fn pace(&self) -> Pace {
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By the newest generation of each that has had one.
    pub(super) fn children(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<Child>>> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it went when processes were started, or a session opened in them, whoever wanted it.
    pub(super) fn openings(&self) -> MutexGuard<'_, Restarts> {
        self.openings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a process for the next session, if there is none yet.
    pub(super) fn keep_spare(&self, process: &Arc<Process>) -> bool {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = spare.as_ref().is_none_or(|other| other.is_gone());
        if has_room {
            *spare = Some(Arc::clone(process));
        }
        has_room
    }

    pub(super) fn take_spare(&self) -> Option<Arc<Process>> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        spare.filter(|process| !process.is_gone())
    }

    /// How long to wait before a process is started by somebody whose own ones ended like this.
    pub(super) fn wait(&self, own: &Restarts) -> Result<Duration, Unavailable> {
        let (backoff, now) = (self.pace().backoff, Instant::now());
        let openings = self.openings();
        let wait = openings.wait(&backoff, now).max(own.wait(&backoff, now));
        if wait <= RESTART_PATIENCE {
            return Ok(wait);
        }
        let times = openings.failures().max(own.failures());
        let last = openings.why().map(|why| format!(", the last time: {why}")).unwrap_or_default();
        let why = format!("the program ended {times} times in a row{last}; it is started again later");
        Err(Unavailable::later(why, wait))
    }

    /// The way to the process that a session was opened in, if there still is one.
    pub(super) fn child_with(&self, session: &str) -> Option<Arc<Child>> {
        let id = SessionId::parse(session).filter(|id| id.boot == self.boot)?;
        let found = self.children().get(&id.generation).cloned();
        found.and_then(|child| child.upgrade())
    }
}

impl Programs {
    /// Nothing is started yet. `backoff` says how soon a program that keeps ending is started again; `boot` is a number that
    /// no other run of this process has had, so that an old session id is not taken for a new one.
    pub fn new(stdio: Stdio, backoff: Backoff, boot: u64) -> Self {
        let places = Arc::new(Semaphore::new(stdio.processes.min(Semaphore::MAX_PERMITS)));
        let watch = Arc::new(Watch::new(stdio.farewell));
        let ending = CancellationToken::new();
        let pace = Mutex::new(Pace { opening: stdio.opening, backoff });
        let (generations, children, openings) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        let spare = Mutex::default();
        let yard = Yard { stdio, pace, boot, generations, children, openings, spare, places, watch, ending };
        Self { yard: Arc::new(yard), shared: OnceLock::new() }
    }

    /// How a session reaches its process: one of its own, or the one that all share. The name is for the log.
    pub fn child(&self, name: &str) -> Arc<Child> {
        match self.yard.stdio.sharing {
            Sharing::PerSession => Child::new(Arc::clone(&self.yard), name),
            Sharing::Shared => {
                let child = || Child::new(Arc::clone(&self.yard), "shared");
                Arc::clone(self.shared.get_or_init(child))
            }
        }
    }

    /// The same for a session that has been opened before, and that another may have the way to.
    pub fn child_with(&self, session: &str, name: &str) -> Arc<Child> {
        self.yard.child_with(session).unwrap_or_else(|| self.child(name))
    }

    /// From now on a process may take so long to answer `initialize`, and one that keeps ending is started again so soon.
    pub fn set_pace(&self, opening: Duration, backoff: Backoff) {
        *self.yard.pace.lock().unwrap_or_else(PoisonError::into_inner) = Pace { opening, backoff };
    }

    /// Ends all processes and waits until nothing is left of them. None is started after this.
    pub async fn close(&self) {
        self.yard.ending.cancel();
        let all = u32::try_from(self.yard.stdio.processes).unwrap_or(u32::MAX);
        let wait = self.yard.stdio.farewell.saturating_mul(2).saturating_add(FORCE);
        match tokio::time::timeout(wait, self.yard.places.acquire_many(all)).await {
            Ok(places) => drop(places),
            Err(_) => tracing::error!("a program does not end, not even by force"),
        }
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.yard.ending.cancel();
    }
}
