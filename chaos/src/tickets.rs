//! How many calls there will be, and when: a call needs a ticket, and tickets come at an even pace.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Tickets {
    in_all: u64,
    taken: AtomicU64,
    interval: Duration,
    start: Instant,
    /// Nobody waits any more.
    over: AtomicBool,
}

impl Tickets {
    pub(crate) fn new(in_all: u64, duration: Duration) -> Self {
        let interval = duration.div_f64(in_all.max(1) as f64);
        let (taken, start, over) = (AtomicU64::new(0), Instant::now(), AtomicBool::new(false));
        Self { in_all, taken, interval, start, over }
    }

    /// Waits for the next one. `None` if there are no more.
    pub(crate) async fn take(&self) -> Option<u64> {
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        if number >= self.in_all || self.is_over() {
            return None;
        }
        tokio::time::sleep_until(self.start + self.interval.mul_f64(number as f64)).await;
        Some(number)
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed).min(self.in_all)
    }

    pub(crate) fn in_all(&self) -> u64 {
        self.in_all
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}
