//! Sessions in this process's memory: nothing to install, nothing that survives.

mod tally;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use steadfast_session::command::{FailNode, Heir, NodeFailed, Sweep, Swept};
use steadfast_session::{
    Changes, Command, Facts, Holdings, Lifecycle, Limit, NodeId, Outcome, Principal, Read, Rules, Session,
    SessionId, StreamNo, Time,
};

use crate::error::StoreError;
use crate::reply::Reply;
use crate::sharded::{SessionMap, Sharded};
use crate::signal::{Outlet, Subscriber};
use crate::store::{Opened, Store, Usage, newly_mailed_to, no_session, not_there};
use tally::Tally;

/// The store for tests, for trying things out, and for servers whose sessions may end with them.
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    /// Where the node that uses this store hears of changes.
    outlet: Arc<Outlet>,
}

/// What several nodes of one process may share.
#[derive(Debug)]
struct Shared {
    rules: Rules,
    shards: Sharded<Shard>,
    tally: Tally,
    /// Nodes that have joined, and whether they are alive: one that has left may have left something.
    nodes: Mutex<BTreeMap<NodeId, bool>>,
    outlets: Mutex<Vec<Weak<Outlet>>>,
    /// Whether there was ever more than one.
    is_shared: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    sessions: SessionMap<Slot>,
    /// When to look at which session again. Each session stands here at most once, under `Slot::due`.
    agenda: BTreeSet<(Time, SessionId)>,
    /// Reused from command to command.
    changes: Changes,
}

#[derive(Debug)]
struct Slot {
    session: Session,
    due: Option<Time>,
    /// What all sessions of its principal hold.
    own: Arc<tally::Bytes>,
}

impl MemoryStore {
    pub fn new(rules: Rules) -> Self {
        let outlet = Arc::default();
        let shared = Shared {
            rules,
            shards: Sharded::default(),
            tally: Tally::default(),
            nodes: Mutex::default(),
            outlets: Mutex::new(vec![Arc::downgrade(&outlet)]),
            is_shared: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), outlet }
    }

    /// The same sessions, for another node of this process: each hears of what the other changes.
    pub fn beside(&self) -> Self {
        let outlet = Arc::default();
        let mut outlets = lock(&self.shared.outlets);
        outlets.retain(|outlet| outlet.strong_count() > 0);
        outlets.push(Arc::downgrade(&outlet));
        self.shared.is_shared.store(true, Ordering::SeqCst);
        Self { shared: Arc::clone(&self.shared), outlet }
    }

    /// Lets everybody know, in the order of the commits: the session's lock is held.
    fn publish(&self, facts: &Arc<Facts>, changes: &Changes) {
        self.outlet.publish(facts, changes);
        if self.shared.is_shared.load(Ordering::SeqCst) {
            let others = lock(&self.shared.outlets).clone();
            let others =
                others.iter().filter_map(Weak::upgrade).filter(|outlet| !Arc::ptr_eq(outlet, &self.outlet));
            others.for_each(|outlet| outlet.publish_news(facts, changes));
        }
    }

    fn open_now(&self, facts: Facts) -> Opened {
        let facts = Arc::new(facts);
        let session = Session::open(Arc::clone(&facts));
        let mut shard = self.shared.shards.of(&facts.id);
        if shard.sessions.contains_key(&facts.id) {
            return Opened::Taken;
        }
        let limits = &self.shared.rules.limits;
        let own = match self.shared.tally.admit(&facts.principal, session.held_bytes(), limits) {
            Ok(own) => own,
            Err(limit) => return Opened::OverLimit(limit),
        };
        let due = session.next_check(&self.shared.rules);
        let Shard { sessions, agenda, changes } = &mut *shard;
        agenda.extend(due.map(|due| (due, facts.id)));
        sessions.insert(facts.id, Slot { session, due, own });
        changes.clear();
        changes.lifecycle.push(Lifecycle::Opened);
        self.publish(&facts, changes);
        Opened::Opened(facts)
    }

    fn apply_now(&self, id: SessionId, command: Command, now: Time) -> Outcome {
        let mut shard = self.shared.shards.of(&id);
        let mailed_to = shard.sessions.get(&id).and_then(|slot| newly_mailed_to(&command, &slot.session));
        if mailed_to.is_some_and(|owner| !self.counts_as_alive(owner)) {
            return not_there(&command);
        }
        self.apply_in(&mut shard, id, command, now)
    }

    fn counts_as_alive(&self, node: NodeId) -> bool {
        lock(&self.shared.nodes).get(&node) == Some(&true)
    }

    /// Frees every session of a node. Gives whether it holds nothing any more.
    fn fail_node(&self, node: NodeId, now: Time, heir: impl Fn(&Facts) -> Heir) -> bool {
        let mut is_free = true;
        for mut shard in self.shared.shards.each() {
            let ids: Vec<SessionId> = shard.sessions.keys().copied().collect();
            for id in ids {
                let Some(slot) = shard.sessions.get(&id) else { continue };
                let fail = FailNode { node, heir: heir(slot.session.facts()) };
                let failed = self.apply_in(&mut shard, id, Command::FailNode(fail), now);
                is_free &= !matches!(failed, Outcome::FailNode(NodeFailed::Failed { left, .. }) if left > 0);
            }
        }
        if is_free {
            lock(&self.shared.nodes).remove(&node);
        }
        is_free
    }

    fn apply_in(&self, shard: &mut Shard, id: SessionId, command: Command, now: Time) -> Outcome {
        let Shard { sessions, agenda, changes } = shard;
        let Some(slot) = sessions.get_mut(&id) else { return no_session(&command) };
        changes.clear();
        let Shared { rules, tally, .. } = &*self.shared;
        let held = slot.session.held_bytes();
        let outcome = slot.session.apply_among(command, now, rules, tally.crowd(&slot.own), changes);
        tally.change(&slot.own, held, slot.session.held_bytes());
        if changes.lifecycle.iter().any(|event| matches!(event, Lifecycle::Closed(_))) {
            tally.release(&slot.session.facts().principal);
        }
        self.publish(slot.session.facts(), changes);
        // Earlier than agreed: look earlier. Later than agreed: the sweep will see, so that a busy session does
        // not move its entry with each request.
        let due = slot.session.next_check(&self.shared.rules);
        if due.is_some_and(|due| slot.due.is_none_or(|agreed| due < agreed)) {
            reschedule(agenda, slot, id, due);
        }
        outcome
    }

    fn sweep_shard(&self, shard: &mut Shard, now: Time, batch: usize) -> usize {
        let due: Vec<SessionId> =
            shard.agenda.iter().take_while(|(at, _)| *at <= now).take(batch).map(|(_, id)| *id).collect();
        for &id in &due {
            let outcome = self.apply_in(shard, id, Command::Sweep(Sweep), now);
            let Shard { sessions, agenda, .. } = shard;
            let Some(slot) = sessions.get_mut(&id) else { continue };
            match outcome {
                Outcome::Sweep(Swept::Next(next)) => reschedule(agenda, slot, id, next),
                _ => {
                    reschedule(agenda, slot, id, None);
                    if let Some(Slot { session, own, .. }) = sessions.remove(&id) {
                        self.shared.tally.forget(&session.facts().principal, own, session.held_bytes());
                    }
                }
            }
        }
        due.len()
    }
}

