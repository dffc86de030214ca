//! Sessions that are being opened: the backend has until a deadline, by the engine's own clock.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use steadfast_session::command::Close;
use steadfast_session::{CloseReason, SessionToken, Time};
use steadfast_store::StoreExt as _;
use tokio::sync::oneshot;

use crate::engine::Engine;

/// One entry for each `initialize` that waits for the backend, by deadline.
#[derive(Debug, Default)]
pub(crate) struct Openings(Mutex<Waits>);

#[derive(Debug, Default)]
struct Waits {
    by_deadline: BTreeMap<(Time, u64), oneshot::Sender<()>>,
    next: u64,
}

impl Openings {
    /// Does the work; `None` if it is not done by the deadline.
    pub(crate) async fn within<T>(&self, deadline: Time, work: impl Future<Output = T>) -> Option<T> {
        let (over, is_over) = oneshot::channel();
        let key = {
            let mut waits = self.waits();
            waits.next += 1;
            let key = (deadline, waits.next);
            waits.by_deadline.insert(key, over);
            key
        };
        let _entry = Entry(self, key);
        tokio::select! {
            biased;
            done = work => Some(done),
            // Told, or dropped: either way nobody waits for longer.
            _ = is_over => None,
        }
    }

    pub(crate) fn expire(&self, now: Time) {
        let mut waits = self.waits();
        while let Some(entry) = waits.by_deadline.first_entry()
            && entry.key().0 <= now
        {
            drop(entry.remove());
        }
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Entry<'a>(&'a Openings, (Time, u64));

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.0.waits().by_deadline.remove(&self.1);
    }
}

/// A session that is open, until its caller has the token. Dropped before that, it is closed.
pub(crate) struct Unclaimed {
    engine: Option<Arc<Engine>>,
    token: SessionToken,
    result: Bytes,
}

impl Unclaimed {
    pub(crate) fn new(engine: Arc<Engine>, token: SessionToken, result: Bytes) -> Self {
        Self { engine: Some(engine), token, result }
    }

    pub(crate) fn claim(mut self) -> (SessionToken, Bytes) {
        self.engine = None;
        (self.token, std::mem::take(&mut self.result))
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let (Some(engine), id) = (self.engine.take(), self.token.id()) else { return };
        engine.clone().spawn(async move {
            let close = Close { reason: CloseReason::ServerEnded };
            let closed = engine.patiently(|| engine.store().run(id, close.clone(), engine.now())).await;
            if let Err(error) = closed {
                // It will expire.
                tracing::warn!(session = %id.short(), %error, "a session that nobody knows of is still open");
            }
        });
    }
}
