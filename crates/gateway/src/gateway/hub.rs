//! One store for all endpoints. A store tells one node of its changes; the hub tells each endpoint what concerns it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use steadfast_engine::{Facts, Rules, SessionId, StreamNo, Time};
use steadfast_session::command::Heir;
use steadfast_session::{Command, Holdings, Lifecycle, Limit, NodeId, Outcome, Principal, Read};
use steadfast_store::{Opened, Reply, Signal, Store, StoreError, Subscriber, Usage};
use tokio::time::Instant;

use super::foreign::Foreign;
use super::namespace::Namespace;
use crate::admin::{Event, Metrics, Noted, StoreMeter};

/// The store, and who listens to it.
pub(crate) struct Hub {
    store: Arc<dyn Store>,
    ears: Arc<Ears>,
    metrics: Option<Arc<Metrics>>,
}

impl Hub {
    pub(crate) fn new(store: Arc<dyn Store>, metrics: Option<Arc<Metrics>>) -> Self {
        let ears = Ears {
            list: RwLock::default(),
            are_all: AtomicBool::new(false),
            metrics: metrics.clone(),
            foreign: Foreign::default(),
        };
        let ears = Arc::new(ears);
        let all: Arc<Ears> = Arc::clone(&ears);
        store.subscribe(all);
        Self { store, ears, metrics }
    }

    /// The store as one endpoint sees it.
    pub(crate) fn view(&self, namespace: Namespace) -> Arc<dyn Store> {
        let meter =
            self.metrics.as_ref().map(|metrics| StoreMeter::new(Arc::clone(metrics), namespace.path()));
        Arc::new(View { store: Arc::clone(&self.store), ears: Arc::clone(&self.ears), namespace, meter })
    }

    /// Every endpoint that there is to be has its view.
    pub(crate) fn is_complete(&self) {
        self.ears.are_all.store(true, Ordering::SeqCst);
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

/// Everybody who wants to hear of changes. As many as there are endpoints.
///
/// The list is replaced and never changed: whoever is told something may be the last to know an engine, and with the engine
/// goes its place in this list.
struct Ears {
    list: RwLock<Arc<Vec<Ear>>>,
    /// Until then, who is not on the list may come.
    are_all: AtomicBool,
    metrics: Option<Arc<Metrics>>,
    foreign: Foreign,
}

impl Ears {
    fn all(&self) -> Arc<Vec<Ear>> {
        Arc::clone(&self.list.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Ear>)) {
        let mut ears = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let mut next = Vec::clone(&ears);
        change(&mut next);
        let before = std::mem::replace(&mut *ears, Arc::new(next));
        drop(ears);
        drop(before);
    }
}

impl Ears {
    /// A client has asked one endpoint for a session. Warns if it is of an endpoint that this
    /// gateway does not serve.
    fn look_at(&self, found: &Result<Option<Arc<Facts>>, StoreError>, here: &Namespace) {
        let Ok(Some(facts)) = found else { return };
        if !here.has(&facts.principal) && !self.all().iter().any(|ear| ear.namespace.has(&facts.principal)) {
            self.foreign.warn_of(facts, here);
        }
    }

    /// Once, however many hear of it.
    fn count(&self, ears: &[Ear], facts: &Facts, event: Lifecycle) {
        let Some(metrics) = &self.metrics else { return };
        let Some(ear) = ears.iter().find(|ear| ear.namespace.has(&facts.principal)) else { return };
        let event = match event {
            Lifecycle::Opened => "opened",
            Lifecycle::Detached => "detached",
            Lifecycle::Reattached => "reattached",
            Lifecycle::Closed(reason) => reason.as_str(),
        };
        let endpoint = ear.namespace.path().to_owned();
        metrics.session_events.get_or_create(&Event { endpoint, event }).inc();
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
                self.count(&ears, facts, event);
                for ear in ears.iter().filter(|ear| ear.namespace.has(&facts.principal)) {
                    ear.subscriber.signal(Signal::Lifecycle { facts, event });
                }
            }
        }
    }

    /// The node of the endpoint that the session is of, whichever of them buries.
    fn heir(&self, facts: &Facts) -> Heir {
        let ears = self.all();
        // If two follow each other with one identity, the first is about to go.
        match ears.iter().rfind(|ear| ear.namespace.has(&facts.principal)) {
            Some(ear) => ear.subscriber.heir(facts),
            None if self.are_all.load(Ordering::SeqCst) => self.foreign.heir(facts.id, Instant::now()),
            // The first endpoint that starts buries what the last run of all of them has left.
            None => Heir::Later,
        }
    }
}

/// Gone with the engine that has it.
struct View {
    store: Arc<dyn Store>,
    ears: Arc<Ears>,
    namespace: Namespace,
    meter: Option<StoreMeter>,
}

