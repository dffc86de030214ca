//! Work that must not be left half done.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::engine::Engine;

impl Engine {
    /// Does `work` to its end whether or not anybody waits for it. A server drops the future of a request when its
    /// client hangs up; if that happens between a command and what has to follow it, the rest is done by a task.
    pub fn carry_out<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> CarriedOut<T> {
        CarriedOut { work: Some(Box::pin(work)), runtime: self.runtime().clone() }
    }
}

/// See [`Engine::carry_out`].
#[must_use = "it starts when it is polled"]
pub struct CarriedOut<T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    runtime: tokio::runtime::Handle,
}

impl<T: Send + 'static> Future for CarriedOut<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Out of its place while it is polled: what has panicked is not to be polled again.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let poll = work.as_mut().poll(context);
        if poll.is_pending() {
            self.work = Some(work);
        }
        poll
    }
}

impl<T: Send + 'static> Drop for CarriedOut<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.runtime.spawn(async move { drop(work.await) });
        }
    }
}

impl<T: Send + 'static> std::fmt::Debug for CarriedOut<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CarriedOut").finish_non_exhaustive()
    }
}
