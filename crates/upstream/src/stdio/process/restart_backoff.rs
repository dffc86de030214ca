//! The delay before a program that keeps exiting is started again.

use std::time::Duration;

use steadfast_client::Backoff;
use tokio::time::Instant;

/// A process that lived this long counts as stable.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// How the last starts of a program went.
#[derive(Debug, Default)]
pub(crate) struct RestartBackoff {
    /// The number of consecutive starts after which the process ended soon.
    failures: u32,
    last: Option<Instant>,
    /// Why the last session was not opened.
    why: Option<String>,
}

impl RestartBackoff {
    /// Records that a process ended by itself after `lived`, or did not start.
    pub(crate) fn ended(&mut self, lived: Duration, now: Instant) {
        self.failures = if lived >= STABLE_AFTER { 1 } else { self.failures.saturating_add(1) };
        self.last = Some(now);
    }

    /// Records that a process did not start, or ended before a session was opened, after any time.
    pub(crate) fn failed(&mut self, why: &str, now: Instant) {
        self.ended(Duration::ZERO, now);
        self.why = Some(why.to_owned());
    }

    pub(crate) fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the delay before the next start. There is none after the first crash.
    pub(crate) fn delay(&self, backoff: &Backoff, now: Instant) -> Duration {
        let Some(last) = self.last.filter(|_| self.failures > 1) else { return Duration::ZERO };
        backoff.wait(self.failures - 1).saturating_sub(now.saturating_duration_since(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_delay_doubles_with_each_crash() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(5));
        let backoff = Backoff { first, longest, ..Backoff::default() };
        let now = Instant::now();
        let mut restart_backoff = RestartBackoff::default();
        assert_eq!(restart_backoff.delay(&backoff, now), Duration::ZERO);
        for seconds in [0, 1, 2, 4, 5, 5] {
            restart_backoff.ended(Duration::ZERO, now);
            assert_eq!(restart_backoff.delay(&backoff, now).as_secs(), seconds);
        }
        assert_eq!(restart_backoff.delay(&backoff, now + Duration::from_secs(2)).as_secs(), 3);
        restart_backoff.ended(STABLE_AFTER, now);
        assert_eq!(restart_backoff.delay(&backoff, now), Duration::ZERO);
    }
}
