//! One call: its handle, and the task that sees it through.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use steadfast_wire::RequestId;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::Life;
use crate::error::{Error, Wait};
use crate::message::Answer;
use crate::owner::Notification;
use crate::shared::{Mode, Shared};
use crate::{legacy, modern};
use steadfast_wire::members::Members;

/// The call that has no bound in time: it ends when its owner or the server ends it.
const LISTEN: &str = "subscriptions/listen";

/// What a call may ask for besides its method and parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// How long it may take, if not as long as [`Timeouts::call`](crate::Timeouts::call) says.
    pub timeout: Option<Duration>,
    /// Whether the server shall tell how far it is. The token is ours; an owner's own is replaced.
    pub progress: bool,
}

/// A call in flight. Dropped before its answer, it is cancelled.
#[derive(Debug)]
pub struct Call {
    id: RequestId,
    notifications: mpsc::Receiver<Notification>,
    /// Gone when it has been taken.
    answer: Option<oneshot::Receiver<Result<Answer, Error>>>,
    canceller: Canceller,
    _guard: DropGuard,
    /// A call keeps its client alive.
    _life: Arc<Life>,
}

/// What happens next in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Notification(Notification),
    /// The end.
    Done(Result<Answer, Error>),
}

/// Cancels a call from elsewhere.
#[derive(Clone, Debug)]
pub struct Canceller(CancellationToken);

impl Canceller {
    /// Ends the call with [`Error::Cancelled`] unless it has its answer. A server with sessions is told; a stateless one
    /// sees that the stream is closed.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

impl Call {
    /// Begins a call.
    pub(crate) fn start(
        life: &Arc<Life>,
        method: &str,
        params: Option<&str>,
        options: CallOptions,
    ) -> Result<Self, Error> {
        let shared = &life.shared;
        if shared.closing.is_cancelled() {
            return Err(Error::Closed);
        }
        let params = params.map(Members::parse).transpose().map_err(|_| Error::BadParams)?;
        let limit = shared.link.limits.calls;
        let permit =
            Arc::clone(&shared.calls).try_acquire_owned().map_err(|_| Error::TooManyCalls { limit })?;
        let (listener, notifications) = mpsc::channel(shared.link.limits.notifications.max(1));
        let (answered, answer) = oneshot::channel();
        let cancelled = CancellationToken::new();
        let id = shared.link.next_id();
        let timeout = match options.timeout {
            None if method == LISTEN => None,
            None => Some(shared.link.timeouts.call),
            some => some,
        };
        let job =
            Job { id: id.clone(), method: method.to_owned(), params, progress: options.progress, listener };
        let task = Task { shared: Arc::clone(shared), job, timeout, cancelled: cancelled.clone(), permit };
        tokio::spawn(task.run(answered));
        let canceller = Canceller(cancelled.clone());
        let (_guard, _life) = (cancelled.drop_guard(), Arc::clone(life));
        Ok(Self { id, notifications, answer: Some(answer), canceller, _guard, _life })
    }

    /// The id that the call has on the wire, at first: a stateless call that asks for input gets another for each round.
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// The next notification, or the end. After the end it is [`Error::Closed`] for ever. Dropped while it waits, it has
    /// lost nothing.
    pub async fn next(&mut self) -> Step {
        if let Some(notification) = self.notifications.recv().await {
            return Step::Notification(notification);
        }
        Step::Done(self.take_answer().await)
    }

    /// The answer, without whatever comes before it. Dropped, it cancels the call.
    pub async fn answer(mut self) -> Result<Answer, Error> {
        // A stream that nobody hears is read on without waiting.
        self.notifications.close();
        self.take_answer().await
    }

    async fn take_answer(&mut self) -> Result<Answer, Error> {
        let Some(answer) = &mut self.answer else { return Err(Error::Closed) };
        // The task sends exactly one, unless the runtime ends before.
        let answer = answer.await.unwrap_or(Err(Error::Closed));
        self.answer = None;
        answer
    }
}

/// What is to be called.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) id: RequestId,
    pub(crate) method: String,
    pub(crate) params: Option<Members>,
    pub(crate) progress: bool,
    pub(crate) listener: mpsc::Sender<Notification>,
}

impl Job {
    /// The parameters with our progress token, if progress is wanted. The token is the call's first id.
    pub(crate) fn params_with_token(&self) -> Option<Members> {
        if !self.progress {
            return self.params.clone();
        }
        let mut params = self.params.clone().unwrap_or_default();
        let mut meta = params.get("_meta").and_then(|meta| Members::parse(meta).ok()).unwrap_or_default();
        meta.set("progressToken", &self.id.to_string());
        params.set("_meta", &meta.to_string());
        Some(params)
    }
}

struct Task {
    shared: Arc<Shared>,
    job: Job,
    timeout: Option<Duration>,
    cancelled: CancellationToken,
    permit: OwnedSemaphorePermit,
}

impl Task {
    async fn run(self, answered: oneshot::Sender<Result<Answer, Error>>) {
        let Self { shared, job, timeout, cancelled, permit } = self;
        let mut posted = None;
        let outcome = {
            let interest = job.progress.then(|| shared.progress.watch(&job.id, job.listener.clone()));
            let work = async {
                match &shared.mode {
                    Mode::Session(sessions) => legacy::call(&shared, sessions, &job, &mut posted).await,
                    Mode::Stateless(tools) => modern::call(&shared, tools, &job).await,
                }
            };
            let mut work = pin!(work);
            let outcome = tokio::select! {
                biased;
                outcome = &mut work => outcome,
                () = cancelled.cancelled() => Err(Error::Cancelled),
                () = shared.closing.cancelled() => Err(Error::Closed),
                () = elapsed(timeout) => Err(Error::Timeout(Wait::Call)),
            };
            drop(interest);
            outcome
        };
        let Job { id, listener, .. } = job;
        let forsaken = matches!(outcome, Err(Error::Cancelled | Error::Timeout(_)));
        // Both ends of the handle: without a listener left, its owner goes on to the answer.
        drop(listener);
        let _ = answered.send(outcome);
        if let (true, Some(session)) = (forsaken, posted) {
            legacy::tell_cancelled(&shared, &session, &id).await;
        }
        drop(permit);
    }
}

async fn elapsed(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}
