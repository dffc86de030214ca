//! Another configuration while the gateway works. What is not concerned does not notice.
//!
//! An endpoint keeps its engine, and with it its sessions, calls and open streams; what is in front of it (hosts, limits of
//! requests, who is calling) and what is behind it (the server) are replaced.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use steadfast_upstream::Upstream;

use super::door::Door;
use super::endpoint::{EndpointError, Running};
use super::{Gateway, StartError};
use crate::config::{Behind, EndpointPlan, Plan};

/// What came of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) added: Vec<Arc<str>>,
    pub(crate) removed: Vec<Arc<str>>,
    pub(crate) changed: Vec<Arc<str>>,
    /// Keys whose new value is not used until the next start.
    pub(crate) needs_restart: Vec<String>,
    /// Endpoints whose sessions were opened under another identity than the configuration gives them now.
    pub(crate) identities: Vec<OtherIdentity>,
}

/// An endpoint whose sessions need an `id` in the configuration to be found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OtherIdentity {
    pub(crate) path: Arc<str>,
    /// The identity of the sessions that there are.
    pub(crate) sessions: Arc<str>,
    /// The identity by the new configuration.
    pub(crate) configured: Arc<str>,
    pub(crate) found: Found,
}

/// Until when those sessions are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The server is another one, so its sessions are others, too.
    NoMore,
    /// One replica at least is the same, so the endpoint goes on under the identity that it has.
    UntilRestart,
}

/// What becomes of one endpoint, before anything happens.
enum Step {
    Start(Box<Running>),
    /// With what is new about who may use it, and about its server.
    Change(Box<EndpointPlan>, Option<Door>, Option<Upstream>),
}

impl Gateway {
    /// All of it, or nothing.
    pub(crate) async fn change(&mut self, from: &Plan, to: &Plan) -> Result<Changes, StartError> {
        let mut changes = Changes { needs_restart: fixed_keys(from, to), ..Changes::default() };
        let mut steps = BTreeMap::new();
        for plan in &to.endpoints {
            match self.step(plan, to, &mut changes).await {
                Ok(Some(step)) => drop(steps.insert(Arc::clone(&plan.path), step)),
                Ok(None) => {}
                Err(error) => {
                    self.undo(steps);
                    return Err(StartError { path: Arc::clone(&plan.path), error });
                }
            }
        }
        let gone = self.running.keys().filter(|path| !to.endpoints.iter().any(|plan| plan.path == **path));
        changes.removed = gone.cloned().collect();
        let mut leaving: Vec<Running> =
            changes.removed.iter().filter_map(|path| self.running.remove(path)).collect();
        for (path, step) in steps {
            match step {
                Step::Start(running) => leaving.extend(self.running.insert(path, *running)),
                Step::Change(plan, door, server) => {
                    if let Some(running) = self.running.get_mut(&path) {
                        running.change(*plan, door, server);
                    }
                }
            }
        }
        // First nobody comes in any more, then whoever is in may finish.
        self.mount();
        for running in leaving {
            self.let_go(running, to.drain);
        }
        Ok(changes)
    }

    /// What was started for nothing takes its leave of the store.
    fn undo(&mut self, steps: BTreeMap<Arc<str>, Step>) {
        for step in steps.into_values() {
            if let Step::Start(running) = step {
                self.let_go(*running, Duration::ZERO);
            }
        }
    }

    async fn step(
        &self,
        plan: &EndpointPlan,
        to: &Plan,
        changes: &mut Changes,
    ) -> Result<Option<Step>, EndpointError> {
        let path = || Arc::clone(&plan.path);
        let running = self.running.get(&plan.path);
        let found = running.and_then(|running| other_identity(running, plan, to));
        let lost = running.zip(found).filter(|(running, _)| !is_taken(running, to));
        changes.identities.extend(lost.map(|(running, found)| OtherIdentity {
            path: path(),
            sessions: running.identity().into(),
            configured: Arc::clone(plan.identity.name()),
            found,
        }));
        let can_change =
            |running: &&Running| running.is_of_kind(&plan.behind) && found != Some(Found::NoMore);
        let Some(running) = running.filter(can_change) else {
            changes.added.push(path());
            return Ok(Some(Step::Start(Box::new(self.start_one(plan).await?))));
        };
        changes.needs_restart.extend(running.fixed_keys(plan));
        if running.is_as(plan) {
            return Ok(None);
        }
        changes.changed.push(path());
        let door = if running.has_door_of(plan) { None } else { Some(running.new_door(plan).await?) };
        let server = match &plan.behind {
            Behind::Upstream(config) if !running.has_server_of(plan) => {
                Some(running.new_server(config).await?)
            }
            Behind::Upstream(_) | Behind::Demo => None,
        };
        Ok(Some(Step::Change(Box::new(plan.clone()), door, server)))
    }

    /// An endpoint that is gone from the file. Its sessions stay in the store for as long as they would anyway.
    fn let_go(&mut self, running: Running, patience: Duration) {
        while self.leaving.try_join_next().is_some() {}
        self.leaving.spawn(async move {
            running.drain(patience).await;
            tracing::info!(path = %running.path(), "an endpoint is gone");
        });
    }
}

/// `None` if the endpoint has the identity that the configuration gives it.
fn other_identity(running: &Running, plan: &EndpointPlan, to: &Plan) -> Option<Found> {
    if **plan.identity.name() == *running.identity() {
        None
    } else if plan.written.id.is_none() && running.shares_a_server_with(plan) && !is_taken(running, to) {
        Some(Found::UntilRestart)
    } else {
        Some(Found::NoMore)
    }
}

/// Returns true if the new configuration gives an endpoint, at any path, the identity of this one.
fn is_taken(running: &Running, to: &Plan) -> bool {
    to.endpoints.iter().any(|each| **each.identity.name() == *running.identity())
}

/// What a running gateway cannot change.
fn fixed_keys(from: &Plan, to: &Plan) -> Vec<String> {
    let (from, to) = (&from.file, &to.file);
    let handshake = |file: &crate::config::File| file.tls.as_ref().map(|tls| tls.handshake);
    let keys = [
        ("listen", from.listen != to.listen),
        ("store", from.store != to.store),
        ("durability", from.durability != to.durability),
        ("admin", from.admin != to.admin),
        ("listener", from.listener != to.listener),
        ("limits", from.limits != to.limits),
        ("timing", from.timing != to.timing),
        ("tls", handshake(from) != handshake(to)),
    ];
    keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key.to_owned()).collect()
}
