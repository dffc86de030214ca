//! What the client of an exchange reads: notifications, then the answer.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use steadfast_session::Class;
use steadfast_wire::RequestId;
use steadfast_wire::rpc::ErrorObject;

use crate::backend::Denial;
use crate::stateless::Exchange;
use crate::stateless::exchange::Outbox;

/// The JSON text of the result, or an error.
pub type Answer = Result<Bytes, ErrorObject>;

/// One message for the client of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The JSON text of a notification.
    Message(Class, Bytes),
    /// The answer, which is the last message.
    Answer(Answer),
}

/// Reads the messages of an exchange. Dropping it before the answer was read cancels the exchange,
/// because the client has disconnected, unless the request has an idempotency key.
#[derive(Debug)]
pub struct Replies {
    exchange: Arc<Exchange>,
    ended: bool,
}

impl Replies {
    pub(crate) fn new(exchange: Arc<Exchange>) -> Self {
        Self { exchange, ended: false }
    }

    pub fn id(&self) -> &RequestId {
        self.exchange.id()
    }

    /// Returns true for `subscriptions/listen`.
    pub fn is_subscription(&self) -> bool {
        self.exchange.is_subscription()
    }

    /// Returns the denial if the answer that was read is a denial of the client's credentials.
    pub fn denial(&self) -> Option<Denial> {
        let mut outbox = self.exchange.outbox();
        outbox.denial.take().filter(|_| self.ended)
    }

    /// Returns true if the answer is there.
    pub fn is_answered(&self) -> bool {
        self.ended || self.exchange.outbox().is_answered()
    }

    /// Waits for the answer, and leaves all messages where they are.
    pub fn poll_answered(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_until(context, Outbox::is_answered)
    }

    /// Waits until the server has decided about the client's credentials, and leaves all messages
    /// where they are. A notification or an answer shows a decision.
    pub fn poll_credentials_checked(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_until(context, Outbox::are_credentials_checked)
    }

    fn poll_until(&mut self, context: &mut Context<'_>, is_there: impl FnOnce(&Outbox) -> bool) -> Poll<()> {
        let mut outbox = self.exchange.outbox();
        if self.ended || is_there(&outbox) {
            return Poll::Ready(());
        }
        outbox.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns a notification that is available already.
    pub(crate) fn take_message(&mut self) -> Option<(Class, Bytes)> {
        self.exchange.outbox().take_message()
    }

    /// Cancels the exchange, unless it has an idempotency key. It still gets its answer.
    pub(crate) fn cancel(&self) {
        self.exchange.client_gone();
    }

    /// Waits for the next message. Returns `None` after the answer.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut outbox = self.exchange.outbox();
        match outbox.next() {
            Some(reply) => {
                drop(outbox);
                self.ended = matches!(reply, Reply::Answer(_));
                Poll::Ready(Some(reply))
            }
            None => {
                outbox.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        if !self.ended {
            self.exchange.client_gone();
        }
    }
}
