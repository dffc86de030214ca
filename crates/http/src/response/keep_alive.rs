//! The keep-alive timer of a stream.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

/// Measures how long a stream has been silent. A stream that is silent for too long gets a comment,
/// so that proxies do not close it.
#[derive(Debug)]
pub(crate) struct KeepAlive {
    limit: Duration,
    /// Set only while the stream waits: most streams end before they need a timer.
    timer: Option<Pin<Box<Sleep>>>,
}

impl KeepAlive {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, timer: None }
    }

    /// Restarts the measurement, because the stream has sent something.
    pub(crate) fn reset(&mut self) {
        self.timer = None;
    }

    /// Completes when the stream has been silent for too long, and restarts the measurement.
    pub(crate) fn poll_due(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        std::task::ready!(timer.as_mut().poll(context));
        self.timer = None;
        Poll::Ready(())
    }
}
