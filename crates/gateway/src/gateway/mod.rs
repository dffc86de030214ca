//! The gateway: one store, and endpoints that come and go.

mod change;
mod door;
mod endpoint;
mod foreign;
mod hub;
mod mounts;
mod namespace;
mod overview;
mod swap;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast_store::{Store, StoreError};
use tokio::task::JoinSet;

use crate::admin::{HttpMeter, Metrics};
use crate::config::{EndpointPlan, Plan};

pub(crate) use change::{Changes, Found, OtherIdentity};
pub(crate) use endpoint::EndpointError;
pub(crate) use mounts::Mounts;
pub(crate) use overview::Overview;

use endpoint::Running;
use hub::Hub;

pub(crate) struct Gateway {
    hub: Hub,
    overview: Arc<Overview>,
    running: BTreeMap<Arc<str>, Running>,
    /// Endpoints that are gone and finish their calls.
    leaving: JoinSet<()>,
    metrics: Option<Arc<Metrics>>,
}

/// Why an endpoint could not be started.
#[derive(Debug)]
pub(crate) struct StartError {
    pub(crate) path: Arc<str>,
    pub(crate) error: EndpointError,
}

impl Gateway {
    /// Numbers are kept only if somebody will look at them.
    pub(crate) async fn start(
        store: Arc<dyn Store>,
        plan: &Plan,
        metrics: Option<Arc<Metrics>>,
    ) -> Result<Self, StartError> {
        let nowhere = metrics.clone().map(|metrics| HttpMeter::new(metrics, "")).unwrap_or_default();
        let hub = Hub::new(store, metrics.clone());
        let overview = Arc::new(Overview::new(Arc::clone(hub.store()), Mounts::new(nowhere)));
        let mut gateway = Self { hub, overview, running: BTreeMap::new(), leaving: JoinSet::new(), metrics };
        for plan in &plan.endpoints {
            let failed = |error| StartError { path: Arc::clone(&plan.path), error };
            let running = gateway.start_one(plan).await.map_err(failed)?;
            gateway.running.insert(Arc::clone(&plan.path), running);
        }
        gateway.hub.is_complete();
        gateway.mount();
        Ok(gateway)
    }

    /// What answers requests. It stays the same while endpoints change.
    pub(crate) fn mounts(&self) -> Mounts {
        self.overview.mounts().clone()
    }

    pub(crate) fn overview(&self) -> &Arc<Overview> {
        &self.overview
    }

    async fn start_one(&self, plan: &EndpointPlan) -> Result<Running, EndpointError> {
        Running::start(plan, &self.hub, self.metrics.as_ref()).await
    }

    fn mount(&self) {
        let mounted = self.running.iter().map(|(path, running)| (Arc::clone(path), running.mounted()));
        self.overview.mounts().replace(mounted.collect());
    }

    /// Says to whoever asks that it is about to go, and has each connection end with its next answer.
    pub(crate) fn take_leave(&self) {
        self.overview.mounts().take_leave();
    }

    /// Takes no more requests, and ends what runs: in good order for as long as `patience`.
    pub(crate) async fn drain(mut self, patience: Duration) {
        for running in self.running.values() {
            self.leaving.spawn(running.drain(patience));
        }
        self.leaving.join_all().await;
    }
}

impl From<StoreError> for EndpointError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
