//! One call as its owner holds it: a handle, and a task that sees the call through.

use std::sync::Arc;
use std::time::Duration;

use steadfast_wire::RequestId;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::client::Life;
use crate::errand::{Errand, Listener};
use crate::error::Error;
use crate::message::Answer;
use crate::owner::{Boxed, Notification};

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
        let (sender, notifications) = mpsc::channel(life.shared.link.limits.notifications.max(1));
        let (answered, answer) = oneshot::channel();
        let errand = Errand::new(life, method, params, options, Arc::new(Channel(sender)))?;
        let (id, cancelled) = (errand.id().clone(), CancellationToken::new());
        let token = cancelled.clone();
        tokio::spawn(async move {
            // With the errand goes the listener: its owner then goes on to the answer.
            let outcome = errand.run(&token).await;
            let _ = answered.send(outcome);
        });
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

/// Hands notifications to the owner of a call, who may want the answer only.
struct Channel(mpsc::Sender<Notification>);

impl Listener for Channel {
    fn hear(&self, notification: Notification) -> Boxed<'_, ()> {
        Box::pin(async move { drop(self.0.send(notification).await) })
    }

    /// Progress may be missed, nothing else may.
    fn overhear(&self, notification: Notification) {
        if self.0.try_send(notification).is_err() {
            tracing::debug!("progress that came on another stream was missed");
        }
    }
}
