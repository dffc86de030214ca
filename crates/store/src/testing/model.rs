//! [`Model`]: the simplest possible store, a map of sessions. Real stores are compared with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_session::command::{FailNode, NodeFailed, Successor, Sweep, Swept};
use steadfast_session::{
    Changes, Command, Facts, Holdings, Lifecycle, Limit, NodeId, Outcome, Principal, Read, Rules, Session,
    SessionId, SharedUsage, StreamNo, Time,
};

use super::signal_recorder::{RecordedSignals, expect, successor};
use crate::store::{EvictionSample, Opened, SampledSession, Usage, no_session};

/// The expected state of a store.
#[derive(Clone, Debug)]
pub struct Model {
    pub rules: Rules,
    pub sessions: BTreeMap<SessionId, Session>,
    /// Nodes that have joined and have not left, with the store handle that they joined through.
    /// `None` if that handle is closed, so that the node is dead.
    pub nodes: BTreeMap<NodeId, Option<usize>>,
    /// The signals that the last steps must have caused.
    pub signals: RecordedSignals,
}

impl Model {
    pub fn new(rules: Rules) -> Self {
        Self { rules, sessions: BTreeMap::new(), nodes: BTreeMap::new(), signals: BTreeMap::new() }
    }

    pub fn open(&mut self, facts: Facts) -> Opened {
        if self.sessions.contains_key(&facts.id) {
            return Opened::IdInUse;
        }
        let facts = Arc::new(facts);
        let session = Session::open(Arc::clone(&facts));
        if let Some(limit) = self.reached_limit(&facts.principal, session.held_bytes()) {
            return Opened::OverLimit(limit);
        }
        self.sessions.insert(facts.id, session);
        let changes = Changes { lifecycle: vec![Lifecycle::Opened], ..Changes::default() };
        expect(&mut self.signals, facts.id, &changes);
        Opened::Opened(facts)
    }

    /// Returns the limit that refuses one more session of this size, if there is one.
    pub fn reached_limit(&self, principal: &Principal, bytes: u64) -> Option<Limit> {
        let limits = &self.rules.limits;
        let open = || self.sessions.values().filter(|session| session.is_open());
        if open().count() as u64 >= limits.sessions {
            return Some(Limit::Sessions);
        }
        let own = open().filter(|session| session.facts().principal == *principal).count() as u64;
        if own >= limits.sessions_per_principal {
            return Some(Limit::SessionsPerPrincipal);
        }
        self.shared_usage(principal).plus(bytes).exceeded_limit(limits)
    }

    /// Returns the sample of a store with all open sessions, sorted by id. `largest` is left out:
    /// several principals may have the most sessions.
    pub fn eviction_sample(&self, requester: &Principal, of: Option<&Principal>) -> EvictionSample {
        let mut held: BTreeMap<&Principal, u64> = BTreeMap::new();
        for session in self.sessions.values().filter(|session| session.is_open()) {
            *held.entry(&session.facts().principal).or_default() += 1;
        }
        let open = self.sessions.values().filter(|session| session.is_open());
        let sampled = open.filter(|session| of.is_none_or(|of| session.facts().principal == *of));
        let sessions = sampled.map(|session| SampledSession {
            id: session.facts().id,
            principal: session.facts().principal.clone(),
            last_use: session.meta().last_use(),
            held_by_principal: held.get(&session.facts().principal).copied().unwrap_or_default(),
        });
        EvictionSample {
            sessions: sessions.collect(),
            open: held.values().sum(),
            principals: held.len() as u64,
            own: held.get(requester).copied().unwrap_or_default(),
            largest: None,
        }
    }

    pub fn apply(&mut self, id: SessionId, command: Command, now: Time) -> Outcome {
        let Some(principal) = self.sessions.get(&id).map(|session| session.facts().principal.clone()) else {
            return no_session(&command);
        };
        let shared_usage = self.shared_usage(&principal);
        let Some(session) = self.sessions.get_mut(&id) else { return no_session(&command) };
        let mut changes = Changes::default();
        let outcome = session.apply_with_usage(command, now, &self.rules, shared_usage, &mut changes);
        expect(&mut self.signals, id, &changes);
        outcome
    }

