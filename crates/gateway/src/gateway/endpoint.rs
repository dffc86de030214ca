//! One endpoint that runs: its engine, the server behind it, and how it looks from outside.

use std::sync::Arc;

use steadfast::Server;
use steadfast_engine::{Engine, SystemClock, SystemEntropy};
use steadfast_http::{Config, Endpoint};
use steadfast_store::{Store, StoreError};
use steadfast_upstream::{self as upstream, Upstream};

use super::hub::Hub;
use super::namespace::Namespace;
use super::swap::Swap;
use crate::config::{Behind, EndpointPlan};
use crate::demo::Demo;

pub(crate) struct Running {
    plan: EndpointPlan,
    namespace: Namespace,
    engine: Arc<Engine>,
    /// The demo has none: there is nothing about it that could change.
    backend: Option<Arc<Swap>>,
}

#[derive(Debug)]
pub(crate) enum EndpointError {
    /// The operator: the configuration does not describe a server.
    Upstream(upstream::StartError),
    Store(StoreError),
}

impl Running {
    pub(crate) async fn start(plan: &EndpointPlan, hub: &Hub) -> Result<Self, EndpointError> {
        let namespace = Namespace::of(&plan.path);
        let store = hub.view(namespace.clone());
        let plan = plan.clone();
        let config = match &plan.behind {
            Behind::Demo => {
                let engine = demo(&plan, store).await?;
                return Ok(Self { plan, namespace, engine, backend: None });
            }
            Behind::Upstream(config) => config.as_ref().clone(),
        };
        let upstream = Upstream::start(config).await.map_err(EndpointError::Upstream)?;
        let backend = Arc::new(Swap::new(Arc::new(upstream)));
        let behind: Arc<Swap> = Arc::clone(&backend);
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let engine = Engine::start(store, behind, clock, entropy, plan.options(), Vec::new()).await?;
        Ok(Self { plan, namespace, engine, backend: Some(backend) })
    }

    pub(crate) fn service(&self) -> Endpoint {
        let config = Config { principal: self.namespace.principals(self.plan.auth()), ..self.plan.http() };
        Endpoint::new(Arc::clone(&self.engine), config)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

async fn demo(plan: &EndpointPlan, store: Arc<dyn Store>) -> Result<Arc<Engine>, StoreError> {
    let options = plan.options();
    let server = Server::builder(Demo::default)
        .custom_store(store)
        .duplicates(options.duplicates)
        .ask_order(options.ask_order)
        .call_deadline(options.call_deadline)
        .wind_down(options.wind_down)
        .ask_deadline(options.ask_deadline)
        .waiting_asks(options.waiting_asks)
        .notifications(options.notifications)
        .notifications_in_all(options.notifications_in_all)
        .notification_deadline(options.notification_deadline)
        .tail_bytes(options.tail_bytes)
        .sweep_interval(options.sweep_interval)
        .forget_after(options.forget_after)
        .finish_patience(options.finish_patience)
        .exchanges(options.exchanges)
        .exchange_bytes(options.exchange_bytes);
    match server.start().await {
        Ok(server) => Ok(Arc::clone(server.service().engine())),
        Err(steadfast::StartError::Store(error)) => Err(error),
    }
}
