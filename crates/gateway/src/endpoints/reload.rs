//! Applies a new configuration while the gateway runs. Endpoints that stay the same are not
//! touched.
//!
//! An endpoint that changes keeps its engine, and with it its sessions, calls and open streams. The
//! reload replaces its HTTP settings, its authentication and its upstream.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast_upstream::Upstream;

use super::access::Access;
use super::running_endpoint::{EndpointError, RunningEndpoint};
use super::{Endpoints, StartError};
use crate::config::{BackendPlan, EndpointPlan, Plan};

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) added: Vec<Arc<str>>,
    pub(crate) removed: Vec<Arc<str>>,
    pub(crate) changed: Vec<Arc<str>>,
    /// Keys whose new value is not used until the next start.
    pub(crate) needs_restart: Vec<String>,
    /// Endpoints whose sessions have another identity than the configuration gives the endpoint
    /// now.
    pub(crate) identities: Vec<IdentityChange>,
}

/// An endpoint whose sessions are only found with an `id` in the configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IdentityChange {
    pub(crate) path: Arc<str>,
    /// The identity of the existing sessions.
    pub(crate) sessions: Arc<str>,
    /// The identity in the new configuration.
    pub(crate) configured: Arc<str>,
    pub(crate) found: SessionsFound,
}

/// Until when the existing sessions are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionsFound {
    /// The server is another one, so the endpoint is replaced.
    NoMore,
    /// At least one replica is the same, so the endpoint keeps its identity while the process runs.
    UntilRestart,
}

/// What a reload does to one endpoint. Nothing is applied before every step is prepared.
enum Step {
    Start(Box<RunningEndpoint>),
    Change(Box<EndpointPlan>, Option<Access>, Option<Upstream>),
}

impl Endpoints {
    /// Applies the whole configuration, or nothing if an endpoint cannot be started.
    pub(crate) async fn reload(&mut self, old: &Plan, new: &Plan) -> Result<Changes, StartError> {
        let needs_restart = old.keys_that_need_restart(new);
        let mut changes = Changes { needs_restart, ..Changes::default() };
        let mut steps = BTreeMap::new();
        for plan in &new.endpoints {
            match self.prepare(plan, new, &mut changes).await {
                Ok(Some(step)) => drop(steps.insert(Arc::clone(&plan.path), step)),
                Ok(None) => {}
                Err(error) => {
                    self.undo(steps);
                    return Err(StartError { path: Arc::clone(&plan.path), error });
                }
            }
        }
        let is_removed = |path: &&Arc<str>| !new.endpoints.iter().any(|plan| plan.path == **path);
        changes.removed = self.running.keys().filter(is_removed).cloned().collect();
        let mut removed: Vec<RunningEndpoint> =
            changes.removed.iter().filter_map(|path| self.running.remove(path)).collect();
        for (path, step) in steps {
            match step {
                Step::Start(running) => removed.extend(self.running.insert(path, *running)),
                Step::Change(plan, access, upstream) => {
                    if let Some(running) = self.running.get_mut(&path) {
                        running.apply(*plan, access, upstream);
                    }
                }
            }
        }
        // Removed endpoints get no new requests before their drain starts.
        self.update_routes();
        for running in removed {
            self.remove(running, new.drain);
        }
        Ok(changes)
    }

    /// Stops the endpoints that were started for this reload, so that they deregister from the
    /// store.
    fn undo(&mut self, steps: BTreeMap<Arc<str>, Step>) {
        for step in steps.into_values() {
            if let Step::Start(running) = step {
                self.remove(*running, Duration::ZERO);
            }
        }
    }

    /// Returns `None` if the endpoint stays as it is.
    async fn prepare(
        &self,
        plan: &EndpointPlan,
        new: &Plan,
        changes: &mut Changes,
    ) -> Result<Option<Step>, EndpointError> {
        let path = || Arc::clone(&plan.path);
        let running = self.running.get(&plan.path);
        let found = running.and_then(|running| identity_change(running, plan, new));
        let lost = running.zip(found).filter(|(running, _)| !has_identity(new, running));
        changes.identities.extend(lost.map(|(running, found)| IdentityChange {
            path: path(),
            sessions: running.identity().into(),
            configured: Arc::clone(plan.identity.name()),
            found,
        }));
        let can_change = |running: &&RunningEndpoint| {
            running.can_change_to(&plan.backend) && found != Some(SessionsFound::NoMore)
        };
        let Some(running) = running.filter(can_change) else {
            changes.added.push(path());
            return Ok(Some(Step::Start(Box::new(self.start_one(plan).await?))));
        };
        changes.needs_restart.extend(running.keys_that_need_restart(plan));
        if running.is_unchanged(plan) {
            return Ok(None);
        }
        changes.changed.push(path());
        let access = if running.has_same_access(plan) { None } else { Some(running.new_access(plan).await?) };
        let upstream = match &plan.backend {
            BackendPlan::Upstream(config) if !running.has_same_server(plan) => {
                Some(running.new_upstream(config).await?)
            }
            BackendPlan::Upstream(_) | BackendPlan::Demo => None,
        };
        Ok(Some(Step::Change(Box::new(plan.clone()), access, upstream)))
    }

    /// Drains an endpoint in the background. Its sessions stay in the store until they expire.
    fn remove(&mut self, running: RunningEndpoint, limit: Duration) {
        while self.draining.try_join_next().is_some() {}
        self.draining.spawn(async move {
            running.drain(limit).await;
            tracing::info!(path = %running.path(), "endpoint removed by configuration reload");
        });
    }
}

/// Returns `None` if the new configuration gives the endpoint the identity that it has.
fn identity_change(running: &RunningEndpoint, plan: &EndpointPlan, new: &Plan) -> Option<SessionsFound> {
    if **plan.identity.name() == *running.identity() {
        None
    } else if plan.table.id.is_none() && running.shares_a_server_with(plan) && !has_identity(new, running) {
        Some(SessionsFound::UntilRestart)
    } else {
        Some(SessionsFound::NoMore)
    }
}

/// Returns true if the new configuration gives the identity of `running` to an endpoint, at any
/// path.
fn has_identity(new: &Plan, running: &RunningEndpoint) -> bool {
    new.endpoints.iter().any(|each| **each.identity.name() == *running.identity())
}