impl View {
    /// Does something with the store, and has it counted where somebody looks.
    fn measured<T: Send + Unpin + 'static>(
        &self,
        operation: &'static str,
        reply: impl FnOnce(&dyn Store) -> Reply<T>,
        then: impl FnOnce(&StoreMeter, &T) + Send + 'static,
    ) -> Reply<T> {
        match &self.meter {
            None => reply(&*self.store),
            Some(meter) => {
                let begun = Instant::now();
                meter.watch(operation, begun, reply(&*self.store), then)
            }
        }
    }
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
        self.measured("open", |store| store.open(facts), |_, _| {})
    }

    fn no_room_for(&self, principal: &Principal) -> Reply<Option<Limit>> {
        self.measured("room", |store| store.no_room_for(principal), |_, _| {})
    }

    fn apply(&self, session: SessionId, command: Command, now: Time) -> Reply<Outcome> {
        let noted = if self.meter.is_some() { Noted::of(&command) } else { Noted::Other };
        let done = move |meter: &StoreMeter, outcome: &Outcome| meter.applied(noted, outcome);
        self.measured("apply", |store| store.apply(session, command, now), done)
    }

    fn read(&self, session: SessionId, stream: StreamNo, after: u64, budget: u64) -> Reply<Read> {
        self.measured("read", |store| store.read(session, stream, after, budget), |_, _| {})
    }

    fn facts(&self, session: SessionId) -> Reply<Option<Arc<Facts>>> {
        let reply = self.measured("facts", |store| store.facts(session), |_, _| {});
        match reply {
            Reply::Ready(Some(found)) => {
                self.ears.look_at(&found, &self.namespace);
                Reply::ready(found)
            }
            later => {
                let (ears, namespace) = (Arc::clone(&self.ears), self.namespace.clone());
                Reply::later(async move {
                    let found = later.await;
                    ears.look_at(&found, &namespace);
                    found
                })
            }
        }
    }

    fn held(&self, session: SessionId, node: NodeId) -> Reply<Holdings> {
        self.measured("held", |store| store.held(session, node), |_, _| {})
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

    fn bury_dead_nodes(&self, now: Time) -> Reply<usize> {
        self.ears.foreign.looks_for_dead_nodes();
        self.store.bury_dead_nodes(now)
    }

    fn leave(&self, node: NodeId, now: Time) -> Reply<()> {
        self.store.leave(node, now)
    }

    fn poll_interval(&self) -> Option<std::time::Duration> {
        self.store.poll_interval()
    }

    fn changes_elsewhere(&self) -> Reply<Option<u64>> {
        self.store.changes_elsewhere()
    }

    fn answers(&self) -> Reply<()> {
        self.store.answers()
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
    struct Notes(Mutex<Vec<String>>);

    impl Subscriber for Notes {
        fn signal(&self, signal: Signal<'_>) {
            if let Signal::Lifecycle { facts, event } = signal {
                let note = format!("{} {event:?}", facts.principal.as_str());
                self.0.lock().expect("nobody panics here").push(note);
            }
        }

        fn heir(&self, _facts: &Facts) -> Heir {
            Heir::Nobody
        }
    }

    fn facts(id: u8, principal: &str) -> Facts {
        let (id, principal) = (SessionId::from_random([id; 24]), Principal::new(principal));
        let (initialize, opened_at) = (bytes::Bytes::new(), Time(0));
        Facts { id, principal, revision: Revision::V2025_11_25, initialize, opened_at }
    }

    #[tokio::test]
    async fn each_endpoint_hears_of_its_own_sessions_for_as_long_as_it_lives() {
        let hub = Hub::new(Arc::new(MemoryStore::new(Rules::default())), None);
        let (a, b) = (Arc::<Notes>::default(), Arc::<Notes>::default());
        // One begins like the other.
        let views = [("/a", &a), ("/a/b", &b)].map(|(path, notes)| {
            let view = hub.view(Namespace::new(path, path));
            let notes: Arc<Notes> = Arc::clone(notes);
            view.subscribe(notes);
            view
        });
        let [in_a, in_b] = &views;
        in_a.open(facts(1, "/a x")).await.expect("memory");
        in_b.open(facts(2, "/a/b y")).await.expect("memory");
        in_b.open(facts(3, "")).await.expect("memory");
        let heard = |notes: &Notes| notes.0.lock().expect("nobody panics here").clone();
        assert_eq!(
            (heard(&a), heard(&b)),
            (vec!["/a x Opened".to_owned()], vec!["/a/b y Opened".to_owned()])
        );
        drop(views);
        hub.store().open(facts(4, "/a z")).await.expect("memory");
        assert_eq!(heard(&a).len(), 1, "an endpoint that is gone hears nothing");
        assert_eq!(hub.ears.all().len(), 0, "and is forgotten");
    }

    struct Inherits(NodeId);

    impl Subscriber for Inherits {
        fn signal(&self, _signal: Signal<'_>) {}

        fn heir(&self, _facts: &Facts) -> Heir {
            Heir::Node(self.0)
        }
    }

    /// Endpoints share a process, and each runs the calls of its own sessions alone.
    #[tokio::test]
    async fn what_a_dead_process_left_goes_to_the_endpoint_that_it_is_of() {
        let hub = Hub::new(Arc::new(MemoryStore::new(Rules::default())), None);
        let views = [("/a", 1), ("/a/b", 2)].map(|(path, node)| {
            let view = hub.view(Namespace::new(path, path));
            view.subscribe(Arc::new(Inherits(NodeId(node))));
            view
        });
        let heir = |principal| hub.ears.heir(&facts(1, principal));
        assert_eq!((heir("/a x"), heir("/a/b x")), (Heir::Node(NodeId(1)), Heir::Node(NodeId(2))));
        assert_eq!(heir("/c x"), Heir::Later, "that endpoint may be about to start");
        hub.is_complete();
        assert_eq!(heir("/c x"), Heir::Later, "another gateway may serve that endpoint");
        drop(views);
    }
}
