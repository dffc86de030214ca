//! The store that all endpoints share. A store has one subscriber; this module passes each signal
//! on to the endpoints that it concerns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use steadfast_engine::{Facts, Rules, SessionId, StreamNo, Time};
use steadfast_session::command::Successor;
use steadfast_session::{Command, Holdings, Lifecycle, Limit, NodeId, Outcome, Principal, Read};
use steadfast_store::{EvictionSample, Opened, Reply, Signal, Store, StoreError, Subscriber, Usage};
use tokio::time::Instant;

use super::foreign_sessions::ForeignSessions;
use super::namespace::Namespace;
use crate::admin::{CommandKind, Event, Metrics, StoreMetrics};

pub(crate) struct SharedStore {
    store: Arc<dyn Store>,
    subscribers: Arc<Subscribers>,
    metrics: Option<Arc<Metrics>>,
}

impl SharedStore {
    pub(crate) fn new(store: Arc<dyn Store>, metrics: Option<Arc<Metrics>>) -> Self {
        let subscribers = Arc::new(Subscribers {
            list: RwLock::default(),
            are_complete: AtomicBool::new(false),
            metrics: metrics.clone(),
            foreign: ForeignSessions::default(),
        });
        let subscriber: Arc<Subscribers> = Arc::clone(&subscribers);
        store.subscribe(subscriber);
        Self { store, subscribers, metrics }
    }

    /// Returns the store for the engine of one endpoint. It unsubscribes the endpoint when it is
    /// dropped.
    pub(crate) fn for_endpoint(&self, namespace: Namespace) -> Arc<dyn Store> {
        let metrics =
            self.metrics.as_ref().map(|metrics| StoreMetrics::new(Arc::clone(metrics), namespace.path()));
        let (store, subscribers) = (Arc::clone(&self.store), Arc::clone(&self.subscribers));
        Arc::new(EndpointStore { store, subscribers, namespace, metrics })
    }

    /// From now on a session without a subscriber belongs to another gateway.
    pub(crate) fn all_endpoints_started(&self) {
        self.subscribers.are_complete.store(true, Ordering::SeqCst);
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

/// The endpoints, and what each does with signals.
///
/// A change replaces the list. A signal that is delivered may drop the last reference to an engine,
/// whose destructor changes the list, so no lock is held during delivery.
struct Subscribers {
    list: RwLock<Arc<Vec<EndpointSubscriber>>>,
    /// False until every endpoint of the configuration has started.
    are_complete: AtomicBool,
    metrics: Option<Arc<Metrics>>,
    foreign: ForeignSessions,
}

#[derive(Clone)]
struct EndpointSubscriber {
    namespace: Namespace,
    subscriber: Arc<dyn Subscriber>,
}

impl Subscribers {
    fn all(&self) -> Arc<Vec<EndpointSubscriber>> {
        Arc::clone(&self.list.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<EndpointSubscriber>)) {
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let mut new = Vec::clone(&list);
        change(&mut new);
        let old = std::mem::replace(&mut *list, Arc::new(new));
        drop(list);
        drop(old);
    }

    /// Logs a warning if a client has asked the endpoint `here` for a session that no endpoint of
    /// this gateway serves.
    fn warn_if_foreign(&self, found: &Result<Option<Arc<Facts>>, StoreError>, here: &Namespace) {
        let Ok(Some(facts)) = found else { return };
        let is_served = |each: &EndpointSubscriber| each.namespace.contains(&facts.principal);
        if !here.contains(&facts.principal) && !self.all().iter().any(is_served) {
            self.foreign.warn(facts, here);
        }
    }

    /// Counts an event once, however many subscribers it has. Records that are not sessions of
    /// clients do not count.
    fn count(&self, list: &[EndpointSubscriber], facts: &Facts, event: Lifecycle) {
        let Some(metrics) = self.metrics.as_ref().filter(|_| !facts.revision.is_modern()) else { return };
        let Some(each) = list.iter().find(|each| each.namespace.contains(&facts.principal)) else { return };
        let event = match event {
            Lifecycle::Opened => "opened",
            Lifecycle::Detached => "detached",
            Lifecycle::Reattached => "reattached",
            Lifecycle::Closed(reason) => reason.as_str(),
        };
        let endpoint = each.namespace.path().to_owned();
        metrics.session_events.get_or_create(&Event { endpoint, event }).inc();
    }
}

impl Subscriber for Subscribers {
    fn signal(&self, signal: Signal<'_>) {
        let list = self.all();
        match signal {
            // Every endpoint gets it, because an endpoint that does not serve the session ignores
            // it at once.
            Signal::SessionUpdate(news) => {
                list.iter().for_each(|each| each.subscriber.signal(Signal::SessionUpdate(news)))
            }
            Signal::Lifecycle { facts, event } => {
                self.count(&list, facts, event);
                for each in list.iter().filter(|each| each.namespace.contains(&facts.principal)) {
                    each.subscriber.signal(Signal::Lifecycle { facts, event });
                }
            }
        }
    }

    /// Returns the node of the endpoint that serves the session, whichever endpoint reaps the dead
    /// node.
    fn successor(&self, facts: &Facts) -> Successor {
        let list = self.all();
        // After a reload two endpoints may have the same identity. The first of them is being
        // drained.
        match list.iter().rfind(|each| each.namespace.contains(&facts.principal)) {
            Some(each) => each.subscriber.successor(facts),
            None if self.are_complete.load(Ordering::SeqCst) => {
                self.foreign.successor(facts.id, Instant::now())
            }
            // The first endpoint that starts reaps the nodes of all endpoints of the previous
            // process.
            None => Successor::Reaper,
        }
    }
}

struct EndpointStore {
    store: Arc<dyn Store>,
    subscribers: Arc<Subscribers>,
    namespace: Namespace,
    metrics: Option<StoreMetrics>,
}

impl EndpointStore {
    /// Runs an operation, and counts it if metrics are collected.
    fn measured<T: Send + Unpin + 'static>(
        &self,
        operation: &'static str,
        run: impl FnOnce(&dyn Store) -> Reply<T>,
        on_success: impl FnOnce(&StoreMetrics, &T) + Send + 'static,
    ) -> Reply<T> {
        match &self.metrics {
            None => run(&*self.store),
            Some(metrics) => {
                let started = Instant::now();
                metrics.observe(operation, started, run(&*self.store), on_success)
            }
        }
    }
}

impl Drop for EndpointStore {
    fn drop(&mut self) {
        self.subscribers.change(|list| list.retain(|each| !each.namespace.is_same_as(&self.namespace)));
    }
}

impl Store for EndpointStore {
    fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        let namespace = self.namespace.clone();
        self.subscribers.change(|list| list.push(EndpointSubscriber { namespace, subscriber }));
    }

