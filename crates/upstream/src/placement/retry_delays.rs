//! The delays between attempts to reach a server, for sessions and for stateless requests.

use std::time::Duration;

use steadfast_wire::DoublingDelay;
use tokio::time::Instant;

pub(crate) const RETRY_DELAY: DoublingDelay =
    DoublingDelay { first: Duration::from_millis(50), longest: Duration::from_secs(1) };

/// Delays that double with each attempt, until a deadline.
#[derive(Debug)]
pub(crate) struct RetryDelays {
    deadline: Instant,
    failures: u32,
}

#[derive(Debug)]
pub(crate) struct DeadlinePassed;

impl RetryDelays {
    pub(crate) fn until(deadline: Instant) -> Self {
        Self { deadline, failures: 0 }
    }

    /// Waits before the next attempt. Fails at once if the deadline has passed.
    pub(crate) async fn wait(&mut self) -> Result<(), DeadlinePassed> {
        let now = Instant::now();
        if now >= self.deadline {
            return Err(DeadlinePassed);
        }
        self.failures = self.failures.saturating_add(1);
        tokio::time::sleep_until(self.deadline.min(now + RETRY_DELAY.after(self.failures))).await;
        Ok(())
    }
}
