//! The time that all processes of a run agree on.

use std::time::{SystemTime, UNIX_EPOCH};

/// Counts from the beginning of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    since: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { since: wall() }
    }

    /// The clock of a run that another process has begun.
    pub(crate) fn since(since: u64) -> Self {
        Self { since }
    }

    /// What [`Clock::since`] takes.
    pub(crate) fn origin(self) -> u64 {
        self.since
    }

    /// Milliseconds since the beginning.
    pub(crate) fn now(self) -> u64 {
        wall().saturating_sub(self.since)
    }
}

#[expect(clippy::disallowed_methods, reason = "processes of one run share no other clock")]
fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