    fn rules(&self) -> &Rules {
        self.store.rules()
    }

    fn open(&self, facts: Facts) -> Reply<Opened> {
        self.measured("open", |store| store.open(facts), |metrics, opened| metrics.opened(opened))
    }

    fn reached_limit(&self, principal: &Principal) -> Reply<Option<Limit>> {
        self.measured("room", |store| store.reached_limit(principal), |_, _| {})
    }

    fn eviction_sample(
        &self,
        requester: &Principal,
        of: Option<&Principal>,
        from: SessionId,
    ) -> Reply<EvictionSample> {
        self.measured("eviction", |store| store.eviction_sample(requester, of, from), |_, _| {})
    }

    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome> {
        let metrics = self.metrics.as_ref();
        let kind = metrics.map_or(CommandKind::Other, |metrics| metrics.kind_of(session, &command));
        let count = move |metrics: &StoreMetrics, outcome: &Outcome| metrics.applied(kind, outcome);
        self.measured("apply", |store| store.apply(session, command, now), count)
    }

    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read> {
        self.measured("read", |store| store.read(session, stream, after, budget), |_, _| {})
    }

    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>> {
        let reply = self.measured("facts", |store| store.facts(session), |_, _| {});
        match reply {
            Reply::Ready(Some(found)) => {
                self.subscribers.warn_if_foreign(&found, &self.namespace);
                Reply::ready(found)
            }
            later => {
                let (subscribers, namespace) = (Arc::clone(&self.subscribers), self.namespace.clone());
                Reply::later(async move {
                    let found = later.await;
                    subscribers.warn_if_foreign(&found, &namespace);
                    found
                })
            }
        }
    }

    fn holdings(&self, session: SessionId, node: NodeId) -> Reply<Holdings> {
        self.measured("held", |store| store.holdings(session, node), |_, _| {})
    }

    fn sweep(&self, now: Time, batch: usize) -> Reply<usize> {
        self.measured("sweep", |store| store.sweep(now, batch), |_, _| {})
    }

