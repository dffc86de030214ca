//! The gateway: one store, and endpoints that come and go.

mod endpoint;
mod hub;
mod mounts;
mod namespace;
mod swap;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast_store::{Store, StoreError};

use crate::config::{EndpointPlan, Plan};

pub(crate) use endpoint::{EndpointError, Running};
pub(crate) use mounts::Mounts;

use hub::Hub;

pub(crate) struct Gateway {
    hub: Hub,
    mounts: Mounts,
    running: BTreeMap<Arc<str>, Running>,
}

/// Why an endpoint could not be started.
#[derive(Debug)]
pub(crate) struct StartError {
    pub(crate) path: Arc<str>,
    pub(crate) error: EndpointError,
}

impl Gateway {
    pub(crate) async fn start(store: Arc<dyn Store>, plan: &Plan) -> Result<Self, StartError> {
        let mut gateway = Self { hub: Hub::new(store), mounts: Mounts::default(), running: BTreeMap::new() };
        for endpoint in &plan.endpoints {
            gateway.add(endpoint).await?;
        }
        gateway.mount();
        Ok(gateway)
    }

    /// What answers requests. It stays the same while endpoints change.
    pub(crate) fn mounts(&self) -> Mounts {
        self.mounts.clone()
    }

    async fn add(&mut self, plan: &EndpointPlan) -> Result<(), StartError> {
        let failed = |error| StartError { path: Arc::clone(&plan.path), error };
        let running = Running::start(plan, &self.hub).await.map_err(failed)?;
        self.running.insert(Arc::clone(&plan.path), running);
        Ok(())
    }

    fn mount(&self) {
        self.mounts.replace(self.running.iter().map(|(path, running)| (Arc::clone(path), running.service())));
    }

    /// Takes no more requests, and ends what runs: in good order for as long as `patience`.
    pub(crate) async fn drain(&self, patience: Duration) {
        let mut draining = tokio::task::JoinSet::new();
        for running in self.running.values() {
            let engine = Arc::clone(running.engine());
            draining.spawn(async move { engine.drain(patience).await });
        }
        draining.join_all().await;
    }
}

impl From<StoreError> for EndpointError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
