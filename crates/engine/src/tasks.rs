//! Tasks: work that goes on when whoever asked for it has gone.

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;

use steadfast_store::StoreError;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinSet};

use crate::engine::Engine;

/// Sessions that are looked at together.
const AT_ONCE: usize = 64;

impl Engine {
    /// Does work of several steps of which none may be left out: if whoever asked for it goes away in between, as
    /// clients do, it goes on in a task of its own, and its result is dropped.
    pub(crate) async fn to_the_end<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let mut work = Box::pin(work);
        // A store that answers at once needs no task.
        let first = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context))).await;
        if let Poll::Ready(done) = first {
            return done;
        }
        let (to, done) = oneshot::channel();
        self.spawn(async move {
            // If nobody waits, what was begun, attached or opened is undone by its own drop.
            let _ = to.send(work.await);
        });
        done.await.unwrap_or_else(|_| Err(StoreError::Unknown("the server is going down".into()).into()))
    }

    /// Does the same for many, some of them at a time: one that takes long keeps few others waiting.
    pub(crate) async fn for_each<T, F>(
        &self,
        all: impl IntoIterator<Item = T>,
        work: impl Fn(Arc<Self>, T) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut running = JoinSet::new();
        for one in all {
            if running.len() >= AT_ONCE {
                passed_on(running.join_next().await);
            }
            running.spawn_on(work(self.arc(), one), &self.runtime);
        }
        while !running.is_empty() {
            passed_on(running.join_next().await);
        }
    }

    /// Every task of the engine starts here. Works from any thread.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(task);
    }
}

/// A panic goes to whoever waits for the work, as if it had been done there.
fn passed_on(ended: Option<Result<(), JoinError>>) {
    if let Some(Err(error)) = ended
        && let Ok(panic) = error.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}