    fn join(&self, node: NodeId, now: Time) -> Reply<()> {
        self.store.join(node, now)
    }

    fn is_alive(&self, node: NodeId) -> Reply<bool> {
        self.store.is_alive(node)
    }

    fn reap_dead_nodes(&self, now: Time) -> Reply<usize> {
        self.subscribers.foreign.sweep_started();
        self.store.reap_dead_nodes(now)
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        self.store.leave(node, now)
    }

    fn poll_interval(&self) -> Option<std::time::Duration> {
        self.store.poll_interval()
    }

    fn external_change_count(&self) -> Reply<Option<u64>> {
        self.store.external_change_count()
    }

    fn ping(&self) -> Reply<()> {
        self.store.ping()
    }

    fn usage(&self) -> Reply<Usage> {
        self.store.usage()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use steadfast::{Principal, Revision};
    use steadfast_store::MemoryStore;

    use super::*;

    #[derive(Default)]
    struct Recorder(Mutex<Vec<String>>);

    impl Subscriber for Recorder {
        fn signal(&self, signal: Signal<'_>) {
            if let Signal::Lifecycle { facts, event } = signal {
                let note = format!("{} {event:?}", facts.principal.as_str());
                self.0.lock().expect("not poisoned").push(note);
            }
        }

        fn successor(&self, _facts: &Facts) -> Successor {
            Successor::None
        }
    }

    fn facts(id: u8, principal: &str) -> Facts {
        let (id, principal) = (SessionId::from_random([id; 24]), Principal::new(principal));
        let (initialize, opened_at) = (bytes::Bytes::new(), Time(0));
        Facts { id, principal, revision: Revision::V2025_11_25, initialize, opened_at }
    }

    #[tokio::test]
    async fn each_endpoint_gets_signals_of_its_own_sessions_until_it_is_dropped() {
        let shared = SharedStore::new(Arc::new(MemoryStore::new(Rules::default())), None);
        let (a, b) = (Arc::<Recorder>::default(), Arc::<Recorder>::default());
        // One path is a prefix of the other.
        let stores = [("/a", &a), ("/a/b", &b)].map(|(path, recorder)| {
            let store = shared.for_endpoint(Namespace::new(path, path));
            let recorder: Arc<Recorder> = Arc::clone(recorder);
            store.subscribe(recorder);
            store
        });
        let [in_a, in_b] = &stores;
        in_a.open(facts(1, "/a x")).await.expect("memory");
        in_b.open(facts(2, "/a/b y")).await.expect("memory");
        in_b.open(facts(3, "")).await.expect("memory");
        let recorded = |recorder: &Recorder| recorder.0.lock().expect("not poisoned").clone();
        assert_eq!(
            (recorded(&a), recorded(&b)),
            (vec!["/a x Opened".to_owned()], vec!["/a/b y Opened".to_owned()])
        );
        drop(stores);
        shared.store().open(facts(4, "/a z")).await.expect("memory");
        assert_eq!(recorded(&a).len(), 1, "a dropped endpoint gets no signals");
        assert_eq!(shared.subscribers.all().len(), 0, "and is unsubscribed");
    }

    struct NamesNode(NodeId);

    impl Subscriber for NamesNode {
        fn signal(&self, _signal: Signal<'_>) {}

        fn successor(&self, _facts: &Facts) -> Successor {
            Successor::Node(self.0)
        }
    }

    /// Endpoints share a process, and each runs the calls of its own sessions only.
    #[tokio::test]
    async fn calls_of_a_dead_process_go_to_the_endpoint_of_their_session() {
        let shared = SharedStore::new(Arc::new(MemoryStore::new(Rules::default())), None);
        let stores = [("/a", 1), ("/a/b", 2)].map(|(path, node)| {
            let store = shared.for_endpoint(Namespace::new(path, path));
            store.subscribe(Arc::new(NamesNode(NodeId(node))));
            store
        });
        let successor = |principal| shared.subscribers.successor(&facts(1, principal));
        assert_eq!(
            (successor("/a x"), successor("/a/b x")),
            (Successor::Node(NodeId(1)), Successor::Node(NodeId(2)))
        );
        assert_eq!(successor("/c x"), Successor::Reaper, "that endpoint may be about to start");
        shared.all_endpoints_started();
        assert_eq!(successor("/c x"), Successor::Reaper, "another gateway may serve that endpoint");
        drop(stores);
    }
}
