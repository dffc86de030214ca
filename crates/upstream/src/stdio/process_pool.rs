//! The pool of all processes of one stdio program: limits, restarts, and the transports that use
//! them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use steadfast_client::Backoff;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{Sharing, Stdio};
use crate::stdio::orphan_guard::OrphanGuard;
use crate::stdio::process::lifecycle::Process;
use crate::stdio::process::restart_backoff::RestartBackoff;
use crate::stdio::transport::process_transport::ProcessTransport;
use crate::stdio::transport::session_id::ProcessSessionId;
use crate::stdio::transport::unavailable::Unavailable;

/// How long the operating system may take to end a process after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest delay before a restart. If it has to be longer, the session is refused.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(1);

/// Starts processes of a program, within its limits. Ends them all when it is dropped.
#[derive(Debug)]
pub struct ProcessPool {
    state: Arc<PoolState>,
    shared: OnceLock<Arc<ProcessTransport>>,
}

/// State that all processes of a program share.
#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) stdio: Stdio,
    timing: Mutex<StartTiming>,
    /// Distinguishes the sessions of this run of the gateway from those of earlier runs.
    pub(crate) boot: u64,
    /// The number of processes that were started.
    pub(crate) generations: AtomicU64,
    /// The transports, by the generation of their newest process.
    transports: Mutex<BTreeMap<u64, Weak<ProcessTransport>>>,
    start_failures: Mutex<RestartBackoff>,
    /// A process that was started for `server/discover` and that has sessions. The next session
    /// uses it.
    spare: Mutex<Option<Arc<Process>>>,
    /// One permit for each process that may run.
    pub(crate) process_permits: Arc<Semaphore>,
    pub(crate) orphan_guard: Arc<OrphanGuard>,
    pub(crate) ending: CancellationToken,
}

/// Settings that a configuration reload may change while processes run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartTiming {
    /// How long a process may take to answer `initialize`.
    pub(crate) initialize_timeout: Duration,
    /// The delays between restarts of a program that keeps exiting.
    pub(crate) backoff: Backoff,
}

