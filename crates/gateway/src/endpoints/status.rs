//! The state of the endpoints and the store, for health checks and metrics.

use std::sync::Arc;

use steadfast_store::{Reply, Store, Usage};
use steadfast_upstream::Upstream;

use super::router::Router;

pub(crate) struct Status {
    store: Arc<dyn Store>,
    router: Router,
}

pub(crate) struct EndpointStatus {
    pub(crate) path: Arc<str>,
    pub(crate) exchanges: usize,
    pub(crate) subscriptions: usize,
    pub(crate) upstream: Option<Arc<Upstream>>,
}

impl Status {
    pub(super) fn new(store: Arc<dyn Store>, router: Router) -> Self {
        Self { store, router }
    }

    pub(super) fn router(&self) -> &Router {
        &self.router
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.router.is_shutting_down()
    }

    /// Succeeds if the store answers.
    pub(crate) fn check_store(&self) -> Reply<()> {
        self.store.ping()
    }

    pub(crate) fn store_usage(&self) -> Reply<Usage> {
        self.store.usage()
    }

    pub(crate) fn endpoints(&self) -> Vec<EndpointStatus> {
        let routes = self.router.routes();
        let statuses = routes.endpoints().map(|(path, route)| {
            let engine = route.service.engine();
            let (exchanges, subscriptions) = (engine.exchanges(), engine.subscriptions());
            let upstream = route.backend.as_ref().map(|backend| backend.current());
            EndpointStatus { path: Arc::clone(path), exchanges, subscriptions, upstream }
        });
        statuses.collect()
    }
}
