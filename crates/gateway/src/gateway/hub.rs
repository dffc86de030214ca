//! One store for all endpoints. A store tells one node of its changes; the hub tells each endpoint what concerns it.

use std::sync::{Arc, PoisonError, RwLock};

use steadfast_engine::{Facts, Rules, SessionId, StreamNo, Time};
use steadfast_session::{Command, NodeId, Outcome, Read};
use steadfast_store::{Opened, Reply, Signal, Store, Subscriber, Usage};

use super::namespace::Namespace;

/// The store, and who listens to it.
pub(crate) struct Hub {
    store: Arc<dyn Store>,
    ears: Arc<Ears>,
}

impl Hub {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let ears = Arc::new(Ears::default());
        let all: Arc<Ears> = Arc::clone(&ears);
        store.subscribe(all);
        Self { store, ears }
    }

    /// The store as one endpoint sees it.
    pub(crate) fn view(&self, namespace: Namespace) -> Arc<dyn Store> {
        Arc::new(View { store: Arc::clone(&self.store), ears: Arc::clone(&self.ears), namespace })
    }
}

/// Everybody who wants to hear of changes. As many as there are endpoints.
///
/// The list is replaced and never changed: whoever is told something may be the last to know an engine, and with the engine
/// goes its place in this list.
#[derive(Default)]
struct Ears(RwLock<Arc<Vec<Ear>>>);

impl Ears {
    fn all(&self) -> Arc<Vec<Ear>> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Ear>)) {
        let mut ears = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Vec::clone(&ears);
        change(&mut next);
        let before = std::mem::replace(&mut *ears, Arc::new(next));
        drop(ears);
        drop(before);
    }
}

#[derive(Clone)]
struct Ear {
    namespace: Namespace,
    subscriber: Arc<dyn Subscriber>,
}

impl Subscriber for Ears {
    fn signal(&self, signal: Signal<'_>) {
        let ears = self.all();
        match signal {
            // A node that does not serve the session finds that out at once.
            Signal::News(news) => ears.iter().for_each(|ear| ear.subscriber.signal(Signal::News(news))),
            Signal::Lifecycle { facts, event } => {
                for ear in ears.iter().filter(|ear| ear.namespace.has(&facts.principal)) {
                    ear.subscriber.signal(Signal::Lifecycle { facts, event });
                }
            }
        }
    }
}

/// Gone with the engine that has it.
struct View {
    store: Arc<dyn Store>,
    ears: Arc<Ears>,
    namespace: Namespace,
}

impl Drop for View {
    fn drop(&mut self) {
        self.ears.change(|ears| ears.retain(|ear| !ear.namespace.is_same_as(&self.namespace)));
    }
}

impl Store for View {
    fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        let namespace = self.namespace.clone();
        self.ears.change(|ears| ears.push(Ear { namespace, subscriber }));
    }

    fn rules(&self) -> &Rules {
        self.store.rules()
    }

    fn open(&self, facts: Facts) -> Reply<Opened> {
        self.store.open(facts)
    }

    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome> {
        self.store.apply(session, command, now)
    }

    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read> {
        self.store.read(session, stream, after, budget)
    }

    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>> {
        self.store.facts(session)
    }

    fn sweep(&self, now: Time, batch: usize) -> Reply<usize> {
        self.store.sweep(now, batch)
    }

    fn join(&self, node: NodeId, now: Time) -> Reply<()> {
        self.store.join(node, now)
    }

    fn bury_dead_nodes(&self, now: Time) -> Reply<usize> {
        self.store.bury_dead_nodes(now)
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        self.store.leave(node, now)
    }

    fn poll_interval(&self) -> Option<std::time::Duration> {
        self.store.poll_interval()
    }

    fn usage(&self) -> Reply<Usage> {
        self.store.usage()
    }
}
