//! Deadlines of `initialize` requests that wait for the backend, measured by the engine's clock.

use std::collections::BTreeMap;

use steadfast_session::Time;
use steadfast_wire::Mutex;
use tokio::sync::oneshot;

/// The `initialize` requests in progress, ordered by deadline.
#[derive(Debug, Default)]
pub(crate) struct PendingInitialize(Mutex<Waiters>);

#[derive(Debug, Default)]
struct Waiters {
    by_deadline: BTreeMap<(Time, u64), oneshot::Sender<()>>,
    next: u64,
}

impl PendingInitialize {
    /// Runs `work`. Returns `None` if it is not done when [`PendingInitialize::expire`] passes the
    /// deadline.
    pub(crate) async fn with_deadline<T>(&self, deadline: Time, work: impl Future<Output = T>) -> Option<T> {
        let (over, is_over) = oneshot::channel();
        let key = {
            let mut waiters = self.0.lock();
            waiters.next += 1;
            let key = (deadline, waiters.next);
            waiters.by_deadline.insert(key, over);
            key
        };
        let _entry = Entry(self, key);
        tokio::select! {
            biased;
            done = work => Some(done),
            // `expire` drops the sender.
            _ = is_over => None,
        }
    }

    pub(crate) fn expire(&self, now: Time) {
        let mut waiters = self.0.lock();
        while let Some(entry) = waiters.by_deadline.first_entry()
            && entry.key().0 <= now
        {
            drop(entry.remove());
        }
    }
}

struct Entry<'a>(&'a PendingInitialize, (Time, u64));

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.0.0.lock().by_deadline.remove(&self.1);
    }
}
