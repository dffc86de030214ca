//! A store without anything clever: sessions in a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_session::command::{FailNode, Heir, NodeFailed, Sweep, Swept};
use steadfast_session::{
    Changes, Command, Crowd, Facts, Holdings, Lifecycle, Limit, NodeId, Outcome, Principal, Read, Rules,
    Session, SessionId, StreamNo, Time,
};

use super::recorder::{Heards, expect, heir};
use crate::store::{Opened, Usage, no_session};

/// What every store is compared with.
#[derive(Clone, Debug)]
pub struct Model {
    pub rules: Rules,
    pub sessions: BTreeMap<SessionId, Session>,
    /// Nodes that have joined and not left, with the number of the store handle that they joined through. `None`:
    /// that handle is gone, so the node is dead.
    pub nodes: BTreeMap<NodeId, Option<usize>>,
    /// What the last steps must have made heard.
    pub heards: Heards,
}

impl Model {
    pub fn new(rules: Rules) -> Self {
        Self { rules, sessions: BTreeMap::new(), nodes: BTreeMap::new(), heards: BTreeMap::new() }
    }

    pub fn open(&mut self, facts: Facts) -> Opened {
        if self.sessions.contains_key(&facts.id) {
            return Opened::Taken;
        }
        let facts = Arc::new(facts);
        let session = Session::open(Arc::clone(&facts));
        if let Some(limit) = self.no_room_for(&facts.principal, session.held_bytes()) {
            return Opened::OverLimit(limit);
        }
        self.sessions.insert(facts.id, session);
        let changes = Changes { lifecycle: vec![Lifecycle::Opened], ..Changes::default() };
        expect(&mut self.heards, facts.id, &changes);
        Opened::Opened(facts)
    }

    /// The bound that forbids one more session which holds so much.
    pub fn no_room_for(&self, principal: &Principal, bytes: u64) -> Option<Limit> {
        let limits = &self.rules.limits;
        let open = || self.sessions.values().filter(|session| session.is_open());
        if open().count() as u64 >= limits.sessions {
            return Some(Limit::Sessions);
        }
        let own = open().filter(|session| session.facts().principal == *principal).count() as u64;
        if own >= limits.sessions_per_principal {
            return Some(Limit::SessionsPerPrincipal);
        }
        self.crowd(principal).and(bytes).over(limits)
    }

    pub fn apply(&mut self, id: SessionId, command: Command, now: Time) -> Outcome {
        let Some(principal) = self.sessions.get(&id).map(|session| session.facts().principal.clone()) else {
            return no_session(&command);
        };
        let crowd = self.crowd(&principal);
        let Some(session) = self.sessions.get_mut(&id) else { return no_session(&command) };
        let mut changes = Changes::default();
        let outcome = session.apply_among(command, now, &self.rules, crowd, &mut changes);
        expect(&mut self.heards, id, &changes);
        outcome
    }

    /// What all sessions hold, and those of one principal. Closed ones count until they are removed.
    fn crowd(&self, principal: &Principal) -> Crowd {
        let held = |chosen: fn(&Session, &Principal) -> bool| {
            let chosen = self.sessions.values().filter(|session| chosen(session, principal));
            Some(chosen.map(Session::held_bytes).sum())
        };
        let theirs = |session: &Session, principal: &Principal| session.facts().principal == *principal;
        Crowd { store_bytes: held(|_, _| true), principal_bytes: held(theirs) }
    }

    /// Gives how many sessions were due. A store may count more: it may look at a session too early.
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

    /// A node goes. What may be done again is left for whoever buries it.
    pub fn leave(&mut self, node: NodeId, now: Time) {
        if !self.free(node, now, |_| Heir::Later) {
            self.nodes.insert(node, None);
        }
    }

    /// Gives whether the node holds nothing any more. Then it is on no list.
    fn free(&mut self, node: NodeId, now: Time, heir: fn(&Facts) -> Heir) -> bool {
        let mut is_free = true;
        let ids: Vec<(SessionId, Heir)> =
            self.sessions.iter().map(|(id, session)| (*id, heir(session.facts()))).collect();
        for (id, heir) in ids {
            let failed = self.apply(id, Command::FailNode(FailNode { node, heir }), now);
            is_free &= !matches!(failed, Outcome::FailNode(NodeFailed::Failed { left: 1.., .. }));
        }
        if is_free {
            self.nodes.remove(&node);
        }
        is_free
    }

    /// A store handle is gone, and with it the nodes that joined through it.
    pub fn lose_handle(&mut self, handle: usize) {
        for holder in self.nodes.values_mut().filter(|holder| **holder == Some(handle)) {
            *holder = None;
        }
    }

    pub fn bury(&mut self, now: Time) -> usize {
        let dead: Vec<NodeId> =
            self.nodes.iter().filter(|(_, holder)| holder.is_none()).map(|(node, _)| *node).collect();
        for node in &dead {
            self.free(*node, now, heir);
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
