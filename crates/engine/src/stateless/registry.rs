//! The stateless requests in flight on this node, and the observer that meters them.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::stateless::{Answer, Exchange, Subscriptions};

/// Observes each stateless request except subscriptions. For each `begun` there is exactly one
/// `ended`. The methods run on the path of the request and must not block.
pub trait ExchangeObserver: std::fmt::Debug + Send + Sync + 'static {
    fn begun(&self);
    fn ended(&self, answer: &Answer);
}

/// The stateless requests in flight on this node.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    pub(super) observer: OnceLock<Arc<dyn ExchangeObserver>>,
    /// All requests in flight, including those that are answered at the first poll.
    pub(super) in_flight: AtomicUsize,
    /// The requests that were not answered at the first poll.
    open: Mutex<OpenExchanges>,
    pub(super) subscriptions: Arc<Subscriptions>,
}

#[derive(Debug, Default)]
pub(super) struct OpenExchanges {
    pub(super) next: u64,
    pub(super) exchanges: BTreeMap<u64, Arc<Exchange>>,
    /// The node has shut down and failed all exchanges that were open.
    pub(super) is_shut_down: bool,
}

impl Exchanges {
    pub(super) fn insert(&self, exchange: &Arc<Exchange>) -> u64 {
        let mut open = self.open();
        let no = open.next;
        open.next += 1;
        open.exchanges.insert(no, Arc::clone(exchange));
        no
    }

    pub(super) fn remove(&self, no: u64) {
        let removed = self.open().exchanges.remove(&no);
        drop(removed);
    }

    pub(super) fn matching(&self, choose: impl Fn(&Exchange) -> bool) -> Vec<Arc<Exchange>> {
        self.open().exchanges.values().filter(|exchange| choose(exchange)).cloned().collect()
    }

    pub(super) fn open(&self) -> MutexGuard<'_, OpenExchanges> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
