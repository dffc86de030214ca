//! Counts the requests in flight and refuses new ones while the node drains. A request is counted
//! before it checks for the drain, so that the drain misses none.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use steadfast_session::Time;
use tokio::sync::Notify;

use crate::refusal::Refusal;

/// Admission of requests, and counts of those that a drain waits for.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    is_draining: AtomicBool,
    /// When the drain stops to wait for calls.
    drain_deadline: OnceLock<Time>,
    /// Requests that are becoming calls or connections.
    pub(crate) starting: Arc<InFlightCount>,
    /// Calls that have begun, and other work that a drain waits for.
    pub(crate) calls: Arc<InFlightCount>,
}

impl Admission {
    /// Refuses all later requests. The drain waits for calls until `deadline`.
    pub(crate) fn close(&self, deadline: Time) {
        self.drain_deadline.get_or_init(|| deadline);
        self.is_draining.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    /// Returns how much longer the drain may wait for calls. Zero if none is in flight.
    pub(crate) fn drain_left(&self, now: Time) -> Option<Duration> {
        let deadline = self.drain_deadline.get()?;
        let left = Duration::from_millis(deadline.0.saturating_sub(now.0));
        Some(if self.calls.is_zero() { Duration::ZERO } else { left })
    }

    /// Counts a request as starting. Fails with [`Refusal::Draining`] while the node drains.
    pub(crate) fn admit(&self) -> Result<InFlightGuard, Refusal> {
        let in_flight = InFlightCount::increment(&self.starting);
        if self.is_closed() { Err(Refusal::Draining) } else { Ok(in_flight) }
    }
}

/// A number of requests in flight that a drain can wait for.
#[derive(Debug, Default)]
pub(crate) struct InFlightCount {
    count: AtomicUsize,
    decremented: Notify,
}

impl InFlightCount {
    pub(crate) fn increment(this: &Arc<Self>) -> InFlightGuard {
        this.count.fetch_add(1, Ordering::SeqCst);
        InFlightGuard(Arc::clone(this))
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    pub(crate) async fn wait_for_zero(&self) {
        loop {
            let decremented = self.decremented.notified();
            if self.is_zero() {
                return;
            }
            decremented.await;
        }
    }
}

/// Counts one while it exists.
#[derive(Debug)]
pub(crate) struct InFlightGuard(Arc<InFlightCount>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
        self.0.decremented.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_waits_for_calls_and_not_longer_than_its_deadline() {
        let admission = Admission::default();
        assert_eq!(admission.drain_left(Time(0)), None, "it has not begun");
        let call = InFlightCount::increment(&admission.calls);
        admission.close(Time(10_000));
        for (now, expect) in [(0, 10_000), (9_000, 1_000), (11_000, 0)] {
            assert_eq!(admission.drain_left(Time(now)), Some(Duration::from_millis(expect)), "{now}");
        }
        drop(call);
        assert_eq!(admission.drain_left(Time(0)), Some(Duration::ZERO), "nothing is in flight");
    }
}
