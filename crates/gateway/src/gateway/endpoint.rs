//! One endpoint that runs: its engine, the server behind it, and how it looks from outside.

use std::sync::Arc;
use std::time::Duration;

use steadfast::Server;
use steadfast_engine::{Engine, SystemClock, SystemEntropy};
use steadfast_http::{Config, Endpoint};
use steadfast_store::{Store, StoreError};
use steadfast_upstream::{self as upstream, Upstream};

use super::door::Door;
use super::hub::Hub;
use super::mounts::Mounted;
use super::namespace::Namespace;
use super::swap::Swap;
use crate::admin::{At, HttpMeter, Metrics};
use crate::config::{Behind, EndpointPlan, Written};
use crate::demo::Demo;

pub(crate) struct Running {
    plan: EndpointPlan,
    /// What its engine was started with.
    started: Written,
    namespace: Namespace,
    door: Door,
    engine: Arc<Engine>,
    /// The demo has none: there is nothing about it that could change.
    backend: Option<Arc<Swap>>,
    meter: HttpMeter,
}

#[derive(Debug)]
pub(crate) enum EndpointError {
    /// The operator: the configuration does not describe a server.
    Upstream(upstream::StartError),
    /// The operator: tokens cannot be verified.
    Auth(steadfast_auth::StartError),
    Store(StoreError),
}

impl Running {
    pub(crate) async fn start(
        plan: &EndpointPlan,
        hub: &Hub,
        metrics: Option<&Arc<Metrics>>,
    ) -> Result<Self, EndpointError> {
        let namespace = Namespace::new(plan.identity.name(), &plan.path);
        let meter =
            metrics.map(|metrics| HttpMeter::new(Arc::clone(metrics), &plan.path)).unwrap_or_default();
        let store = hub.view(namespace.clone());
        let plan = plan.clone();
        let door = Door::open(&plan.auth, &namespace, None).await.map_err(EndpointError::Auth)?;
        let config = match &plan.behind {
            Behind::Demo => {
                let engine = demo(&plan, store).await?;
                let started = plan.written.clone();
                return Ok(Self { plan, started, namespace, door, engine, backend: None, meter });
            }
            Behind::Upstream(config) => config.as_ref().clone(),
        };
        let upstream = Upstream::start(config).await.map_err(EndpointError::Upstream)?;
        let at = At { endpoint: plan.path.to_string() };
        let took = metrics.map(|metrics| metrics.call_seconds.get_or_create(&at).clone());
        let backend = Arc::new(Swap::new(upstream, took));
        let behind: Arc<Swap> = Arc::clone(&backend);
        let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
        let engine = Engine::start(store, behind, clock, entropy, plan.options(), Vec::new()).await?;
        let started = plan.written.clone();
        Ok(Self { plan, started, namespace, door, engine, backend: Some(backend), meter })
    }

    pub(crate) fn mounted(&self) -> Mounted {
        let Door { principal, metadata, .. } = self.door.clone();
        let service = Endpoint::new(Arc::clone(&self.engine), Config { principal, ..self.plan.http() });
        Mounted { service, metadata, meter: self.meter.clone(), upstream: self.backend.clone() }
    }

    /// Takes what is new about the same endpoint. Calls that run go on where they are.
    pub(crate) fn change(&mut self, plan: EndpointPlan, door: Option<Door>, server: Option<Upstream>) {
        self.door = door.unwrap_or_else(|| self.door.clone());
        if let (Some(backend), Some(server)) = (&self.backend, server) {
            backend.replace(server);
        }
        self.plan = plan;
    }

    pub(crate) fn path(&self) -> &Arc<str> {
        &self.plan.path
    }

    /// The identity that its sessions have. After a reload it may differ from the one in the
    /// configuration.
    pub(crate) fn identity(&self) -> &str {
        self.namespace.identity()
    }

    /// Returns true if at least one replica, or the program, stays the same.
    pub(crate) fn shares_a_server_with(&self, plan: &EndpointPlan) -> bool {
        self.plan.identity.shares_a_server_with(&plan.identity)
    }

    /// Whether it can be changed into that, at all.
    pub(crate) fn is_of_kind(&self, behind: &Behind) -> bool {
        matches!(
            (&self.plan.behind, behind),
            (Behind::Demo, Behind::Demo) | (Behind::Upstream(_), Behind::Upstream(_))
        )
    }

    pub(crate) fn is_as(&self, plan: &EndpointPlan) -> bool {
        self.plan.written == plan.written && self.has_server_of(plan) && self.has_door_of(plan)
    }

    /// Whether it asks for the same. Keys that were fetched are then kept.
    pub(crate) fn has_door_of(&self, plan: &EndpointPlan) -> bool {
        let (old, new) = (&self.plan.written, &plan.written);
        old.auth == new.auth && old.jwt == new.jwt && self.plan.auth_files == plan.auth_files
    }

    /// As the endpoint would ask for what is new.
    pub(crate) async fn new_door(&self, plan: &EndpointPlan) -> Result<Door, EndpointError> {
        let has_keys =
            self.plan.written.jwt.has_keys_of(&plan.written.jwt) && self.plan.auth_files == plan.auth_files;
        let before = self.door.jwt.as_ref().filter(|_| has_keys);
        Door::open(&plan.auth, &self.namespace, before).await.map_err(EndpointError::Auth)
    }

    /// The server as it is to be. What runs of it goes on if it is the same.
    pub(crate) async fn new_server(&self, config: &upstream::Config) -> Result<Upstream, EndpointError> {
        let (config, before) = (config.clone(), self.backend.as_ref().map(|backend| backend.current()));
        let started = match before {
            Some(before) => Upstream::start_after(config, &before).await,
            None => Upstream::start(config).await,
        };
        started.map_err(EndpointError::Upstream)
    }

    /// Whether the server behind it, and how it is treated, are the same.
    pub(crate) fn has_server_of(&self, plan: &EndpointPlan) -> bool {
        let (old, new) = (&self.plan.written, &plan.written);
        old.server_part() == new.server_part() && self.plan.server_files == plan.server_files
    }

    /// What the engine was started with stays until the next start.
    pub(crate) fn fixed_keys(&self, plan: &EndpointPlan) -> Vec<String> {
        let (old, new) = (&self.started, &plan.written);
        let keys = [
            ("duplicates", old.duplicates != new.duplicates),
            ("ask_order", old.ask_order != new.ask_order),
            ("engine", old.engine != new.engine),
        ];
        let differing = keys.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(key, _)| format!("{key} of the endpoint {}", plan.path)).collect()
    }

    /// Ends the calls, and then the programs that worked on them.
    pub(crate) fn drain(&self, patience: Duration) -> impl Future<Output = ()> + Send + use<> {
        let (engine, backend) = (Arc::clone(&self.engine), self.backend.clone());
        async move {
            engine.drain(patience).await;
            if let Some(backend) = backend {
                backend.current().close().await;
            }
        }
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
