//! [`MemoryStore`]: keeps sessions in the memory of this process. They end with the process.

mod usage_counters;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use steadfast_session::command::{FailNode, NodeFailed, Successor, Sweep, Swept};
use steadfast_session::{
    Changes, Command, Facts, Holdings, Lifecycle, Limit, NodeId, Outcome, Principal, Read, Rules, Session,
    SessionId, StreamNo, Time,
};

use crate::error::StoreError;
use crate::reply::Reply;
use crate::sharded::{SessionMap, Sharded};
use crate::signal::{SignalSink, Subscriber};
use crate::store::{
    EvictionSample, Opened, SampledSession, Store, Usage, newly_forwarded_to, no_session, target_node_missing,
};
use usage_counters::UsageCounters;

/// A store in memory, for tests, for first experiments, and for servers whose sessions need not
/// outlive the process.
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    /// The subscriber of the node that uses this handle.
    signal_sink: Arc<SignalSink>,
}

/// The sessions and nodes that all handles of one store share.
#[derive(Debug)]
struct Shared {
    rules: Rules,
    shards: Sharded<Shard>,
    usage_counters: UsageCounters,
    /// Nodes that have joined, and whether they are alive. A node that has left stays here until it
    /// is reaped, if it has left reassignable calls behind.
    nodes: Mutex<BTreeMap<NodeId, bool>>,
    /// The subscribers of all handles.
    signal_sinks: Mutex<Vec<Weak<SignalSink>>>,
    /// True once a second handle exists. Saves the lock on `signal_sinks` until then.
    is_shared: AtomicBool,
}

#[derive(Debug, Default)]
struct Shard {
    sessions: SessionMap<StoredSession>,
    /// Sessions by the time of their next sweep. Each session has at most one entry, at
    /// `StoredSession::due`.
    sweep_schedule: BTreeSet<(Time, SessionId)>,
    /// Scratch space, reused by every command.
    changes: Changes,
}

