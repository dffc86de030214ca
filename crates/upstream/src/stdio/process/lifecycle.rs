//! One process from its start to its end: it sends lines to the process, routes the lines that the
//! process writes, and supervises its exit.
//!
//! Each process has four tasks: three for its pipes, and one that waits for its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use steadfast_wire::{Message, Mutex, RequestId, raw_json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Stdio;
use crate::stdio::orphan_guard::OrphanGuard;
use crate::stdio::process::process_group::ProcessGroup;
use crate::stdio::process::{environment, pipes};
use crate::stdio::routing::outbox::{Outbox, OutboxReader};
use crate::stdio::routing::router::{Router, Sender, TooManyCalls};

/// How many lines, and how many bytes, may wait to be written. A single line may be larger. Beyond
/// that the process counts as not reading its input.
const MAX_INPUT_LINES: usize = 1024;
const MAX_INPUT_BYTES: u32 = 16 << 20;
/// How long to wait for remaining output after the process has ended. Child processes of it may
/// hold the pipes open.
const FINAL_OUTPUT_TIMEOUT: Duration = Duration::from_millis(500);
/// Why a process ends whose sessions live on.
const SUSPENDED: &str = "its sessions are idle; the next request starts another process";

#[derive(Debug)]
pub(crate) struct Process {
    router: Mutex<Router>,
    input: mpsc::Sender<InputLine>,
    input_budget: Arc<Semaphore>,
    /// The number of lines that were sent to the process.
    sent: AtomicU64,
    state: Mutex<State>,
    started: Instant,
    last_used: Mutex<Instant>,
    /// Cancelled when the process must end.
    ending: CancellationToken,
    /// Cancelled when the process gets no more messages. It may still be exiting.
    gone: CancellationToken,
    /// Cancelled when the process and its group are gone.
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// The session that uses the process, for logs.
    name: Arc<str>,
    /// The JSON text of the `initialize` result.
    initialize_result: Option<Bytes>,
    /// Why the gateway ends the process, if it does.
    reason: Option<EndReason>,
    /// The last line that the process wrote to standard error.
    last_stderr_line: Option<String>,
    /// How long the process lived, unless the gateway ended it because it was not needed.
    lived: Option<Duration>,
}

/// Why the gateway ends a process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EndReason {
    /// The process is not needed any more.
    Unneeded(&'static str),
    /// The process cannot be used.
    Misbehaved(String),
}

/// A line for the process, and its share of the input budget until it is written.
#[derive(Debug)]
pub(crate) struct InputLine {
    pub(crate) text: Bytes,
    _budget: OwnedSemaphorePermit,
}

/// Why nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WriteError {
    /// The program does not read its input.
    #[error("the program does not read its input")]
    Full,
    /// The program does not answer, or its clients send too many requests.
    #[error("{0}")]
    TooManyCalls(#[from] TooManyCalls),
    /// The process has ended.
    #[error("the program has ended")]
    Gone,
}