/// Nothing that is done under these locks can panic half way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reschedule(agenda: &mut BTreeSet<(Time, SessionId)>, slot: &mut Slot, id: SessionId, due: Option<Time>) {
    if let Some(agreed) = slot.due {
        agenda.remove(&(agreed, id));
    }
    agenda.extend(due.map(|due| (due, id)));
    slot.due = due;
}

impl Store for MemoryStore {
    /// Every change is signalled: there is no other process.
    fn poll_interval(&self) -> Option<std::time::Duration> {
        None
    }

    fn changes_elsewhere(&self) -> Reply<Option<u64>> {
        Reply::ready(Ok(None))
    }

    fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    fn open(&self, facts: Facts) -> Reply<Opened> {
        Reply::ready(Ok(self.open_now(facts)))
    }

    fn no_room_for(&self, principal: &Principal) -> Reply<Option<Limit>> {
        let Shared { rules, tally, .. } = &*self.shared;
        Reply::ready(Ok(tally.no_room_for(principal, 0, &rules.limits)))
    }

    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome> {
        Reply::ready(Ok(self.apply_now(session, command, now)))
    }

    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read> {
        let shard = self.shared.shards.of(&session);
        let read = shard.sessions.get(&session).map(|slot| slot.session.read(stream, after, budget));
        Reply::ready(Ok(read.unwrap_or(Read::NoSession)))
    }

    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>> {
        let shard = self.shared.shards.of(&session);
        let slot = shard.sessions.get(&session).filter(|slot| slot.session.is_open());
        Reply::ready(Ok(slot.map(|slot| Arc::clone(slot.session.facts()))))
    }

    fn held(&self, session: SessionId, node: NodeId) -> Reply<Holdings> {
        let shard = self.shared.shards.of(&session);
        let slot = shard.sessions.get(&session);
        Reply::ready(Ok(slot.map_or(Holdings::NoSession, |slot| slot.session.held_by(node))))
    }

    fn sweep(&self, now: Time, batch: usize) -> Reply<usize> {
        let mut swept = 0;
        for mut shard in self.shared.shards.each() {
            if swept >= batch {
                break;
            }
            swept += self.sweep_shard(&mut shard, now, batch - swept);
        }
        Reply::ready(Ok(swept))
    }

    fn join(&self, node: NodeId, _now: Time) -> Reply<()> {
        lock(&self.shared.nodes).insert(node, true);
        Reply::ready(Ok(()))
    }

    fn is_alive(&self, node: NodeId) -> Reply<bool> {
        Reply::ready(Ok(self.counts_as_alive(node)))
    }

    /// Sessions in memory die with their process, so a node can only be found to have left.
    fn bury_dead_nodes(&self, now: Time) -> Reply<usize> {
        let dead: Vec<NodeId> =
            lock(&self.shared.nodes).iter().filter(|(_, alive)| !**alive).map(|(node, _)| *node).collect();
        let buried = dead.iter().filter(|node| self.fail_node(**node, now, |facts| self.outlet.heir(facts)));
        Reply::ready(Ok(buried.count()))
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        lock(&self.shared.nodes).insert(node, false);
        self.fail_node(node, now, |_| Heir::Later);
        Reply::ready(Ok(()))
    }

    fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.outlet.set(subscriber);
    }

    fn answers(&self) -> Reply<()> {
        Reply::ready(Ok(()))
    }

    fn usage(&self) -> Reply<Usage> {
        let tally = &self.shared.tally;
        Reply::ready(Ok::<_, StoreError>(Usage { sessions: tally.sessions(), bytes: tally.bytes() }))
    }
}
