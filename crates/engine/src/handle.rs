//! A session as its server sees it: something to notify, to keep state in, and to end.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use steadfast_session::command::{Fence, GetState, PutState, Release, Released, StateGot, StatePut, Target};
use steadfast_session::{Class, CloseReason, Facts, Limit, Value};
use steadfast_store::{StoreError, StoreExt};

use crate::asks::AskHandle;
use crate::engine::Engine;
use crate::listener::SessionEventKind;
use crate::live::LiveSession;
use crate::refusal::Refusal;

/// Refers to a session by name. Holding one does not keep the session alive and costs next to nothing; each use goes to
/// the store. It does keep the engine alive.
#[derive(Clone, Debug)]
pub struct SessionHandle {
    engine: Arc<Engine>,
    facts: Arc<Facts>,
}

/// Refers to a session of an engine that may be gone.
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
    /// Somebody else wrote first. Look at what is there and decide again.
    #[error("the entry was changed by somebody else")]
    Conflict { current: Option<Value> },
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

    /// Sends a notification that belongs to no call, on a standalone stream. It waits there if nobody listens.
    pub fn notify(
        &self,
        class: Class,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static + use<> {
        self.engine.append(&self.live(), Target::Standalone, class, payload, None)
    }

    /// The same for whoever holds a lease: [`Refusal::Fenced`] if somebody else does by now.
    pub fn notify_under(
        &self,
        fence: Option<Fence>,
        class: Class,
        payload: Bytes,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static + use<> {
        self.engine.append(&self.live(), Target::Standalone, class, payload, fence)
    }

    /// Sends a request that belongs to no call, and waits for the client's answer. `rest` is the request's JSON text from
    /// `"method"` on.
    pub fn ask(&self, rest: Bytes) -> AskHandle {
        self.engine.ask(&self.live(), Target::Standalone, rest, None)
    }

    /// The same for whoever holds a lease: [`Refusal::Fenced`] if somebody else does by now.
    pub fn ask_under(&self, fence: Option<Fence>, rest: Bytes) -> AskHandle {
        self.engine.ask(&self.live(), Target::Standalone, rest, fence)
    }

    /// Whether other nodes may give calls of this session to this one. Then this node looks for them while nothing else
    /// makes it look.
    pub fn expect_errands(&self, expects: bool) {
        self.live().expect_errands(expects);
    }

    /// Reads one entry of session state.
    pub async fn get(&self, key: &str) -> Result<Option<Value>, StateError> {
        let get = GetState { key: key.into() };
        match self.engine.store().run(self.facts.id, get, self.engine.now()).await? {
            StateGot::Got(value) => Ok(value),
            StateGot::Left(_) | StateGot::NoSession => Err(StateError::NoSession),
        }
    }

    /// What a session that has ended has left of an entry of its state. The store keeps it for a while.
    pub async fn left(&self, key: &str) -> Result<Option<Value>, StateError> {
        let get = GetState { key: key.into() };
        match self.engine.store().run(self.facts.id, get, self.engine.now()).await? {
            StateGot::Left(value) => Ok(value),
            StateGot::Got(_) | StateGot::NoSession => Err(StateError::NoSession),
        }
    }

    /// Writes one entry of session state if it still has the version that the writer saw (`None`: no entry).
    /// A value of `None` deletes. Gives the new version.
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

    /// Gives up a lease, an entry of session state, unless this node has calls in flight that it may be running or is about to.
    /// Gives whether it has not.
    pub async fn release(&self, fence: Fence) -> Result<bool, StateError> {
        let release = Release { node: self.engine.node(), fence };
        match self.engine.store().run(self.facts.id, release, self.engine.now()).await? {
            // If it is somebody else's by now, that does as well.
            Released::Released | Released::Fenced => Ok(true),
            Released::Busy => Ok(false),
            Released::NoSession => Err(StateError::NoSession),
        }
    }

    /// Ends the session. Each of its calls gets an explicit error.
    pub async fn close(&self) -> Result<(), Refusal> {
        self.engine.close(&self.live(), CloseReason::ServerEnded).await
    }

    /// Something that is made once for the session while this node has anything to do with it.
    pub fn keepsake<T: Send + Sync + 'static>(&self, make: impl FnOnce(&Facts) -> T) -> Arc<T> {
        self.live().keepsake(make)
    }

    /// The same session, for whoever must not keep the engine alive.
    pub fn downgrade(&self) -> SessionRef {
        SessionRef { engine: Arc::downgrade(&self.engine), facts: Arc::clone(&self.facts) }
    }

    /// Tells listeners that what answers the session had lost it, and was told all it has to know.
    pub fn report_healed(&self) {
        self.engine.listeners.report(&self.facts, SessionEventKind::Healed);
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn live(&self) -> Arc<LiveSession> {
        self.engine.live.enter(&self.facts).0
    }
}