impl PoolState {
    pub(crate) fn timing(&self) -> StartTiming {
        *self.timing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The transports, by the generation of their newest process.
    pub(crate) fn transports(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<ProcessTransport>>> {
        self.transports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The starts and `initialize` requests that failed, for any transport.
    pub(crate) fn start_failures(&self) -> MutexGuard<'_, RestartBackoff> {
        self.start_failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a process for the next session. Returns false if there is a spare process already.
    pub(crate) fn keep_spare(&self, process: &Arc<Process>) -> bool {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = spare.as_ref().is_none_or(|other| other.is_gone());
        if is_kept {
            *spare = Some(Arc::clone(process));
        }
        is_kept
    }

    pub(crate) fn take_spare(&self) -> Option<Arc<Process>> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
        spare.filter(|process| !process.is_gone())
    }

    /// Returns the delay before a process is started. `own` are the failures of this transport's
    /// processes.
    pub(crate) fn restart_delay(&self, own: &RestartBackoff) -> Result<Duration, Unavailable> {
        let (backoff, now) = (self.timing().backoff, Instant::now());
        let start_failures = self.start_failures();
        let delay = start_failures.delay(&backoff, now).max(own.delay(&backoff, now));
        if delay <= MAX_RESTART_DELAY {
            return Ok(delay);
        }
        let times = start_failures.failures().max(own.failures());
        let last = start_failures.why().map(|why| format!(", the last time: {why}")).unwrap_or_default();
        let why = format!("the program ended {times} times in a row{last}; it is started again later");
        Err(Unavailable::later(why, delay))
    }

    /// Waits for the right to run a process. If all processes that may run are running, ends the
    /// idle one that was not used for the longest time.
    pub(crate) async fn process_permit(&self) -> Result<OwnedSemaphorePermit, Unavailable> {
        let permits = Arc::clone(&self.process_permits);
        if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
            return Ok(permit);
        }
        let count = self.stdio.processes;
        if !self.suspend_least_recently_used() {
            return Err(Unavailable::temporary(format!("{count} programs run already, and all are in use")));
        }
        let acquired = tokio::time::timeout(self.exit_wait(), permits.acquire_owned()).await;
        acquired.ok().and_then(Result::ok).ok_or_else(|| {
            Unavailable::temporary(format!("{count} programs run already, and an idle one does not exit"))
        })
    }

    /// Suspends the idle process that was not used for the longest time. Returns false if none is
    /// idle.
    fn suspend_least_recently_used(&self) -> bool {
        let transports: Vec<Arc<ProcessTransport>> =
            self.transports().values().filter_map(Weak::upgrade).collect();
        let mut processes: Vec<Arc<Process>> =
            transports.iter().filter_map(|transport| transport.process()).collect();
        processes.sort_by_key(|process| process.last_used());
        let suspended = processes.iter().find(|process| process.suspend());
        if let Some(process) = suspended {
            tracing::debug!(
                session = &*process.name(),
                "ended an idle process because another session needs one"
            );
        }
        suspended.is_some()
    }

    /// Returns how long a process may take to exit.
    fn exit_wait(&self) -> Duration {
        self.stdio.exit_timeout.saturating_mul(2).saturating_add(KILL_TIMEOUT)
    }

    /// Returns the transport whose process has this session, if it still exists.
    pub(crate) fn transport_for_session(&self, session: &str) -> Option<Arc<ProcessTransport>> {
        let id = ProcessSessionId::parse(session).filter(|id| id.boot == self.boot)?;
        let found = self.transports().get(&id.generation).cloned();
        found.and_then(|transport| transport.upgrade())
    }
}

impl ProcessPool {
    /// Creates a pool. Starts no process yet. `backoff` determines the delays between restarts.
    /// `boot` must be a number that no other run of the gateway has used, so that an old session id
    /// is not mistaken for a new one.
    pub fn new(stdio: Stdio, backoff: Backoff, boot: u64) -> Self {
        let process_permits = Arc::new(Semaphore::new(stdio.processes.min(Semaphore::MAX_PERMITS)));
        let orphan_guard = Arc::new(OrphanGuard::new(stdio.exit_timeout));
        let ending = CancellationToken::new();
        let timing = Mutex::new(StartTiming { initialize_timeout: stdio.initialize_timeout, backoff });
        let (generations, transports, start_failures) =
            (AtomicU64::new(0), Mutex::default(), Mutex::default());
        let spare = Mutex::default();
        let state = PoolState {
            stdio,
            timing,
            boot,
            generations,
            transports,
            start_failures,
            spare,
            process_permits,
            orphan_guard,
            ending,
        };
        Self { state: Arc::new(state), shared: OnceLock::new() }
    }

    /// Returns the transport for a new session: one with its own process, or the shared one. The
    /// name is for logs.
    pub fn transport(&self, name: &str) -> Arc<ProcessTransport> {
        match self.state.stdio.sharing {
            Sharing::PerSession => ProcessTransport::new(Arc::clone(&self.state), name),
            Sharing::Shared => {
                let transport = || ProcessTransport::new(Arc::clone(&self.state), "shared");
                Arc::clone(self.shared.get_or_init(transport))
            }
        }
    }

    /// Returns the transport for a session that was opened before: that of its process, if it still
    /// runs.
    pub fn transport_for_session(&self, session: &str, name: &str) -> Arc<ProcessTransport> {
        self.state.transport_for_session(session).unwrap_or_else(|| self.transport(name))
    }

    /// Changes the timeout of `initialize` and the delays between restarts.
    pub fn set_timing(&self, initialize_timeout: Duration, backoff: Backoff) {
        *self.state.timing.lock().unwrap_or_else(PoisonError::into_inner) =
            StartTiming { initialize_timeout, backoff };
    }

    /// Ends all processes and waits until they are gone. No process is started after this.
    pub async fn close(&self) {
        self.state.ending.cancel();
        let all = u32::try_from(self.state.stdio.processes).unwrap_or(u32::MAX);
        match tokio::time::timeout(self.state.exit_wait(), self.state.process_permits.acquire_many(all)).await
        {
            Ok(all) => drop(all),
            Err(_) => tracing::error!("a process did not exit after SIGKILL"),
        }
    }
}

impl Drop for ProcessPool {
    fn drop(&mut self) {
        self.state.ending.cancel();
    }
}