#[derive(Debug)]
struct StoredSession {
    session: Session,
    /// When the next sweep of this session is scheduled.
    due: Option<Time>,
    /// Counts the bytes that all sessions of its principal hold.
    principal_bytes: Arc<usage_counters::ByteCounter>,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new(rules: Rules) -> Self {
        let signal_sink = Arc::default();
        let shared = Shared {
            rules,
            shards: Sharded::default(),
            usage_counters: UsageCounters::default(),
            nodes: Mutex::default(),
            signal_sinks: Mutex::new(vec![Arc::downgrade(&signal_sink)]),
            is_shared: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), signal_sink }
    }

    /// Returns a second handle to the same sessions, for another node of this process. The nodes
    /// receive signals of each other's changes.
    pub fn handle_for_another_node(&self) -> Self {
        let signal_sink = Arc::default();
        let mut signal_sinks = lock(&self.shared.signal_sinks);
        signal_sinks.retain(|signal_sink| signal_sink.strong_count() > 0);
        signal_sinks.push(Arc::downgrade(&signal_sink));
        self.shared.is_shared.store(true, Ordering::SeqCst);
        Self { shared: Arc::clone(&self.shared), signal_sink }
    }

    /// Signals a commit to all handles. The caller holds the lock of the session's shard, so
    /// signals are in commit order.
    fn publish(&self, facts: &Arc<Facts>, changes: &Changes) {
        self.signal_sink.publish(facts, changes);
        if self.shared.is_shared.load(Ordering::SeqCst) {
            let others = lock(&self.shared.signal_sinks).clone();
            let others = others
                .iter()
                .filter_map(Weak::upgrade)
                .filter(|signal_sink| !Arc::ptr_eq(signal_sink, &self.signal_sink));
            others.for_each(|signal_sink| signal_sink.publish_update(facts, changes));
        }
    }

    fn open_now(&self, facts: Facts) -> Opened {
        let facts = Arc::new(facts);
        let session = Session::open(Arc::clone(&facts));
        let mut shard = self.shared.shards.of(&facts.id);
        if shard.sessions.contains_key(&facts.id) {
            return Opened::IdInUse;
        }
        let limits = &self.shared.rules.limits;
        let principal_bytes = match self.shared.usage_counters.admit(&facts, session.held_bytes(), limits) {
            Ok(principal_bytes) => principal_bytes,
            Err(limit) => return Opened::OverLimit(limit),
        };
        let due = session.next_check(&self.shared.rules);
        let Shard { sessions, sweep_schedule, changes } = &mut *shard;
        sweep_schedule.extend(due.map(|due| (due, facts.id)));
        sessions.insert(facts.id, StoredSession { session, due, principal_bytes });
        changes.clear();
        changes.lifecycle.push(Lifecycle::Opened);
        self.publish(&facts, changes);
        Opened::Opened(facts)
    }

    fn apply_now(&self, id: SessionId, command: Command, now: Time) -> Outcome {
        let mut shard = self.shared.shards.of(&id);
        let forwarded_to =
            shard.sessions.get(&id).and_then(|stored| newly_forwarded_to(&command, &stored.session));
        if forwarded_to.is_some_and(|owner| !self.is_node_alive(owner)) {
            return target_node_missing(&command);
        }
        self.apply_in(&mut shard, id, command, now)
    }

    fn is_node_alive(&self, node: NodeId) -> bool {
        lock(&self.shared.nodes).get(&node) == Some(&true)
    }

    /// Settles what a node holds in every session. Returns true if the node holds nothing any more;
    /// then it is no longer registered.
    fn fail_node(&self, node: NodeId, now: Time, successor: impl Fn(&Facts) -> Successor) -> bool {
        let mut is_free = true;
        for mut shard in self.shared.shards.each() {
            let ids: Vec<SessionId> = shard.sessions.keys().copied().collect();
            for id in ids {
                let Some(stored) = shard.sessions.get(&id) else { continue };
                let fail = FailNode { node, successor: successor(stored.session.facts()) };
                let failed = self.apply_in(&mut shard, id, Command::FailNode(fail), now);
                is_free &= !matches!(failed, Outcome::FailNode(NodeFailed::Failed { kept, .. }) if kept > 0);
            }
        }
        if is_free {
            lock(&self.shared.nodes).remove(&node);
        }
        is_free
    }

    fn apply_in(&self, shard: &mut Shard, id: SessionId, command: Command, now: Time) -> Outcome {
        let Shard { sessions, sweep_schedule, changes } = shard;
        let Some(stored) = sessions.get_mut(&id) else { return no_session(&command) };
        changes.clear();
        let Shared { rules, usage_counters, .. } = &*self.shared;
        let held = stored.session.held_bytes();
        let outcome = stored.session.apply_with_usage(
            command,
            now,
            rules,
            usage_counters.shared_usage(&stored.principal_bytes),
            changes,
        );
        usage_counters.change(&stored.principal_bytes, held, stored.session.held_bytes());
        if changes.lifecycle.iter().any(|event| matches!(event, Lifecycle::Closed(_))) {
            usage_counters.mark_closed(stored.session.facts());
        }
        self.publish(stored.session.facts(), changes);
        // Move the entry only if the session is due earlier than scheduled. If it is due later, the
        // scheduled sweep moves it, so that a busy session does not move its entry with every
        // command.
        let due = stored.session.next_check(&self.shared.rules);
        if due.is_some_and(|due| stored.due.is_none_or(|scheduled| due < scheduled)) {
            reschedule(sweep_schedule, stored, id, due);
        }
        outcome
    }

    fn sweep_shard(&self, shard: &mut Shard, now: Time, batch: usize) -> usize {
        let due: Vec<SessionId> = shard
            .sweep_schedule
            .iter()
            .take_while(|(at, _)| *at <= now)
            .take(batch)
            .map(|(_, id)| *id)
            .collect();
        for &id in &due {
            let outcome = self.apply_in(shard, id, Command::Sweep(Sweep), now);
            let Shard { sessions, sweep_schedule, .. } = shard;
            let Some(stored) = sessions.get_mut(&id) else { continue };
            match outcome {
                Outcome::Sweep(Swept::Next(next)) => reschedule(sweep_schedule, stored, id, next),
                _ => {
                    reschedule(sweep_schedule, stored, id, None);
                    if let Some(StoredSession { session, principal_bytes, .. }) = sessions.remove(&id) {
                        self.shared.usage_counters.remove(
                            &session.facts().principal,
                            principal_bytes,
                            session.held_bytes(),
                        );
                    }
                }
            }
        }
        due.len()
    }
}

