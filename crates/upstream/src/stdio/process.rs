//! One process from its start to its end: its input, its output, what it says on the side, and what it leaves behind.
//!
//! It has four tasks: three for its pipes, and one that waits for its end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use steadfast_wire::{Message, RequestId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::environment;
use super::group::Group;
use super::mail::{Mailbox, Reader};
use super::pipes;
use super::router::{Router, Sender};
use super::splice;
use super::watch::Watch;
use crate::config::Stdio;

/// Lines that wait to be written, and their bytes; a single one may be larger. Beyond that, the process does not read.
const MAX_INPUT_LINES: usize = 1024;
const MAX_INPUT_BYTES: u32 = 16 << 20;
/// How long after the end its last words are waited for, which others may keep from coming that hold its output.
const LAST_WORDS: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Process {
    router: Mutex<Router>,
    input: mpsc::Sender<Written>,
    room: Arc<Semaphore>,
    /// Lines that were sent to it.
    sent: AtomicU64,
    state: Mutex<State>,
    started: Instant,
    /// It shall end.
    ending: CancellationToken,
    /// It takes no more part in anything; it may still be on its way out.
    gone: CancellationToken,
    /// There is nothing left of it.
    ended: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    /// The session that uses it, for the log.
    name: Arc<str>,
    /// The JSON text of the result of `initialize`.
    welcome: Option<Bytes>,
    /// Why it is to end, if somebody here decided so.
    reason: Option<Reason>,
    /// The last line that it wrote on the side.
    last_words: Option<String>,
    /// How long it lived, unless it was ended because nobody needed it.
    lived: Option<Duration>,
}

/// Why a process is ended that has not ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    /// Nobody needs it any more.
    Wish(&'static str),
    /// It cannot be used.
    Misconduct(String),
}

/// A line for the process, and the room that it takes until it is written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: Bytes,
    _room: OwnedSemaphorePermit,
}

/// Why nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum WriteError {
    /// The program: it does not read what it is sent.
    #[error("the program does not read its input")]
    Full,
    /// The program: it does not answer, or those who use it want too much.
    #[error("{0}")]
    TooManyCalls(#[from] super::router::TooManyCalls),
    /// The program: it has ended.
    #[error("the program has ended")]
    Gone,
}

