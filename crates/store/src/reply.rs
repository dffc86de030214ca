//! [`Reply`]: the future that every operation of a store returns.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::error::StoreError;

/// The future result of an operation. The operation has been submitted when the store returns the
/// reply; dropping the reply does not undo it.
#[must_use = "the result says whether the operation happened"]
pub enum Reply<T> {
    /// The result is available at once, as in the memory store: no allocation, no wake-up.
    Ready(Option<Result<T, StoreError>>),
    /// A thread of the store will send the result.
    Waiting(oneshot::Receiver<Result<T, StoreError>>),
    /// A future of the store computes the result.
    Boxed(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> Reply<T> {
    /// Returns a reply that completes at once.
    pub fn ready(outcome: Result<T, StoreError>) -> Self {
        Self::Ready(Some(outcome))
    }

    /// Returns a reply that completes with the future.
    pub fn later(future: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self::Boxed(Box::pin(future))
    }
}

impl<T: Unpin> Future for Reply<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(outcome) => Poll::Ready(outcome.take().unwrap_or_else(|| {
                Err(StoreError::Unknown("the reply was polled after it completed".into()))
            })),
            Self::Waiting(receiver) => Pin::new(receiver).poll(context).map(|received| {
                received.unwrap_or_else(|_| {
                    Err(StoreError::Unknown("the thread of the store ended before it sent a result".into()))
                })
            }),
            Self::Boxed(future) => future.as_mut().poll(context),
        }
    }
}

impl<T> std::fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Reply::Ready",
            Self::Waiting(_) => "Reply::Waiting",
            Self::Boxed(_) => "Reply::Boxed",
        })
    }
}
