//! The endpoints of the gateway: they share one store, and a reload starts, changes and removes
//! them.

mod access;
mod foreign_sessions;
mod namespace;
mod reload;
mod reloadable_backend;
mod router;
mod running_endpoint;
mod shared_store;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast_store::Store;
use tokio::task::JoinSet;

use crate::admin::{HttpMetrics, Metrics};
use crate::config::{EndpointPlan, Plan};

pub(crate) use reload::{Changes, IdentityChange, SessionsFound};
pub(crate) use router::Router;
pub(crate) use running_endpoint::EndpointError;
pub(crate) use status::Status;

use running_endpoint::RunningEndpoint;
use shared_store::SharedStore;

pub(crate) struct Endpoints {
    store: SharedStore,
    status: Arc<Status>,
    running: BTreeMap<Arc<str>, RunningEndpoint>,
    /// Endpoints that were removed and finish their calls.
    draining: JoinSet<()>,
    metrics: Option<Arc<Metrics>>,
}

/// Why an endpoint could not be started.
#[derive(Debug)]
pub(crate) struct StartError {
    pub(crate) path: Arc<str>,
    pub(crate) error: EndpointError,
}

impl Endpoints {
    /// Starts every endpoint of the plan. Nothing is counted without `metrics`.
    pub(crate) async fn start(
        store: Arc<dyn Store>,
        plan: &Plan,
        metrics: Option<Arc<Metrics>>,
    ) -> Result<Self, StartError> {
        let no_endpoint = metrics.clone().map(|metrics| HttpMetrics::new(metrics, "")).unwrap_or_default();
        let store = SharedStore::new(store, metrics.clone());
        let status = Arc::new(Status::new(Arc::clone(store.store()), Router::new(no_endpoint)));
        let (running, draining) = (BTreeMap::new(), JoinSet::new());
        let mut endpoints = Self { store, status, running, draining, metrics };
        for plan in &plan.endpoints {
            let failed = |error| StartError { path: Arc::clone(&plan.path), error };
            let running = endpoints.start_one(plan).await.map_err(failed)?;
            endpoints.running.insert(Arc::clone(&plan.path), running);
        }
        endpoints.store.all_endpoints_started();
        endpoints.update_routes();
        Ok(endpoints)
    }

    /// The service that answers requests. It stays valid while endpoints change.
    pub(crate) fn router(&self) -> Router {
        self.status.router().clone()
    }

    pub(crate) fn status(&self) -> &Arc<Status> {
        &self.status
    }

    async fn start_one(&self, plan: &EndpointPlan) -> Result<RunningEndpoint, EndpointError> {
        RunningEndpoint::start(plan, &self.store, self.metrics.as_ref()).await
    }

    fn update_routes(&self) {
        let routes = self.running.iter().map(|(path, running)| (Arc::clone(path), Arc::new(running.route())));
        self.status.router().replace(routes.collect());
    }

    /// Makes `/readyz` answer 503, and each connection close after its next response.
    pub(crate) fn announce_shutdown(&self) {
        self.status.router().announce_shutdown();
    }

    /// Refuses new requests, and waits up to `limit` for running calls.
    pub(crate) async fn drain(mut self, limit: Duration) {
        for running in self.running.values() {
            self.draining.spawn(running.drain(limit));
        }
        // A panic of one endpoint must not stop the drain of the others.
        while self.draining.join_next().await.is_some() {}
    }
}
