//! One running endpoint: its engine, its backend, and how clients are authenticated.

use std::sync::Arc;
use std::time::Duration;

use steadfast::Server;
use steadfast_engine::{Engine, SystemClock, SystemEntropy};
use steadfast_http::{Config, Endpoint};
use steadfast_store::{Store, StoreError};
use steadfast_upstream::{self as upstream, Upstream};

use super::access::Access;
use super::namespace::Namespace;
use super::reloadable_backend::ReloadableBackend;
use super::router::Route;
use super::shared_store::SharedStore;
use crate::admin::{EndpointLabel, ExchangeMetrics, HttpMetrics, Metrics};
use crate::config::{BackendPlan, EndpointPlan, EndpointTable};
use crate::demo::Demo;

/// An endpoint that serves clients. A reload changes it in place where possible.
pub(crate) struct RunningEndpoint {
    plan: EndpointPlan,
    /// The table that the engine was started with.
    started_with: EndpointTable,
    namespace: Namespace,
    access: Access,
    engine: Arc<Engine>,
    /// `None` for the demo server, which a reload cannot change.
    backend: Option<Arc<ReloadableBackend>>,
    metrics: HttpMetrics,
}

/// Why an endpoint cannot start or change.
#[derive(Debug)]
pub(crate) enum EndpointError {
    /// The configuration does not describe a usable server.
    Upstream(upstream::StartError),
    /// The configuration does not describe how to verify tokens.
    Auth(steadfast_auth::StartError),
    Store(StoreError),
}

impl RunningEndpoint {
    pub(crate) async fn start(
        plan: &EndpointPlan,
        shared: &SharedStore,
        metrics: Option<&Arc<Metrics>>,
    ) -> Result<Self, EndpointError> {
        let namespace = Namespace::new(plan.identity.name(), &plan.path);
        let access = Access::new(&plan.auth, &namespace, None).await.map_err(EndpointError::Auth)?;
        let store = shared.for_endpoint(namespace.clone());
        let (engine, backend) = match &plan.backend {
            BackendPlan::Demo => (start_demo(plan, store).await.map_err(EndpointError::Store)?, None),
            BackendPlan::Upstream(config) => {
                let upstream =
                    Upstream::start(config.as_ref().clone()).await.map_err(EndpointError::Upstream)?;
                let label = EndpointLabel { endpoint: plan.path.to_string() };
                let call_seconds = metrics.map(|metrics| metrics.call_seconds.get_or_create(&label).clone());
                let backend = Arc::new(ReloadableBackend::new(upstream, call_seconds));
                let (clock, entropy) = (Arc::new(SystemClock), Arc::new(SystemEntropy));
                let options = plan.options.clone();
                let started =
                    Engine::start(store, Arc::clone(&backend) as _, clock, entropy, options, Vec::new())
                        .await;
                (started.map_err(EndpointError::Store)?, Some(backend))
            }
        };
        if let Some(metrics) = metrics {
            engine.observe_exchanges(Arc::new(ExchangeMetrics::new(Arc::clone(metrics), &plan.path)));
        }
        let metrics =
            metrics.map(|metrics| HttpMetrics::new(Arc::clone(metrics), &plan.path)).unwrap_or_default();
        let (plan, started_with) = (plan.clone(), plan.table.clone());
        Ok(Self { plan, started_with, namespace, access, engine, backend, metrics })
    }

    /// The route to this endpoint with its present configuration.
    pub(crate) fn route(&self) -> Route {
        let Access { principal, metadata, .. } = self.access.clone();
        let service = Endpoint::new(Arc::clone(&self.engine), Config { principal, ..self.plan.http() });
        Route { service, metadata, metrics: self.metrics.clone(), backend: self.backend.clone() }
    }

    /// Applies a new plan for the same endpoint. Calls in flight are unaffected.
    pub(crate) fn apply(&mut self, plan: EndpointPlan, access: Option<Access>, upstream: Option<Upstream>) {
        if let Some(access) = access {
            self.access = access;
        }
        if let (Some(backend), Some(upstream)) = (&self.backend, upstream) {
            backend.replace(upstream);
        }
        self.plan = plan;
    }

    pub(crate) fn path(&self) -> &Arc<str> {
        &self.plan.path
    }