/// Locks and ignores poisoning: no code under these locks can panic half way.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reschedule(
    sweep_schedule: &mut BTreeSet<(Time, SessionId)>,
    stored: &mut StoredSession,
    id: SessionId,
    due: Option<Time>,
) {
    if let Some(scheduled) = stored.due {
        sweep_schedule.remove(&(scheduled, id));
    }
    sweep_schedule.extend(due.map(|due| (due, id)));
    stored.due = due;
}

impl Store for MemoryStore {
    /// Returns `None`: every change is signalled, because no other process shares the sessions.
    fn poll_interval(&self) -> Option<std::time::Duration> {
        None
    }

    fn external_change_count(&self) -> Reply<Option<u64>> {
        Reply::ready(Ok(None))
    }

    fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    fn open(&self, facts: Facts) -> Reply<Opened> {
        Reply::ready(Ok(self.open_now(facts)))
    }

    fn reached_limit(&self, principal: &Principal) -> Reply<Option<Limit>> {
        let Shared { rules, usage_counters, .. } = &*self.shared;
        Reply::ready(Ok(usage_counters.reached_limit(principal, 0, &rules.limits)))
    }

    fn eviction_sample(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
        from: SessionId,
    ) -> Reply<EvictionSample> {
        let (mut sample, ids) = self.shared.usage_counters.eviction_sample(requester, of, from);
        for (id, held_by_principal) in ids {
            let shard = self.shared.shards.of(&id);
            let Some(stored) = shard.sessions.get(&id).filter(|stored| stored.session.is_open()) else {
                continue;
            };
            let (principal, last_use) =
                (stored.session.facts().principal.clone(), stored.session.meta().last_use());
            sample.sessions.push(SampledSession { id, principal, last_use, held_by_principal });
        }
        Reply::ready(Ok(sample))
    }

    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome> {
        Reply::ready(Ok(self.apply_now(session, command, now)))
    }

    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read> {
        let shard = self.shared.shards.of(&session);
        let read = shard.sessions.get(&session).map(|stored| stored.session.read(stream, after, budget));
        Reply::ready(Ok(read.unwrap_or(Read::NoSession)))
    }

    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>> {
        let shard = self.shared.shards.of(&session);
        let stored = shard.sessions.get(&session).filter(|stored| stored.session.is_open());
        Reply::ready(Ok(stored.map(|stored| Arc::clone(stored.session.facts()))))
    }

    fn holdings(&self, session: SessionId, node: NodeId) -> Reply<Holdings> {
        let shard = self.shared.shards.of(&session);
        let stored = shard.sessions.get(&session);
        Reply::ready(Ok(stored.map_or(Holdings::NoSession, |stored| stored.session.held_by(node))))
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
        Reply::ready(Ok(self.is_node_alive(node)))
    }

    /// Reaps nodes that have left. A node cannot die otherwise: the sessions end with its process.
    fn reap_dead_nodes(&self, now: Time) -> Reply<usize> {
        let dead: Vec<NodeId> =
            lock(&self.shared.nodes).iter().filter(|(_, alive)| !**alive).map(|(node, _)| *node).collect();
        let reaped =
            dead.iter().filter(|node| self.fail_node(**node, now, |facts| self.signal_sink.successor(facts)));
        Reply::ready(Ok(reaped.count()))
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        lock(&self.shared.nodes).insert(node, false);
        self.fail_node(node, now, |_| Successor::Reaper);
        Reply::ready(Ok(()))
    }

    fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.signal_sink.set(subscriber);
    }

    fn ping(&self) -> Reply<()> {
        Reply::ready(Ok(()))
    }

    fn usage(&self) -> Reply<Usage> {
        let usage_counters = &self.shared.usage_counters;
        Reply::ready(Ok::<_, StoreError>(Usage {
            sessions: usage_counters.sessions(),
            bytes: usage_counters.bytes(),
        }))
    }
}
