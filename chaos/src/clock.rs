//! The clock that all processes of a run share.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the start of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    since: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { since: wall() }
    }

    /// The clock of a run that another process has started. Takes the value of [`Clock::origin`].
    pub(crate) fn since(since: u64) -> Self {
        Self { since }
    }

    /// The start of the run, in milliseconds since the Unix epoch.
    pub(crate) fn origin(self) -> u64 {
        self.since
    }

    /// Milliseconds since the start of the run.
    pub(crate) fn now(self) -> u64 {
        wall().saturating_sub(self.since)
    }
}

#[expect(clippy::disallowed_methods, reason = "processes of one run share no other clock")]
fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