    /// The identity under which the sessions of this endpoint are stored. A reload does not change
    /// it, even if the new plan has another identity.
    pub(crate) fn identity(&self) -> &str {
        self.namespace.identity()
    }

    /// Returns true if at least one replica, or the program, stays the same.
    pub(crate) fn shares_a_server_with(&self, plan: &EndpointPlan) -> bool {
        self.plan.identity.shares_a_server_with(&plan.identity)
    }

    /// Returns true if a reload can change this endpoint to `backend`, and need not start a new
    /// one.
    pub(crate) fn can_change_to(&self, backend: &BackendPlan) -> bool {
        matches!(
            (&self.plan.backend, backend),
            (BackendPlan::Demo, BackendPlan::Demo) | (BackendPlan::Upstream(_), BackendPlan::Upstream(_))
        )
    }

    pub(crate) fn is_unchanged(&self, plan: &EndpointPlan) -> bool {
        self.plan.table == plan.table && self.has_same_server(plan) && self.has_same_access(plan)
    }

    pub(crate) fn has_same_access(&self, plan: &EndpointPlan) -> bool {
        let (old, new) = (&self.plan.table, &plan.table);
        old.auth == new.auth && old.jwt == new.jwt && self.plan.auth_files == plan.auth_files
    }

    /// Returns the access for a new plan. Keys that were fetched are kept if their source is the
    /// same.
    pub(crate) async fn new_access(&self, plan: &EndpointPlan) -> Result<Access, EndpointError> {
        let has_same_keys =
            self.plan.table.jwt.has_same_jwks(&plan.table.jwt) && self.plan.auth_files == plan.auth_files;
        let previous = self.access.jwt.as_ref().filter(|_| has_same_keys);
        Access::new(&plan.auth, &self.namespace, previous).await.map_err(EndpointError::Auth)
    }

    /// Starts the upstream for a new plan. Programs that stay the same keep running.
    pub(crate) async fn new_upstream(&self, config: &upstream::Config) -> Result<Upstream, EndpointError> {
        let (config, old) = (config.clone(), self.backend.as_ref().map(|backend| backend.current()));
        let started = match old {
            Some(old) => Upstream::start_replacement(config, &old).await,
            None => Upstream::start(config).await,
        };
        started.map_err(EndpointError::Upstream)
    }

    pub(crate) fn has_same_server(&self, plan: &EndpointPlan) -> bool {
        let (old, new) = (&self.plan.table, &plan.table);
        old.server_part() == new.server_part() && self.plan.server_files == plan.server_files
    }

    /// Returns the keys whose new value needs a restart, because the engine keeps the old one.
    pub(crate) fn keys_that_need_restart(&self, plan: &EndpointPlan) -> Vec<String> {
        let (old, new) = (&self.started_with, &plan.table);
        let keys = [
            ("timeouts.call", old.timeouts.call != new.timeouts.call),
            ("modern.resume_grace", old.modern.resume_grace != new.modern.resume_grace),
        ];
        let differing = keys.into_iter().filter(|(_, differs)| *differs);
        differing.map(|(key, _)| format!("{key} of the endpoint {}", plan.path)).collect()
    }

    /// Drains the engine, then closes the upstream and its programs.
    pub(crate) fn drain(&self, limit: Duration) -> impl Future<Output = ()> + Send + use<> {
        let (engine, backend) = (Arc::clone(&self.engine), self.backend.clone());
        async move {
            engine.drain(limit).await;
            if let Some(backend) = backend {
                backend.current().close().await;
            }
        }
    }
}

async fn start_demo(plan: &EndpointPlan, store: Arc<dyn Store>) -> Result<Arc<Engine>, StoreError> {
    let options = &plan.options;
    let server = Server::builder(Demo::default)
        .custom_store(store)
        .call_deadline(options.call_deadline)
        .server_request_deadline(options.server_request_deadline)
        .server_request_order(options.server_request_order)
        .queued_server_requests(options.queued_server_requests)
        .exchanges(options.exchanges)
        .resume_grace(options.resume_grace);
    match server.start().await {
        Ok(server) => Ok(Arc::clone(server.service().engine())),
        Err(steadfast::StartError::Store(error)) => Err(error),
    }
}
