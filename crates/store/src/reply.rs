//! A store's answer that may be there at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::error::StoreError;

/// The outcome of a command, now or later. Dropping it does not undo the command.
#[must_use = "a command's outcome says whether it happened"]
pub enum Reply<T> {
    /// The memory store knows at once, and then nobody is woken and nothing allocated.
    Ready(Option<Result<T, StoreError>>),
    /// A thread of the store will say.
    Waiting(oneshot::Receiver<Result<T, StoreError>>),
    /// A future of the store's own will say.
    Boxed(Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>),
}

impl<T> Reply<T> {
    pub fn ready(outcome: Result<T, StoreError>) -> Self {
        Self::Ready(Some(outcome))
    }

    pub fn later(future: impl Future<Output = Result<T, StoreError>> + Send + 'static) -> Self {
        Self::Boxed(Box::pin(future))
    }
}

impl<T: Unpin> Future for Reply<T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(outcome) => {
                Poll::Ready(outcome.take().unwrap_or_else(|| Err(StoreError::Unknown("polled twice".into()))))
            }
            Self::Waiting(receiver) => Pin::new(receiver).poll(context).map(|received| {
                received.unwrap_or_else(|_| Err(StoreError::Unknown("the store's thread is gone".into())))
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
