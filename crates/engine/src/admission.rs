//! Who is inside. Counted before anybody asks whether the node drains, so that draining misses nobody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::refusal::Refusal;

/// What keeps a node from going down.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    is_draining: AtomicBool,
    /// Requests that are becoming calls or connections.
    pub(crate) entering: Arc<Count>,
    /// Calls that have begun.
    pub(crate) calls: Arc<Count>,
}

impl Admission {
    /// From now on nobody enters. Those who are entering are counted.
    pub(crate) fn close(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }

    pub(crate) fn enter(&self) -> Result<Counted, Refusal> {
        let counted = Count::one_more(&self.entering);
        if self.is_closed() { Err(Refusal::Draining) } else { Ok(counted) }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Count {
    now: AtomicUsize,
    /// Signalled whenever there is one less.
    less: Notify,
}

impl Count {
    pub(crate) fn one_more(this: &Arc<Self>) -> Counted {
        this.now.fetch_add(1, Ordering::SeqCst);
        Counted(Arc::clone(this))
    }

    pub(crate) async fn is_zero(&self) {
        loop {
            let less = self.less.notified();
            if self.now.load(Ordering::SeqCst) == 0 {
                return;
            }
            less.await;
        }
    }
}

/// Counts for as long as it lives.
#[derive(Debug)]
pub(crate) struct Counted(Arc<Count>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
        self.0.less.notify_waiters();
    }
}
