//! Sessions in this process's memory: nothing to install, nothing that survives.

mod tally;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_session::command::{FailNode, Sweep, Swept};
use steadfast_session::{
    Changes, Command, Facts, Lifecycle, NodeId, Outcome, Read, Rules, Session, SessionId, StreamNo, Time,
};

use crate::error::StoreError;
use crate::reply::Reply;
use crate::sharded::{SessionMap, Sharded};
use crate::signal::{Outlet, Subscriber};
use crate::store::{Opened, Store, Usage, no_session};
use tally::Tally;

/// The store for tests, for trying things out, and for servers whose sessions may end with them.
#[derive(Debug)]
pub struct MemoryStore {
    rules: Rules,
    shards: Sharded<Shard>,
    tally: Mutex<Tally>,
    outlet: Outlet,
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
}

impl MemoryStore {
    pub fn new(rules: Rules) -> Self {
        Self { rules, shards: Sharded::default(), tally: Mutex::default(), outlet: Outlet::default() }
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_now(&self, facts: Facts) -> Opened {
        let limits = &self.rules.limits;
        let facts = Arc::new(facts);
        let mut shard = self.shards.of(&facts.id);
        if shard.sessions.contains_key(&facts.id) {
            return Opened::Taken;
        }
        if let Err(limit) = self.tally().admit(&facts.principal, limits) {
            return Opened::OverLimit(limit);
        }
        let session = Session::open(Arc::clone(&facts));
        let due = session.next_check(&self.rules);
        let Shard { sessions, agenda, changes } = &mut *shard;
        agenda.extend(due.map(|due| (due, facts.id)));
        sessions.insert(facts.id, Slot { session, due });
        changes.clear();
        changes.lifecycle.push(Lifecycle::Opened);
        self.outlet.publish(&facts, changes);
        Opened::Opened(facts)
    }

    fn apply_now(&self, id: SessionId, command: Command, now: Time) -> Outcome {
        let mut shard = self.shards.of(&id);
        self.apply_in(&mut shard, id, command, now)
    }

    fn apply_in(&self, shard: &mut Shard, id: SessionId, command: Command, now: Time) -> Outcome {
        let Shard { sessions, agenda, changes } = shard;
        let Some(slot) = sessions.get_mut(&id) else { return no_session(&command) };
        changes.clear();
        let outcome = slot.session.apply(command, now, &self.rules, changes);
        if changes.lifecycle.iter().any(|event| matches!(event, Lifecycle::Closed(_))) {
            self.tally().release(&slot.session.facts().principal);
        }
        self.outlet.publish(slot.session.facts(), changes);
        // Earlier than agreed: look earlier. Later than agreed: the sweep will see, so that a busy session does
        // not move its entry with each request.
        let due = slot.session.next_check(&self.rules);
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
                    sessions.remove(&id);
                }
            }
        }
        due.len()
    }
}

fn reschedule(agenda: &mut BTreeSet<(Time, SessionId)>, slot: &mut Slot, id: SessionId, due: Option<Time>) {
    if let Some(agreed) = slot.due {
        agenda.remove(&(agreed, id));
    }
    agenda.extend(due.map(|due| (due, id)));
    slot.due = due;
}

impl Store for MemoryStore {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn open(&self, facts: Facts) -> Reply<Opened> {
        Reply::ready(Ok(self.open_now(facts)))
    }

    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome> {
        Reply::ready(Ok(self.apply_now(session, command, now)))
    }

    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read> {
        let shard = self.shards.of(&session);
        let read = shard.sessions.get(&session).map(|slot| slot.session.read(stream, after, budget));
        Reply::ready(Ok(read.unwrap_or(Read::NoSession)))
    }

    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>> {
        let shard = self.shards.of(&session);
        let slot = shard.sessions.get(&session).filter(|slot| slot.session.is_open());
        Reply::ready(Ok(slot.map(|slot| Arc::clone(slot.session.facts()))))
    }

    fn sweep(&self, now: Time, batch: usize) -> Reply<usize> {
        let mut swept = 0;
        for mut shard in self.shards.each() {
            if swept >= batch {
                break;
            }
            swept += self.sweep_shard(&mut shard, now, batch - swept);
        }
        Reply::ready(Ok(swept))
    }

    fn join(&self, _node: NodeId, _now: Time) -> Reply<()> {
        Reply::ready(Ok(()))
    }

    /// Sessions in memory die with their only node, so no node can be found dead.
    fn bury_dead_nodes(&self, _now: Time) -> Reply<usize> {
        Reply::ready(Ok(0))
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        for mut shard in self.shards.each() {
            let ids: Vec<SessionId> = shard.sessions.keys().copied().collect();
            for id in ids {
                let _ = self.apply_in(&mut shard, id, Command::FailNode(FailNode { node }), now);
            }
        }
        Reply::ready(Ok(()))
    }

    fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.outlet.set(subscriber);
    }

    fn usage(&self) -> Reply<Usage> {
        let bytes = self
            .shards
            .each()
            .map(|shard| shard.sessions.values().map(|slot| slot.session.bytes()).sum::<u64>())
            .sum();
        Reply::ready(Ok::<_, StoreError>(Usage { sessions: self.tally().sessions(), bytes }))
    }
}
