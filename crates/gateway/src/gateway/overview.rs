//! What can be seen of the gateway while it works.

use std::sync::Arc;

use steadfast_store::{Reply, Store, Usage};
use steadfast_upstream::Upstream;

use super::mounts::Mounts;

pub(crate) struct Overview {
    store: Arc<dyn Store>,
    mounts: Mounts,
}

/// One endpoint at this moment.
pub(crate) struct Seen {
    pub(crate) path: Arc<str>,
    pub(crate) exchanges: usize,
    pub(crate) subscriptions: usize,
    pub(crate) upstream: Option<Arc<Upstream>>,
}

impl Overview {
    pub(super) fn new(store: Arc<dyn Store>, mounts: Mounts) -> Self {
        Self { store, mounts }
    }

    pub(super) fn mounts(&self) -> &Mounts {
        &self.mounts
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.mounts.is_leaving()
    }

    /// Whether the store does.
    pub(crate) fn answers(&self) -> Reply<()> {
        self.store.answers()
    }

    pub(crate) fn usage(&self) -> Reply<Usage> {
        self.store.usage()
    }

    pub(crate) fn endpoints(&self) -> Vec<Seen> {
        let seen = self.mounts.all().into_iter().map(|(path, mounted)| {
            let engine = mounted.service.engine();
            let (exchanges, subscriptions) = (engine.exchanges(), engine.subscriptions());
            let upstream = mounted.upstream.map(|swap| swap.current());
            Seen { path, exchanges, subscriptions, upstream }
        });
        seen.collect()
    }
}
