//! Limits how many lines of a process are logged.

use std::time::Duration;

use tokio::time::Instant;

/// How many lines may be logged at once, and the interval after which one more may be logged.
const BURST: u32 = 100;
const REFILL_INTERVAL: Duration = Duration::from_millis(20);

/// A token bucket of lines.
#[derive(Debug)]
pub(crate) struct LogRateLimit {
    left: u32,
    filled: Instant,
    dropped: u64,
}

/// Whether a line may be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Log it. Contains the number of lines that were skipped before it.
    Log(u64),
    Skip,
}

impl LogRateLimit {
    pub(crate) fn new(now: Instant) -> Self {
        Self { left: BURST, filled: now, dropped: 0 }
    }

    pub(crate) fn take(&mut self, now: Instant) -> Decision {
        let since = now.saturating_duration_since(self.filled);
        let more = u32::try_from(since.as_nanos() / REFILL_INTERVAL.as_nanos()).unwrap_or(BURST);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.filled = now;
        }
        if self.left == 0 {
            self.dropped += 1;
            return Decision::Skip;
        }
        self.left -= 1;
        Decision::Log(std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn skipped_lines_are_counted() {
        let start = Instant::now();
        let mut rate_limit = LogRateLimit::new(start);
        for _ in 0..BURST {
            assert_eq!(rate_limit.take(start), Decision::Log(0));
        }
        assert_eq!(rate_limit.take(start), Decision::Skip);
        assert_eq!(rate_limit.take(start + REFILL_INTERVAL / 2), Decision::Skip);
        assert_eq!(rate_limit.take(start + REFILL_INTERVAL), Decision::Log(2));
        assert_eq!(rate_limit.take(start + REFILL_INTERVAL), Decision::Skip);
        assert_eq!(rate_limit.take(start + REFILL_INTERVAL * 1_000_000), Decision::Log(1));
    }
}
