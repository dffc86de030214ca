//! How soon a program that keeps ending may be started again. Pure.

use std::time::Duration;

use steadfast_client::Backoff;
use tokio::time::Instant;

/// A program that lived so long was sound.
const SOUND: Duration = Duration::from_secs(10);

/// How its starts went.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// Starts in a row after which it ended soon.
    failures: u32,
    last: Option<Instant>,
    /// Why it did not open a session the last time.
    why: Option<String>,
}

impl Restarts {
    /// It ended by itself, after so long; or it did not start.
    pub(super) fn ended(&mut self, lived: Duration, now: Instant) {
        self.failures = if lived >= SOUND { 1 } else { self.failures.saturating_add(1) };
        self.last = Some(now);
    }

    /// It did not start, or ended before it had opened a session, however long that took.
    pub(super) fn failed(&mut self, why: &str, now: Instant) {
        self.ended(Duration::ZERO, now);
        self.why = Some(why.to_owned());
    }

    pub(super) fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// How long to wait before the next start. The first is at once: one crash shall cost no time.
    pub(super) fn wait(&self, backoff: &Backoff, now: Instant) -> Duration {
        let Some(last) = self.last.filter(|_| self.failures > 1) else { return Duration::ZERO };
        let doubled = 2u32.saturating_pow(self.failures - 2);
        let wait = backoff.first.saturating_mul(doubled).min(backoff.longest);
        wait.saturating_sub(now.saturating_duration_since(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn crashes_in_a_row_wait_longer_and_longer() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(5));
        let backoff = Backoff { first, longest, ..Backoff::default() };
        let now = Instant::now();
        let mut restarts = Restarts::default();
        assert_eq!(restarts.wait(&backoff, now), Duration::ZERO);
        for seconds in [0, 1, 2, 4, 5, 5] {
            restarts.ended(Duration::ZERO, now);
            assert_eq!(restarts.wait(&backoff, now).as_secs(), seconds);
        }
        assert_eq!(restarts.wait(&backoff, now + Duration::from_secs(2)).as_secs(), 3);
        restarts.ended(SOUND, now);
        assert_eq!(restarts.wait(&backoff, now), Duration::ZERO);
    }
}
