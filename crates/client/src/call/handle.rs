//! The handle of a call that runs in a task of its own.

use std::sync::Arc;
use std::time::Duration;

use steadfast_wire::RequestId;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::call::{CallObserver, PreparedCall};
use crate::client::Inner;
use crate::error::Error;
use crate::handler::{BoxFuture, Notification};
use crate::peer::Answer;

/// Options of a call besides its method and parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    /// Overrides [`Timeouts::call`](crate::Timeouts::call).
    pub timeout: Option<Duration>,
    /// Whether to request progress notifications. The client replaces a progress token in the
    /// parameters with its own.
    pub progress: bool,
}

/// A call in flight. Dropping the handle before the answer cancels the call.
#[derive(Debug)]
pub struct Call {
    id: RequestId,
    notifications: mpsc::Receiver<Notification>,
    /// `None` once the answer has been taken.
    answer: Option<oneshot::Receiver<Result<Answer, Error>>>,
    canceller: Canceller,
    _guard: DropGuard,
    /// Keeps the client alive while the call runs.
    _inner: Arc<Inner>,
}

/// The next thing that happened in a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallEvent {
    Notification(Notification),
    /// The outcome of the call. Nothing follows.
    Done(Result<Answer, Error>),
}

/// Cancels a call from another task.
#[derive(Clone, Debug)]
pub struct Canceller(CancellationToken);

impl Canceller {
    /// Ends the call with [`Error::Cancelled`] unless it has an answer. A server with sessions
    /// receives `notifications/cancelled`; a stateless server sees that the client closes the
    /// stream.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

impl Call {
    /// Starts a call in a new task.
    pub(crate) fn start(
        inner: &Arc<Inner>,
        method: &str,
        params: Option<&str>,
        options: CallOptions,
    ) -> Result<Self, Error> {
        let (sender, notifications) = mpsc::channel(inner.shared.peer.limits.notifications.max(1));
        let (answered, answer) = oneshot::channel();
        let prepared = PreparedCall::new(inner, method, params, options, Arc::new(Channel(sender)))?;
        let (id, cancelled) = (prepared.id().clone(), CancellationToken::new());
        let token = cancelled.clone();
        tokio::spawn(async move {
            // `run` drops the observer, which closes the channel, so that the reader of the
            // notifications proceeds to the answer.
            let outcome = prepared.run(&token).await;
            let _ = answered.send(outcome);
        });
        let canceller = Canceller(cancelled.clone());
        let (_guard, _inner) = (cancelled.drop_guard(), Arc::clone(inner));
        Ok(Self { id, notifications, answer: Some(answer), canceller, _guard, _inner })
    }

    /// The request id of the call. A stateless call that requires input uses a new id for each
    /// round.
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// Returns the next notification, or the outcome. After the outcome it returns
    /// [`Error::Closed`]. Cancel safe: dropping the future loses nothing.
    pub async fn next(&mut self) -> CallEvent {
        if let Some(notification) = self.notifications.recv().await {
            return CallEvent::Notification(notification);
        }
        CallEvent::Done(self.take_answer().await)
    }

    /// Returns the answer and discards the notifications before it. Dropping the future cancels the
    /// call.
    pub async fn answer(mut self) -> Result<Answer, Error> {
        // Notifications are discarded from now on, so the stream is read without backpressure.
        self.notifications.close();
        self.take_answer().await
    }

    async fn take_answer(&mut self) -> Result<Answer, Error> {
        let Some(answer) = &mut self.answer else { return Err(Error::Closed) };
        // The task sends exactly one outcome, unless the runtime shuts down first.
        let answer = answer.await.unwrap_or(Err(Error::Closed));
        self.answer = None;
        answer
    }
}

/// Passes notifications to the handle of a call. The handle may have closed the channel.
struct Channel(mpsc::Sender<Notification>);

impl CallObserver for Channel {
    fn on_notification(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move { drop(self.0.send(notification).await) })
    }

    /// Progress from another stream is dropped if the channel is full, because that stream must not
    /// wait.
    fn on_progress_from_other_stream(&self, notification: Notification) {
        if self.0.try_send(notification).is_err() {
            tracing::debug!("dropped progress from another stream: the call's notification queue is full");
        }
    }
}