impl Process {
    /// Starts a program. `permit` is its place among those that may run, which it keeps to its end.
    pub(super) fn start(
        stdio: &Stdio,
        name: &str,
        watch: &Arc<Watch>,
        permit: OwnedSemaphorePermit,
        ending: CancellationToken,
    ) -> std::io::Result<Arc<Self>> {
        let mut group = Group::start(&stdio.program)?;
        let leader = &mut group.leader;
        let pipes = (leader.stdin.take(), leader.stdout.take(), leader.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        };
        let (input, lines) = mpsc::channel(MAX_INPUT_LINES);
        let process = Arc::new(Self {
            router: Mutex::default(),
            input,
            room: Arc::new(Semaphore::new(MAX_INPUT_BYTES as usize)),
            sent: AtomicU64::new(0),
            state: Mutex::new(State { name: name.into(), ..State::default() }),
            started: Instant::now(),
            ending,
            gone: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        tracing::debug!(
            session = name,
            pid = group.id,
            command = stdio.program.command,
            "a program was started"
        );
        let readers = Readers {
            output: tokio::spawn(pipes::read(Arc::clone(&process), stdout, stdio.line_bytes)),
            side: tokio::spawn(pipes::read_side(Arc::clone(&process), stderr)),
            writer: tokio::spawn(pipes::write(Arc::clone(&process), stdin, lines)),
        };
        let times = (stdio.idle, stdio.farewell);
        let keeper = Arc::clone(&process).keep(group, readers, times, Arc::clone(watch), permit);
        tokio::spawn(keeper);
        Ok(process)
    }

    /// Ends it, because somebody wants that. Comes back at once.
    pub(super) fn end(&self, why: &'static str) {
        self.end_because(Reason::Wish(why));
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.is_cancelled() || self.ending.is_cancelled()
    }

    /// Whether somebody here decided that it ends.
    pub(super) fn was_ended(&self) -> bool {
        self.state().reason.is_some() || self.ending.is_cancelled()
    }

    /// Ends it because it cannot be used.
    pub(super) fn expel(&self, what: String) {
        self.end_because(Reason::Misconduct(what));
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.state().name)
    }

    /// From now on this session uses it.
    pub(super) fn rename(&self, name: &str) {
        let before = std::mem::replace(&mut self.state().name, name.into());
        tracing::debug!(session = name, before = &*before, "a program that runs serves this session");
    }

    pub(super) fn set_last_words(&self, line: String) {
        self.state().last_words = Some(line);
    }

    /// Waits until nothing is left of it.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// How long it lived, if it was not ended because nobody needed it. It is told once.
    pub(super) fn take_lived(&self) -> Option<Duration> {
        self.state().lived.take()
    }

    /// The JSON text of the result of `initialize`, which a process has once.
    pub(super) fn welcome(&self) -> Option<Bytes> {
        self.state().welcome.clone()
    }

    pub(super) fn set_welcome(&self, result: Bytes) {
        self.state().welcome = Some(result);
    }

    /// A place for a session, unless the process is about to end.
    pub(super) fn seat(&self) -> Option<u64> {
        let mut router = self.router();
        (!self.is_gone()).then(|| router.seat())
    }

    /// Whether a session may have it that knows nothing of what it was used for before: it was sent nothing
    /// but `server/discover`, and has answered.
    pub(super) fn is_fresh(&self) -> bool {
        self.router().is_fresh()
    }

    pub(super) fn leave(&self, seat: u64) {
        let lines = self.router().leave(seat);
        for line in lines {
            self.reply(line);
        }
    }

    pub(super) fn mail_of(&self, seat: u64) -> Option<Arc<Mailbox>> {
        self.router().mail_of(seat)
    }

    /// Sends a request.
    pub(super) fn begin(
        self: &Arc<Self>,
        sender: Sender,
        message: &Message<'_>,
        id: &RequestId,
    ) -> Result<Flight, WriteError> {
        let mail = Arc::default();
        let (own, line) = {
            let mut router = self.router();
            // The process is ended for want of use under the same lock, so a request is either in the router
            // before that or is not sent at all.
            if self.is_gone() {
                return Err(WriteError::Gone);
            }
            router.begin(sender, message, id, &mail)?
        };
        if let Err(error) = self.send(line) {
            self.router().take_back(own);
            return Err(error);
        }
        // The keeper may have broken off what was in flight before this was.
        if self.gone.is_cancelled() {
            self.router().break_off("the program has ended");
        }
        Ok(Flight { process: Arc::clone(self), own, reader: mail.reader() })
    }

    pub(super) fn notify(&self, seat: Option<u64>, message: &Message<'_>) -> Result<(), WriteError> {
        let line = self.router().notification(seat, message);
        line.map_or(Ok(()), |line| self.send(line))
    }

    /// Passes an answer of a client on. One that was not asked for goes nowhere.
    pub(super) fn answer(&self, seat: u64, message: &Message<'_>, id: &RequestId) -> Result<(), WriteError> {
        let line = self.router().answer(seat, message, id);
        line.map_or(Ok(()), |line| self.send(line))
    }

    fn end_because(&self, reason: Reason) {
        self.state().reason.get_or_insert(reason);
        self.ending.cancel();
    }

    /// Ends it when it has had no session and no request in flight for this long, or up to twice as long.
    async fn end_when_idle(&self, idle: Duration) {
        loop {
            let before = self.router().uses();
            tokio::time::sleep(idle).await;
            let router = self.router();
            if router.is_unused() && router.uses() == before {
                return self.end("no session and no request has needed it for a while");
            }
        }
    }

    /// Whether it is ended because nobody needs it: then its end says nothing about it.
    fn is_unwanted(&self) -> bool {
        match &self.state().reason {
            Some(Reason::Wish(_)) => true,
            Some(Reason::Misconduct(_)) => false,
            None => self.ending.is_cancelled(),
        }
    }

    fn send(&self, text: Bytes) -> Result<(), WriteError> {
        let size = u32::try_from(text.len()).unwrap_or(u32::MAX).min(MAX_INPUT_BYTES);
        self.sent.fetch_add(1, Ordering::Relaxed);
        let room = Arc::clone(&self.room).try_acquire_many_owned(size).map_err(|_| WriteError::Full)?;
        self.input.try_send(Written { text: splice::one_line(text), _room: room }).map_err(
            |error| match error {
                mpsc::error::TrySendError::Full(_) => WriteError::Full,
                mpsc::error::TrySendError::Closed(_) => WriteError::Gone,
            },
        )
    }

    /// Sends what nobody waits for.
    pub(super) fn reply(&self, line: Bytes) {
        if let Err(error) = self.send(line) {
            tracing::debug!(session = &*self.name(), %error, "a line was not written");
        }
    }

    /// Waits for the end, or brings it about.
    async fn keep(
        self: Arc<Self>,
        mut group: Group,
        readers: Readers,
        (idle, farewell): (Duration, Duration),
        watch: Arc<Watch>,
        permit: OwnedSemaphorePermit,
    ) {
        let id = group.id;
        watch.add(id).await;
        let Readers { mut output, mut side, mut writer } = readers;
        let mut exited = tokio::select! {
            status = group.leader.wait() => Some(status),
            () = self.ending.cancelled() => None,
            () = self.end_when_idle(idle) => None,
            // Whoever closes either of them is about to end, or of no use any more.
            _ = &mut output => tokio::time::timeout(LAST_WORDS, group.leader.wait()).await.ok(),
            _ = &mut writer => tokio::time::timeout(LAST_WORDS, group.leader.wait()).await.ok(),
        };
        if exited.is_some() {
            let _ = tokio::time::timeout(LAST_WORDS, async {
                finished(&mut output).await;
                finished(&mut side).await;
            })
            .await;
        }
        let why = self.why(exited.as_ref());
        let unwanted = self.is_unwanted();
        self.state().lived = (!unwanted).then(|| self.started.elapsed());
        self.gone.cancel();
        self.router().break_off(&why);
        output.abort();
        // Closes its input.
        writer.abort();
        finished(&mut writer).await;
        if exited.is_none() {
            exited = Some(group.end(farewell).await);
        }
        side.abort();
        group.clear();
        watch.remove(id).await;
        drop(permit);
        self.ended.cancel();
        let status = exited.map(|status| describe(&status)).unwrap_or_default();
        let last_words = self.state().last_words.take();
        let session = &*self.name();
        if unwanted {
            tracing::debug!(session, pid = id, status, why, "a program was ended");
        } else {
            let hint = (self.sent.load(Ordering::Relaxed) <= 1).then_some(environment::HINT);
            tracing::warn!(session, pid = id, status, why, last_words, hint, "a program has ended");
        }
    }

    /// What to tell those who waited for an answer. What it wrote on the side they hear only if nobody but the sender of the one
    /// line that it was sent can hear of it.
    fn why(&self, exited: Option<&std::io::Result<std::process::ExitStatus>>) -> String {
        let state = self.state();
        let why = match (&state.reason, exited) {
            (Some(Reason::Wish(reason)), _) => format!("the program was ended: {reason}"),
            (Some(Reason::Misconduct(reason)), _) => format!("the program was ended: {reason}"),
            (None, Some(status)) => format!("the program ended with {}", describe(status)),
            (None, None) if self.ending.is_cancelled() => "the program was ended".to_owned(),
            (None, None) => "the program closed its output or its input".to_owned(),
        };
        // What it says later may be about the requests of others. Until then it is why it does not start.
        let is_for_its_sender = state.reason.is_none() && self.sent.load(Ordering::Relaxed) <= 1;
        match &state.last_words {
            Some(words) if is_for_its_sender => format!("{why}; its last words: {words}"),
            _ => why,
        }
    }

    pub(super) fn router(&self) -> MutexGuard<'_, Router> {
        self.router.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks of a process, except the one that outlives them.
struct Readers {
    output: JoinHandle<()>,
    side: JoinHandle<()>,
    writer: JoinHandle<()>,
}

/// A request in flight. Dropped, nobody waits for it any more.
#[derive(Debug)]
pub(super) struct Flight {
    process: Arc<Process>,
    own: i64,
    pub(super) reader: Reader,
}

impl Flight {
    pub(super) fn process(&self) -> &Arc<Process> {
        &self.process
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let cancellation = self.process.router().forsake(self.own);
        if let Some(line) = cancellation {
            self.process.reply(line);
        }
    }
}

/// Waits for a task, which may have been waited for before.
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
