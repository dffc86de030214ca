//! The schedule of a run: how many calls the clients make together, at an even rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct CallSchedule {
    total: u64,
    started: AtomicU64,
    interval: Duration,
    start: Instant,
    is_stopped: AtomicBool,
}

impl CallSchedule {
    /// Spreads `total` calls evenly over `duration`.
    pub(crate) fn new(total: u64, duration: Duration) -> Self {
        let interval = duration.div_f64(total.max(1) as f64);
        let (started, start, is_stopped) = (AtomicU64::new(0), Instant::now(), AtomicBool::new(false));
        Self { total, started, interval, start, is_stopped }
    }

    /// Waits until the next call may start. Returns its number, or `None` if all calls were made.
    pub(crate) async fn next_call(&self) -> Option<u64> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        if number >= self.total || self.is_stopped() {
            return None;
        }
        tokio::time::sleep_until(self.start + self.interval.mul_f64(number as f64)).await;
        Some(number)
    }

    /// The number of calls that clients have taken so far.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed).min(self.total)
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Tells clients to stop retrying: the time for the last calls is over.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }
}
