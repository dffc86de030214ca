//! How often something may be logged.

use std::time::Duration;

use tokio::time::Instant;

/// Lines at once, and the time in which one more may come.
const BURST: u32 = 100;
const PACE: Duration = Duration::from_millis(20);

/// A bucket of lines.
#[derive(Debug)]
pub(super) struct Quota {
    left: u32,
    filled: Instant,
    dropped: u64,
}

/// Whether a line may be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum May {
    /// After so many that were not.
    Log(u64),
    NotLog,
}

impl Quota {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: BURST, filled: now, dropped: 0 }
    }

    pub(super) fn take(&mut self, now: Instant) -> May {
        let since = now.saturating_duration_since(self.filled);
        let more = u32::try_from(since.as_nanos() / PACE.as_nanos()).unwrap_or(BURST);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.filled = now;
        }
        if self.left == 0 {
            self.dropped += 1;
            return May::NotLog;
        }
        self.left -= 1;
        May::Log(std::mem::take(&mut self.dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_flood_is_thinned_and_counted() {
        let start = Instant::now();
        let mut quota = Quota::new(start);
        for _ in 0..BURST {
            assert_eq!(quota.take(start), May::Log(0));
        }
        assert_eq!(quota.take(start), May::NotLog);
        assert_eq!(quota.take(start + PACE / 2), May::NotLog);
        assert_eq!(quota.take(start + PACE), May::Log(2));
        assert_eq!(quota.take(start + PACE), May::NotLog);
        assert_eq!(quota.take(start + PACE * 1_000_000), May::Log(1));
    }
}
