//! The [`Engine`]: one node. This file has its state, its start and its accessors; the folders of
//! this crate add its operations.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};

use steadfast_session::{NodeId, Time};
use steadfast_store::{Store, StoreError};

use crate::backend::Backend;
use crate::calls::Heartbeats;
use crate::clock::Clock;
use crate::delivery::Signals;
use crate::entropy::Entropy;
use crate::options::Options;
use crate::sessions::{
    LifecycleListener, LifecycleListeners, LiveSession, PendingInitialize, SessionHandle, SessionRegistry,
};
use crate::shutdown::Admission;
use crate::stateless::Exchanges;
use crate::upkeep::{EndedSessionCheck, PendingHints, ReaderChecks, RoundRobin};

/// One node: runs calls, serves connections, and sends commands to the store.
///
/// An engine holds no session state that cannot be rebuilt from the store. It is always used
/// through its `Arc`, which [`Engine::start`] returns.
pub struct Engine {
    store: Arc<dyn Store>,
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    options: Options,
    node: NodeId,
    pub(crate) sessions: SessionRegistry,
    pub(crate) listeners: LifecycleListeners,
    pub(crate) admission: Admission,
    pub(crate) pending_initialize: PendingInitialize,
    /// Client notifications that are queued for the backend or being processed by it.
    pub(crate) notifications_in_flight: Arc<AtomicUsize>,
    /// The next attempt number. Node and attempt name a command that may have to be repeated.
    pub(crate) attempts: AtomicU64,
    pub(crate) exchanges: Exchanges,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) pending_hints: PendingHints,
    /// The order in which marked sessions are reconciled.
    pub(crate) reconcile_order: RoundRobin,
    pub(crate) ended_sessions: EndedSessionCheck,
    pub(crate) reader_checks: ReaderChecks,
    /// True while `Backend::readers_present` runs, so that calls of it do not overlap.
    pub(crate) is_reporting_readers: AtomicBool,
    pub(crate) runtime: tokio::runtime::Handle,
    me: Weak<Self>,
}

impl Engine {
    /// Starts a node: registers it in the store, reaps dead nodes, and starts the sweeper and the
    /// store poll. Fails if the store cannot register the node.
    pub async fn start(
        store: Arc<dyn Store>,
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        options: Options,
        listeners: Vec<Box<dyn LifecycleListener>>,
    ) -> Result<Arc<Self>, StoreError> {
        let node = entropy.node_id();
        let listeners = LifecycleListeners::start(listeners, options.listener_backlog);
        let engine = Arc::new_cyclic(|me: &Weak<Self>| Self {
            store,
            backend,
            clock,
            entropy,
            options,
            node,
            sessions: SessionRegistry::default(),
            listeners,
            admission: Admission::default(),
            pending_initialize: PendingInitialize::default(),
            notifications_in_flight: Arc::new(AtomicUsize::new(0)),
            attempts: AtomicU64::new(0),
            exchanges: Exchanges::default(),
            heartbeats: Heartbeats::default(),
            pending_hints: PendingHints::default(),
            reconcile_order: RoundRobin::default(),
            ended_sessions: EndedSessionCheck::default(),
            reader_checks: ReaderChecks::default(),
            is_reporting_readers: AtomicBool::new(false),
            runtime: tokio::runtime::Handle::current(),
            me: me.clone(),
        });
        engine.store.subscribe(Arc::new(Signals::new(&engine)));
        engine.store.join(node, engine.now()).await?;
        if let Err(error) = engine.reap(engine.now()).await {
            // The node starts anyway: one shard of the store may be down while the others can be
            // served. The sweeper reaps again.
            tracing::warn!(%error, "could not reap dead nodes at start; the sweeper will retry");
        }
        engine.start_sweeper();
        engine.start_store_poll();
        Ok(engine)
    }

    pub fn session_handle(&self, session: &Arc<LiveSession>) -> SessionHandle {
        SessionHandle::new(self.arc(), Arc::clone(session.facts()))
    }

    /// Returns true if other nodes may use the same store. They can then change the sessions that
    /// this node serves.
    pub fn shares_store(&self) -> bool {
        self.store.poll_interval().is_some()
    }

    pub fn node(&self) -> NodeId {
        self.node
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn entropy(&self) -> &dyn Entropy {
        &*self.entropy
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    pub fn is_draining(&self) -> bool {
        self.admission.is_closed()
    }

    pub(crate) fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("an engine is only ever used through its Arc")
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("node", &self.node).finish_non_exhaustive()
    }
}
