//! Helpers that run futures: detached from the caller, for many sessions, with retries, until
//! cancelled.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use steadfast_store::StoreError;
use steadfast_wire::DoublingDelay;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;

/// How many sessions [`Engine::for_each`] processes concurrently.
const MAX_CONCURRENT: usize = 64;
/// The delay between the attempts of [`Engine::with_retry`].
const STORE_RETRY: DoublingDelay =
    DoublingDelay { first: Duration::from_millis(20), longest: Duration::from_secs(2) };

impl Engine {
    /// Runs work of several steps that must not stop in between.
    ///
    /// If the caller is dropped, as happens when a client disconnects, the work continues in its
    /// own task and its result is dropped. Work that is ready at the first poll costs no task.
    pub(crate) async fn run_detached<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let mut work = Box::pin(work);
        // A store in memory is ready at once.
        let first = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        if let Poll::Ready(done) = first {
            return done;
        }
        let (to, done) = oneshot::channel();
        self.spawn(async move {
            // If the caller is gone, the result is dropped here. Dropping it undoes a begin, an
            // attach or an open.
            let _ = to.send(work.await);
        });
        done.await.unwrap_or_else(|_| Err(StoreError::Unknown("the runtime is shutting down".into()).into()))
    }

    /// Runs `work` for each item, up to [`MAX_CONCURRENT`] at a time, so that one slow session does
    /// not delay all others. A panic of `work` is raised in the caller.
    pub(crate) async fn for_each<T, F>(
        &self,
        all: impl IntoIterator<Item = T>,
        work: impl Fn(Arc<Self>, T) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut running = JoinSet::new();
        for one in all {
            if running.len() >= MAX_CONCURRENT {
                propagate_panic(running.join_next().await);
            }
            running.spawn_on(work(self.arc(), one), &self.runtime);
        }
        while !running.is_empty() {
            propagate_panic(running.join_next().await);
        }
    }

    /// Spawns a task on the runtime that started the engine. Works from any thread.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }

    /// Sends an idempotent command repeatedly, with exponential backoff, until the store accepts it
    /// or [`Options::finish_retry_window`](crate::Options) has passed.
    pub async fn with_retry<T, F>(&self, mut send: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let (mut waited, mut failures) = (Duration::ZERO, 0);
        loop {
            match send().await {
                Err(_) if waited < self.options().finish_retry_window => {
                    failures += 1;
                    tokio::time::sleep(STORE_RETRY.after(failures)).await;
                    waited += STORE_RETRY.after(failures);
                }
                outcome => return outcome,
            }
        }
    }
}

/// Raises the panic of a task in its caller.
fn propagate_panic(ended: Option<Result<(), JoinError>>) {
    if let Some(Err(error)) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `work` until it completes. After `cancel` it has `wind_down` left; then it is dropped and
/// the function returns `None`.
pub(crate) async fn unless_cancelled<T>(
    work: impl Future<Output = T>,
    cancel: &CancellationToken,
    wind_down: Duration,
) -> Option<T> {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return Some(done),
        () = cancel.cancelled() => {}
    }
    tokio::time::timeout(wind_down, work).await.ok()
}