impl Process {
    /// Starts a process, which holds `permit` until it is gone.
    pub(crate) fn start(
        stdio: &Stdio,
        name: &str,
        orphan_guard: &Arc<OrphanGuard>,
        permit: OwnedSemaphorePermit,
        ending: CancellationToken,
    ) -> std::io::Result<Arc<Self>> {
        let mut group = ProcessGroup::start(&stdio.program)?;
        let leader = &mut group.leader;
        let pipes = (leader.stdin.take(), leader.stdout.take(), leader.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        };
        let (input, lines) = mpsc::channel(MAX_INPUT_LINES);
        let process = Arc::new(Self {
            router: Mutex::default(),
            input,
            input_budget: Arc::new(Semaphore::new(MAX_INPUT_BYTES as usize)),
            sent: AtomicU64::new(0),
            state: Mutex::new(State { name: name.into(), ..State::default() }),
            started: Instant::now(),
            last_used: Mutex::new(Instant::now()),
            ending,
            gone: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        tracing::debug!(session = name, pid = group.id, command = stdio.program.command, "started a program");
        let tasks = PipeTasks {
            output: tokio::spawn(pipes::read(Arc::clone(&process), stdout, stdio.line_bytes)),
            stderr: tokio::spawn(pipes::read_stderr(Arc::clone(&process), stderr)),
            writer: tokio::spawn(pipes::write(Arc::clone(&process), stdin, lines)),
        };
        let times = (stdio.idle, stdio.idle_timeout, stdio.exit_timeout);
        let supervisor =
            Arc::clone(&process).supervise(group, tasks, times, Arc::clone(orphan_guard), permit);
        tokio::spawn(supervisor);
        Ok(process)
    }

    /// Ends the process because it is not needed. Returns at once.
    pub(crate) fn end(&self, why: &'static str) {
        self.end_because(EndReason::Unneeded(why));
    }

    /// Ends the process although sessions use it, unless a request is in flight. The next request
    /// of a session starts another process. Returns true if the process ends.
    pub(crate) fn suspend(&self) -> bool {
        let router = self.router();
        // Under the lock of the router, so that a request is either in flight by now or is not
        // sent.
        let is_idle = router.is_idle() && !self.is_gone() && self.initialize_result().is_some();
        if is_idle {
            self.end(SUSPENDED);
        }
        is_idle
    }

    /// Returns true if the process was ended by [`Process::suspend`].
    pub(crate) fn is_suspended(&self) -> bool {
        self.state.lock().reason == Some(EndReason::Unneeded(SUSPENDED))
    }

    /// Returns when the process got its last request, or when it was started.
    pub(crate) fn last_used(&self) -> Instant {
        *self.last_used.lock()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.is_cancelled() || self.ending.is_cancelled()
    }

    /// Returns true if the gateway has decided to end the process.
    pub(crate) fn was_ended(&self) -> bool {
        self.state.lock().reason.is_some() || self.ending.is_cancelled()
    }

    /// Ends the process because it cannot be used.
    pub(crate) fn end_misbehaving(&self, what: String) {
        self.end_because(EndReason::Misbehaved(what));
    }

    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(&self.state.lock().name)
    }

    /// Changes the session that uses the process.
    pub(crate) fn rename(&self, name: &str) {
        let previous = std::mem::replace(&mut self.state.lock().name, name.into());
        tracing::debug!(session = name, previous = &*previous, "a running process serves this session now");
    }

    pub(crate) fn set_last_stderr_line(&self, line: String) {
        self.state.lock().last_stderr_line = Some(line);
    }

    /// Waits until the process and its group are gone.
    pub(crate) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Returns how long the process lived, unless it was ended because it was not needed. Returns
    /// it once.
    pub(crate) fn take_lived(&self) -> Option<Duration> {
        self.state.lock().lived.take()
    }

    /// Returns the JSON text of the `initialize` result. A process is initialised once.
    pub(crate) fn initialize_result(&self) -> Option<Bytes> {
        self.state.lock().initialize_result.clone()
    }

    pub(crate) fn set_initialize_result(&self, result: Bytes) {
        self.state.lock().initialize_result = Some(result);
    }

    /// Adds a session, unless the process is about to end.
    pub(crate) fn add_session(&self) -> Option<u64> {
        let (session, lines) = {
            let mut router = self.router();
            (!self.is_gone()).then(|| router.add_session())?
        };
        lines.into_iter().for_each(|line| self.reply(line));
        Some(session)
    }

    /// Returns true if a new session may use the process: it has received nothing but
    /// `server/discover`, and has answered.
    pub(crate) fn is_fresh(&self) -> bool {
        self.router().is_fresh()
    }

    pub(crate) fn remove_session(&self, session: u64) {
        let lines = self.router().remove_session(session);
        lines.into_iter().for_each(|line| self.reply(line));
    }

    pub(crate) fn outbox_of(&self, session: u64) -> Option<Arc<Outbox>> {
        self.router().outbox_of(session)
    }

    pub(crate) fn begin_request(
        self: &Arc<Self>,
        sender: Sender,
        message: &Message<'_>,
        id: &RequestId,
    ) -> Result<PendingRequest, WriteError> {
        let outbox = Arc::default();
        let (own_id, line) = {
            let mut router = self.router();
            // An idle process is ended under the same lock, so a request is either in the router
            // before that, or is not sent at all.
            if self.is_gone() {
                return Err(WriteError::Gone);
            }
            router.begin_request(sender, message, id, &outbox)?
        };
        if let Err(error) = self.send(line) {
            self.router().remove_unsent(own_id);
            return Err(error);
        }
        *self.last_used.lock() = Instant::now();
        // The supervisor may have failed all requests before this one was added.
        if self.gone.is_cancelled() {
            self.router().end_all("the program has ended");
        }
        Ok(PendingRequest { process: Arc::clone(self), own_id, reader: outbox.reader() })
    }

    pub(crate) fn notify(&self, session: Option<u64>, message: &Message<'_>) -> Result<(), WriteError> {
        let line = self.router().notification(session, message);
        line.map_or(Ok(()), |line| self.send(line))
    }

    /// Forwards a client's answer to a server request. Drops an answer to an unknown request.
    pub(crate) fn answer(
        &self,
        session: u64,
        message: &Message<'_>,
        id: &RequestId,
    ) -> Result<(), WriteError> {
        let line = self.router().answer(session, message, id);
        line.map_or(Ok(()), |line| self.send(line))
    }

    fn end_because(&self, reason: EndReason) {
        self.state.lock().reason.get_or_insert(reason);
        self.ending.cancel();
    }

    /// Ends the process when it has had no session and no request in flight for `idle`, or up to
    /// twice as long.
    async fn end_when_idle(&self, idle: Duration) {
        loop {
            let before = self.router().use_count();
            tokio::time::sleep(idle).await;
            let router = self.router();
            if router.is_unused() && router.use_count() == before {
                return self.end("no session and no request has needed it for a while");
            }
        }
    }

    /// Suspends the process when it has had no request in flight for this time, or up to twice as
    /// long.
    async fn suspend_when_idle(&self, timeout: Option<Duration>) {
        let Some(timeout) = timeout else { return std::future::pending().await };
        loop {
            let before = self.router().use_count();
            tokio::time::sleep(timeout).await;
            let is_unchanged = self.router().use_count() == before;
            if is_unchanged && self.suspend() {
                return;
            }
        }
    }

    /// Returns true if the process is ended because it is not needed. Then its end is no failure.
    fn is_unneeded(&self) -> bool {
        match &self.state.lock().reason {
            Some(EndReason::Unneeded(_)) => true,
            Some(EndReason::Misbehaved(_)) => false,
            None => self.ending.is_cancelled(),
        }
    }

    fn send(&self, text: Bytes) -> Result<(), WriteError> {
        let size = u32::try_from(text.len()).unwrap_or(u32::MAX).min(MAX_INPUT_BYTES);
        self.sent.fetch_add(1, Ordering::Relaxed);
        let input_budget =
            Arc::clone(&self.input_budget).try_acquire_many_owned(size).map_err(|_| WriteError::Full)?;
        self.input.try_send(InputLine { text: raw_json::one_line(text), _budget: input_budget }).map_err(
            |error| match error {
                mpsc::error::TrySendError::Full(_) => WriteError::Full,
                mpsc::error::TrySendError::Closed(_) => WriteError::Gone,
            },
        )
    }

    /// Sends a line whose failure concerns no client.
    pub(crate) fn reply(&self, line: Bytes) {
        if let Err(error) = self.send(line) {
            tracing::debug!(session = &*self.name(), %error, "could not write a line to a program");
        }
    }

    /// Waits until the process ends, or ends it.
    async fn supervise(
        self: Arc<Self>,
        mut group: ProcessGroup,
        tasks: PipeTasks,
        (idle, idle_timeout, exit_timeout): (Duration, Option<Duration>, Duration),
        orphan_guard: Arc<OrphanGuard>,
        permit: OwnedSemaphorePermit,
    ) {
        let id = group.id;
        orphan_guard.add(id).await;
        let PipeTasks { mut output, mut stderr, mut writer } = tasks;
        let mut exited = tokio::select! {
            status = group.leader.wait() => Some(status),
            () = self.ending.cancelled() => None,
            () = self.end_when_idle(idle) => None,
            () = self.suspend_when_idle(idle_timeout) => None,
            // A process that closes its output or its input is about to end, or unusable.
            _ = &mut output => tokio::time::timeout(FINAL_OUTPUT_TIMEOUT, group.leader.wait()).await.ok(),
            _ = &mut writer => tokio::time::timeout(FINAL_OUTPUT_TIMEOUT, group.leader.wait()).await.ok(),
        };
        if exited.is_some() {
            let _ = tokio::time::timeout(FINAL_OUTPUT_TIMEOUT, async {
                finished(&mut output).await;
                finished(&mut stderr).await;
            })
            .await;
        }
        let why = self.why(exited.as_ref());
        let is_unneeded = self.is_unneeded();
        self.state.lock().lived = (!is_unneeded).then(|| self.started.elapsed());
        self.gone.cancel();
        self.router().end_all(&why);
        output.abort();
        // Closes the input of the process.
        writer.abort();
        finished(&mut writer).await;
        if exited.is_none() {
            exited = Some(group.end(exit_timeout).await);
        }
        stderr.abort();
        group.kill_rest();
        orphan_guard.remove(id).await;
        drop(permit);
        self.ended.cancel();
        let status = exited.map(|status| describe(&status)).unwrap_or_default();
        let last_stderr_line = self.state.lock().last_stderr_line.take();
        let session = &*self.name();
        if is_unneeded {
            tracing::debug!(session, pid = id, status, why, "ended a program");
        } else {
            let hint = (self.sent.load(Ordering::Relaxed) <= 1).then_some(environment::HINT);
            tracing::warn!(session, pid = id, status, why, last_stderr_line, hint, "a program has ended");
        }
    }

    /// Returns the reason for clients that wait for an answer. Contains standard error only if the
    /// process got a single line, so that only the sender of that line sees it.
    fn why(&self, exited: Option<&std::io::Result<std::process::ExitStatus>>) -> String {
        let state = self.state.lock();
        let why = match (&state.reason, exited) {
            (Some(EndReason::Unneeded(reason)), _) => format!("the program was ended: {reason}"),
            (Some(EndReason::Misbehaved(reason)), _) => format!("the program was ended: {reason}"),
            (None, Some(status)) => format!("the program ended with {}", describe(status)),
            (None, None) if self.ending.is_cancelled() => "the program was ended".to_owned(),
            (None, None) => "the program closed its output or its input".to_owned(),
        };
        // Later lines on standard error may be about requests of other clients. Until then they say
        // why the process does not start.
        let is_for_its_sender = state.reason.is_none() && self.sent.load(Ordering::Relaxed) <= 1;
        match &state.last_stderr_line {
            Some(line) if is_for_its_sender => format!("{why}; its last line on stderr: {line}"),
            _ => why,
        }
    }

    pub(crate) fn router(&self) -> MutexGuard<'_, Router> {
        self.router.lock()
    }
}

struct PipeTasks {
    output: JoinHandle<()>,
    stderr: JoinHandle<()>,
    writer: JoinHandle<()>,
}

/// A request in flight. Dropping it abandons the request.
#[derive(Debug)]
pub(crate) struct PendingRequest {
    process: Arc<Process>,
    own_id: i64,
    pub(crate) reader: OutboxReader,
}

impl PendingRequest {
    pub(crate) fn process(&self) -> &Arc<Process> {
        &self.process
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        let cancellation = self.process.router().abandon(self.own_id);
        if let Some(line) = cancellation {
            self.process.reply(line);
        }
    }
}

/// Waits for a task, which may have been awaited before.
async fn finished(task: &mut JoinHandle<()>) {
    while !task.is_finished() {
        let _ = (&mut *task).await;
    }
}

fn describe(status: &std::io::Result<std::process::ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("an unknown status ({error})"),
    }
}
