//! How long a stream has said nothing.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

/// A stream that has been silent for too long gets a comment, so that no proxy takes it for dead.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    /// Set only while somebody waits: most streams end before.
    over: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, over: None }
    }

    /// Something was said.
    pub(crate) fn end(&mut self) {
        self.over = None;
    }

    /// Ready when nothing was said for too long; then it begins anew.
    pub(crate) fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        let over = self.over.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        std::task::ready!(over.as_mut().poll(context));
        self.over = None;
        Poll::Ready(())
    }
}