    /// Returns what all sessions hold, and what those of one principal hold. Closed sessions count
    /// until they are removed.
    fn shared_usage(&self, principal: &Principal) -> SharedUsage {
        let held = |chosen: fn(&Session, &Principal) -> bool| {
            let chosen = self.sessions.values().filter(|session| chosen(session, principal));
            Some(chosen.map(Session::held_bytes).sum())
        };
        let theirs = |session: &Session, principal: &Principal| session.facts().principal == *principal;
        SharedUsage { store_bytes: held(|_, _| true), principal_bytes: held(theirs) }
    }

    /// Sweeps all sessions that are due and returns their number. A store may return more: it may
    /// sweep a session too early.
    pub fn sweep(&mut self, now: Time) -> usize {
        let is_due = |session: &Session| session.next_check(&self.rules).is_some_and(|at| at <= now);
        let due: Vec<SessionId> =
            self.sessions.iter().filter(|(_, session)| is_due(session)).map(|(id, _)| *id).collect();
        for id in &due {
            if self.apply(*id, Command::Sweep(Sweep), now) == Outcome::Sweep(Swept::Remove) {
                self.sessions.remove(id);
            }
        }
        due.len()
    }

    /// Deregisters a node. Its reassignable calls wait for the node that reaps it.
    pub fn leave(&mut self, node: NodeId, now: Time) {
        if !self.free(node, now, |_| Successor::Reaper) {
            self.nodes.insert(node, None);
        }
    }

    /// Settles what a node holds. Returns true if it holds nothing any more; then it is
    /// deregistered.
    fn free(&mut self, node: NodeId, now: Time, successor: fn(&Facts) -> Successor) -> bool {
        let mut is_free = true;
        let ids: Vec<(SessionId, Successor)> =
            self.sessions.iter().map(|(id, session)| (*id, successor(session.facts()))).collect();
        for (id, successor) in ids {
            let failed = self.apply(id, Command::FailNode(FailNode { node, successor }), now);
            is_free &= !matches!(failed, Outcome::FailNode(NodeFailed::Failed { kept: 1.., .. }));
        }
        if is_free {
            self.nodes.remove(&node);
        }
        is_free
    }

    /// Closes a store handle. The nodes that joined through it are dead.
    pub fn lose_handle(&mut self, handle: usize) {
        for holder in self.nodes.values_mut().filter(|holder| **holder == Some(handle)) {
            *holder = None;
        }
    }

    pub fn reap(&mut self, now: Time) -> usize {
        let dead: Vec<NodeId> =
            self.nodes.iter().filter(|(_, holder)| holder.is_none()).map(|(node, _)| *node).collect();
        for node in &dead {
            self.free(*node, now, successor);
        }
        dead.len()
    }

    pub fn read(&self, id: SessionId, stream: StreamNo, after: u64, budget: u64) -> Read {
        self.sessions.get(&id).map_or(Read::NoSession, |session| session.read(stream, after, budget))
    }

    pub fn held(&self, id: SessionId, node: NodeId) -> Holdings {
        self.sessions.get(&id).map_or(Holdings::NoSession, |session| session.held_by(node))
    }

    pub fn is_alive(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(Option::is_some)
    }

    pub fn facts(&self, id: SessionId) -> Option<Arc<Facts>> {
        let session = self.sessions.get(&id).filter(|session| session.is_open())?;
        Some(Arc::clone(session.facts()))
    }

    pub fn usage(&self) -> Usage {
        Usage {
            sessions: self.sessions.values().filter(|session| session.is_open()).count() as u64,
            bytes: self.sessions.values().map(Session::held_bytes).sum(),
        }
    }
}
