//! A session as its backend sees it: a target for notifications and requests, and a key-value
//! store.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use steadfast_session::command::{Fence, GetState, PutState, Release, Released, StateGot, StatePut, Target};
use steadfast_session::{Class, CloseReason, Facts, Limit, StateEntry};
use steadfast_store::{StoreError, StoreExt};

use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::server_requests::ServerRequestHandle;
use crate::sessions::{LiveSession, SessionEventKind};

/// A handle to a session. It is cheap to clone, keeps the engine alive, and does not keep the
/// session alive. Each operation goes to the store.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    engine: Arc<Engine>,
    facts: Arc<Facts>,
}

/// A handle to a session that does not keep the engine alive.
#[derive(Clone, Debug)]
pub struct SessionRef {
    engine: Weak<Engine>,
    facts: Arc<Facts>,
}

impl SessionRef {
    pub fn upgrade(&self) -> Option<SessionHandle> {
        self.engine.upgrade().map(|engine| SessionHandle::new(engine, Arc::clone(&self.facts)))
    }
}

/// Why session state could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The entry does not have the expected version. Read `current` and decide again.
    #[error("the entry does not have the expected version")]
    Conflict { current: Option<StateEntry> },
    #[error("the limit `{0}` is reached")]
    OverLimit(Limit),
    #[error("no such session")]
    NoSession,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl SessionHandle {
    pub(crate) fn new(engine: Arc<Engine>, facts: Arc<Facts>) -> Self {
        Self { engine, facts }
    }

    pub fn facts(&self) -> &Arc<Facts> {
        &self.facts
    }

    /// Sends a notification that belongs to no call, on a standalone stream. The stream keeps it
    /// until a client reads it.
    pub fn notify(
        &self,
        class: Class,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static + use<> {
        self.engine.append(&self.live(), Target::Standalone, class, payload, None)
    }

    /// Sends a notification like [`SessionHandle::notify`], on behalf of a lease holder. Fails with
    /// [`Refusal::Fenced`] if the lease has changed hands.
    pub fn notify_fenced(
        &self,
        fence: Option<Fence>,
        class: Class,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static + use<> {
        self.engine.append(&self.live(), Target::Standalone, class, payload, fence)
    }

    /// Sends a server request that belongs to no call. The handle waits for the client's answer.
    /// `rest` is the request's JSON text from `"method"` on.
    pub fn send_request(&self, rest: Bytes) -> ServerRequestHandle {
        self.engine.send_request(&self.live(), Target::Standalone, rest, None)
    }

    /// Sends a server request like [`SessionHandle::send_request`], on behalf of a lease holder.
    /// The handle fails with [`Refusal::Fenced`] if the lease has changed hands.
    pub fn send_request_fenced(&self, fence: Option<Fence>, rest: Bytes) -> ServerRequestHandle {
        self.engine.send_request(&self.live(), Target::Standalone, rest, fence)
    }

    /// Tells the engine that other nodes may forward calls of this session to this node. The node
    /// then polls the store for such calls, even if it has no other work in the session.
    pub fn expect_forwarded_calls(&self) {
        self.live().set_expects_forwarded_calls(true);
    }

    /// Reverts [`SessionHandle::expect_forwarded_calls`].
    pub fn stop_expecting_forwarded_calls(&self) {
        self.live().set_expects_forwarded_calls(false);
    }

    /// Reads one entry of session state.
    pub async fn get(&self, key: &str) -> Result<Option<StateEntry>, StateError> {
        let get = GetState { key: key.into() };
        match self.engine.store().run(self.facts.id, get, self.engine.now()).await? {
            StateGot::SessionOpen(value) => Ok(value),
            StateGot::SessionClosed(_) | StateGot::NoSession => Err(StateError::NoSession),
        }
    }

    /// Reads one entry of the state of a session that has ended. The store keeps it for a while.
    /// Fails with [`StateError::NoSession`] if the session is open or the state is gone.
    pub async fn get_after_close(&self, key: &str) -> Result<Option<StateEntry>, StateError> {
        let get = GetState { key: key.into() };
        match self.engine.store().run(self.facts.id, get, self.engine.now()).await? {
            StateGot::SessionClosed(value) => Ok(value),
            StateGot::SessionOpen(_) | StateGot::NoSession => Err(StateError::NoSession),
        }
    }

    /// Writes one entry of session state if it has the expected version (`None`: the entry does not
    /// exist). A value of `None` deletes the entry. Returns the new version.
    pub async fn put(
        &self,
        key: &str,
        expected: Option<u64>,
        value: Option<Bytes>,
    ) -> Result<Option<u64>, StateError> {
        let put = PutState { key: key.into(), expected, value };
        match self.engine.store().run(self.facts.id, put, self.engine.now()).await? {
            StatePut::Put { version } => Ok(version),
            StatePut::Conflict { current } => Err(StateError::Conflict { current }),
            StatePut::OverLimit(limit) => Err(StateError::OverLimit(limit)),
            StatePut::NoSession => Err(StateError::NoSession),
        }
    }

    /// Deletes a lease, which is an entry of session state. Returns false and keeps the lease if
    /// this node has calls in flight under it, including calls that are still queued.
    pub async fn release_lease(&self, fence: Fence) -> Result<bool, StateError> {
        let release = Release { node: self.engine.node(), fence };
        match self.engine.store().run(self.facts.id, release, self.engine.now()).await? {
            // `Fenced`: another node holds the lease already.
            Released::Released | Released::Fenced => Ok(true),
            Released::Busy => Ok(false),
            Released::NoSession => Err(StateError::NoSession),
        }
    }

    /// Ends the session. Each of its calls gets an error as its answer.
    pub async fn close(&self) -> Result<(), Refusal> {
        self.engine.close(&self.live(), CloseReason::ServerEnded).await
    }

    /// Returns a value that the backend derives from the session's facts. It is made once and
    /// cached while this node has work in the session. If values of several types are requested,
    /// only the first type is cached.
    pub fn cached<T: Send + Sync + 'static>(&self, make: impl FnOnce(&Facts) -> T) -> Arc<T> {
        self.live().cached(make)
    }

    /// Returns a handle to the same session that does not keep the engine alive.
    pub fn downgrade(&self) -> SessionRef {
        SessionRef { engine: Arc::downgrade(&self.engine), facts: Arc::clone(&self.facts) }
    }

    /// Tells lifecycle listeners that the upstream server had lost its session and that the backend
    /// has initialized a new one.
    pub fn report_failover(&self) {
        self.engine.listeners.report(&self.facts, SessionEventKind::FailedOver);
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn live(&self) -> Arc<LiveSession> {
        self.engine.sessions.get_or_create(&self.facts).0
    }
}
