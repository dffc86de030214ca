//! The clock of the engine. Decisions about the life of sessions and calls take the time from it,
//! so that tests can control the time.

use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_session::Time;

/// Returns the current time.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Time;
}

/// The system clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        #[allow(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Time(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock for tests: it changes only when a test calls [`ManualClock::advance`].
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn new(start: Time) -> Self {
        Self(AtomicU64::new(start.0))
    }

    pub fn advance(&self, by: std::time::Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time(self.0.load(Ordering::SeqCst))
    }
}
