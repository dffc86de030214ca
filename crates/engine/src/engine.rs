//! The node: opens sessions, takes calls, attaches connections.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use steadfast_session::command::{
    Attach, Attached, Cancel, Cancelled, Close, Closed, Deliver, Detach, Position, Touch, Touched,
};
use steadfast_session::{CloseReason, Facts, NodeId, Principal, SessionId, SessionToken, Step, Time};
use steadfast_store::{Opened, Store, StoreError, StoreExt};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{EventId, RequestId, Revision};

use crate::admission::{Admission, Count};
use crate::backend::{Backend, Denial, Incoming, Unwelcome, Welcome};
use crate::calls::{BegunCall, catch_panic};
use crate::census::Census;
use crate::clock::Clock;
use crate::cursor::Cursor;
use crate::entropy::Entropy;
use crate::errands::Rumours;
use crate::handle::SessionHandle;
use crate::jobs::is_job;
use crate::listener::{Listener, Listeners, SessionEventKind};
use crate::live::LiveSession;
use crate::openings::{Openings, Unclaimed};
use crate::options::Options;
use crate::refusal::Refusal;
use crate::rota::Rota;
use crate::sessions::{Known, LiveSessions};
use crate::signals::Signals;
use crate::stateless::Stateless;
use crate::tail::Tail;

/// One node. It owns no session: it runs calls and serves connections, and the store decides.
pub struct Engine {
    store: Arc<dyn Store>,
    backend: Arc<dyn Backend>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    options: Options,
    node: NodeId,
    pub(crate) live: LiveSessions,
    pub(crate) listeners: Listeners,
    pub(crate) admission: Admission,
    pub(crate) openings: Openings,
    /// Notifications of clients that the backend has not done with.
    pub(crate) notifications: Arc<AtomicUsize>,
    pub(crate) attempts: AtomicU64,
    pub(crate) stateless: Stateless,
    pub(crate) rumours: Rumours,
    /// Which of the sessions that are marked is compared with the store next.
    pub(crate) suspects: Rota,
    pub(crate) census: Census,
    /// The backend is being told who reads here.
    pub(crate) attending: AtomicBool,
    pub(crate) runtime: tokio::runtime::Handle,
    me: Weak<Self>,
}

/// What came of a POST with calls.
#[derive(Debug)]
pub struct Posted {
    /// The connection that reads the answers.
    pub cursor: Cursor,
    /// One for each id, in order, to be given to [`Engine::run`].
    pub calls: Vec<BegunCall>,
}

/// Why a session could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    Refused(Refusal),
    /// The backend answered `initialize` with an error.
    Backend(ErrorObject),
    /// The backend wants other credentials.
    Denied(Denial),
}

impl From<Unwelcome> for OpenError {
    fn from(unwelcome: Unwelcome) -> Self {
        match unwelcome {
            Unwelcome::Error(error) => Self::Backend(error),
            Unwelcome::Denied(denial) => Self::Denied(denial),
        }
    }
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl Engine {
    /// Starts a node: announces it to the store, takes care of what dead nodes left, and starts the sweeper.
    pub async fn start(
        store: Arc<dyn Store>,
        backend: Arc<dyn Backend>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        options: Options,
        listeners: Vec<Box<dyn Listener>>,
    ) -> Result<Arc<Self>, StoreError> {
        let node = entropy.node_id();
        let listeners = Listeners::start(listeners, options.listener_backlog);
        let engine = Arc::new_cyclic(|me: &Weak<Self>| Self {
            store,
            backend,
            clock,
            entropy,
            options,
            node,
            live: LiveSessions::default(),
            listeners,
            admission: Admission::default(),
            openings: Openings::default(),
            notifications: Arc::new(AtomicUsize::new(0)),
            attempts: AtomicU64::new(0),
            stateless: Stateless::default(),
            rumours: Rumours::default(),
            suspects: Rota::default(),
            census: Census::default(),
            attending: AtomicBool::new(false),
            runtime: tokio::runtime::Handle::current(),
            me: me.clone(),
        });
        engine.store.subscribe(Arc::new(Signals::new(&engine)));
        engine.store.join(node, engine.now()).await?;
        if let Err(error) = engine.bury(engine.now()).await {
            // That of some sessions may be away, and others want to be served.
            tracing::warn!(%error, "what dead nodes left has to wait");
        }
        engine.start_sweeper();
        engine.start_looking();
        Ok(engine)
    }

    /// Opens a session and answers `initialize`: the session's token and the JSON text of the result. If the caller drops
    /// this future, the session is closed, because no client has its token.
    pub async fn open(
        &self,
        principal: Principal,
        revision: Revision,
        request: Incoming,
    ) -> Result<(SessionToken, Bytes), OpenError> {
        let entered = self.admission.enter().map_err(OpenError::Refused)?;
        let engine = self.arc();
        let opened = self.to_the_end(async move {
            let opened = engine.open_now(principal, revision, request).await;
            drop(entered);
            opened.map(|(token, result)| Unclaimed::new(engine, token, result))
        });
        Ok(opened.await?.claim())
    }

    async fn open_now(
        &self,
        principal: Principal,
        revision: Revision,
        request: Incoming,
    ) -> Result<(SessionToken, Bytes), OpenError> {
        if let Some(limit) = self.store.no_room_for(&principal).await? {
            // The backend has not been asked: what it would have made for the session need not be taken down.
            return Err(OpenError::Refused(Refusal::OverLimit(limit)));
        }
        let token = self.entropy.session_token();
        let id = token.id();
        // Copied, so that the session does not keep the whole body that they came in.
        let initialize = request.params.as_deref().map(Bytes::copy_from_slice).unwrap_or_default();
        let facts = Facts { id, principal, revision, initialize, opened_at: self.now() };
        let asked = Arc::new(facts.clone());
        let welcome = catch_panic(async { self.backend.initialize(Arc::clone(&asked), request).await });
        let deadline = self.now().plus(self.options.call_deadline);
        let answer = self.openings.within(deadline, welcome).await.unwrap_or_else(|| Err(too_late()));
        let Welcome { result, revision } = match answer.map_err(Unwelcome::Error).and_then(|answer| answer) {
            Ok(welcome) => welcome,
            Err(unwelcome) => {
                self.forget(&asked);
                return Err(unwelcome.into());
            }
        };
        let refusal = match self.store.open(Facts { revision, ..facts }).await {
            Ok(Opened::Opened(facts)) => {
                self.live.note(id);
                return self.settle(facts).await.map(|()| (token, result));
            }
            Ok(Opened::Taken) => Refusal::Store(StoreError::Unavailable("the session id is taken".into())),
            Ok(Opened::OverLimit(limit)) => Refusal::OverLimit(limit),
            Err(error) => Refusal::Store(error),
        };
        self.forget(&asked);
        Err(OpenError::Refused(refusal))
    }

    /// Lets the backend do what it has to before the client hears of its session.
    async fn settle(&self, facts: Arc<Facts>) -> Result<(), OpenError> {
        let handle = SessionHandle::new(self.arc(), Arc::clone(&facts));
        let settled = catch_panic(async { self.backend.opened(handle).await }).await;
        let Err(error) = settled.and_then(|settled| settled) else { return Ok(()) };
        let close = Close { reason: CloseReason::ServerEnded };
        if let Err(error) = self.store.run(facts.id, close, self.now()).await {
            // Nobody knows its id, so it will expire.
            tracing::warn!(session = %facts.id.short(), %error, "a session that came to nothing is still open");
        }
        Err(OpenError::Backend(error))
    }

    /// The session with this id, if it is this principal's. A session that this process has never seen is
    /// rebuilt from the store.
    pub async fn session(&self, id: SessionId, principal: &Principal) -> Result<Arc<LiveSession>, Refusal> {
        self.find(id, Some(principal)).await
    }

    /// Makes this process ready to serve a session that another one opened. Every request does that by itself;
    /// calling it beforehand takes the cost off the first request.
    pub async fn restore(&self, id: SessionId) -> Result<SessionHandle, Refusal> {
        let session = self.find(id, None).await?;
        Ok(self.handle(&session))
    }

    /// A stranger leaves no trace: whose session it is, is looked at first.
    pub(crate) async fn find(
        &self,
        id: SessionId,
        principal: Option<&Principal>,
    ) -> Result<Arc<LiveSession>, Refusal> {
        let is_theirs = |facts: &Arc<Facts>| {
            !is_job(facts) && principal.is_none_or(|principal| facts.principal == *principal)
        };
        let session = match self.live.get(&id) {
            Some(session) if is_theirs(session.facts()) => session,
            Some(_) => return Err(Refusal::NoSession),
            None => {
                let facts = self.store.facts(id).await?.ok_or(Refusal::NoSession)?;
                if !is_theirs(&facts) {
                    return Err(Refusal::NoSession);
                }
                let (session, known) = self.live.enter(&facts);
                if known == Known::FirstSeen {
                    self.listeners.report(&facts, SessionEventKind::Restored);
                    let handle = SessionHandle::new(self.arc(), facts);
                    // If the backend panics, that is logged, and its calls will show what is the matter.
                    let _ = catch_panic(async { self.backend.restored(handle).await }).await;
                }
                session
            }
        };
        session.mark_used(self.now());
        Ok(session)
    }

    /// Attaches a connection: right after an event that the client names, or to a standalone stream.
    pub async fn attach(
        &self,
        session: &Arc<LiveSession>,
        after: Option<EventId>,
    ) -> Result<Cursor, Refusal> {
        let entered = self.admission.enter()?;
        let at = match after {
            Some(id) if id.tag != session.tag() => return Err(Refusal::UnknownEvent),
            Some(id) => Position::After { stream: steadfast_session::StreamNo(id.stream), seq: id.seq },
            None => Position::Standalone,
        };
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.to_the_end(async move {
            let cursor = engine.attach_now(&session, at, &[]).await;
            drop(entered);
            cursor
        })
        .await
    }

    /// `only_chance_of` are the calls whose client cannot come back for the answers.
    pub(crate) async fn attach_now(
        &self,
        session: &Arc<LiveSession>,
        at: Position,
        only_chance_of: &[RequestId],
    ) -> Result<Cursor, Refusal> {
        let attach = Attach { at, node: self.node };
        session.attaching();
        let mut attached = self.store.run(session.id(), attach.clone(), self.now()).await;
        if let (Err(StoreError::Unknown(_)), Position::After { .. }) = (&attached, at) {
            // If it has happened, the newer attachment takes the stream from the one that nobody serves.
            attached = self.store.run(session.id(), attach, self.now()).await;
        }
        if let Ok(Attached::Attached { stream, connection, after }) = attached {
            let tail = Arc::new(Tail::of_known_stream(connection, self.options.tail_bytes));
            tail.is_only_chance_of(only_chance_of.to_vec());
            session.attached(stream, connection, &tail);
            if let Position::After { .. } = at {
                // Whoever has to begin what it waits for may not know.
                session.await_others();
            }
            if self.is_draining() && tail.can_come_back() {
                // Draining began meanwhile and may have missed this connection.
                tail.tell_to_leave();
            }
            return Ok(self.cursor(session, tail, stream, connection, after));
        }
        session.not_attached();
        if let Err(StoreError::Unknown(_)) = attached {
            // The store may have it, and nobody reads there.
            session.suspect();
        }
        Err(match attached? {
            Attached::UnknownEvent => Refusal::UnknownEvent,
            Attached::Gone => Refusal::Gone,
            Attached::OverLimit(limit) => Refusal::OverLimit(limit),
            Attached::NoSession | Attached::Attached { .. } => self.lost(session),
        })
    }

    pub(crate) fn cursor(
        &self,
        session: &Arc<LiveSession>,
        tail: Arc<Tail>,
        stream: steadfast_session::StreamNo,
        connection: steadfast_session::ConnNo,
        after: u64,
    ) -> Cursor {
        let waits = !tail.can_come_back();
        let mut cursor = Cursor::new(self.arc(), Arc::clone(session), tail, stream, connection, after);
        if waits {
            cursor.count(Count::one_more(&self.admission.calls));
        }
        cursor
    }

    /// A connection broke. The store hears of it as soon as it can; until then the session merely looks busy.
    pub(crate) fn detach_later(
        &self,
        session: &Arc<LiveSession>,
        stream: steadfast_session::StreamNo,
        connection: steadfast_session::ConnNo,
        through: u64,
    ) {
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.spawn(async move {
            let detach = Detach { stream, connection, through };
            let recorded = engine.patiently(|| engine.store.run(session.id(), detach.clone(), engine.now())).await;
            if let Err(error) = recorded {
                tracing::warn!(session = %session.id().short(), %error, "a broken connection is not recorded yet");
                session.suspect();
            }
        });
    }

    /// A connection reads on. If the store does not hear of it, it keeps more than it needs to; that is all.
    pub(crate) fn deliver_later(
        &self,
        session: &Arc<LiveSession>,
        stream: steadfast_session::StreamNo,
        connection: steadfast_session::ConnNo,
        through: u64,
    ) {
        let deliver = Deliver { stream, connection, through };
        let told = self.store.apply(session.id(), deliver.into_command(), self.now());
        self.spawn(async move { drop(told.await) });
    }

    /// Takes a notification of the client. The backend gets those of one session in the order in which they are taken.
    pub async fn notify(&self, session: &Arc<LiveSession>, notification: Incoming) -> Result<(), Refusal> {
        match self.store.run(session.id(), Touch, self.now()).await? {
            Touched::Touched => self.hand_over(session, notification),
            // It ends something, and has done so.
            Touched::OverLimit(_) if notification.method == "notifications/cancelled" => {
                self.hand_over(session, notification)
            }
            Touched::OverLimit(limit) => Err(Refusal::OverLimit(limit)),
            Touched::NoSession => Err(self.lost(session)),
        }
    }

    /// The client cancels a call of its own.
    pub async fn cancel(&self, session: &Arc<LiveSession>, id: RequestId) -> Result<(), Refusal> {
        match self.store.run(session.id(), Cancel { id: id.clone() }, self.now()).await? {
            Cancelled::Cancelled { .. } | Cancelled::Nothing => Ok(()),
            Cancelled::Ambiguous => {
                tracing::warn!(session = %session.id().short(), %id, "a cancellation fits several calls; none is cancelled");
                Ok(())
            }
            Cancelled::NoSession => Err(self.lost(session)),
        }
    }

    /// Ends a session.
    pub async fn close(&self, session: &Arc<LiveSession>, reason: CloseReason) -> Result<(), Refusal> {
        match self.store.run(session.id(), Close { reason }, self.now()).await? {
            Closed::Closed => Ok(()),
            Closed::NoSession => Err(self.lost(session)),
        }
    }

    /// The store does not know the session any more: neither does this node, and what it does for it is over.
    pub(crate) fn lost(&self, session: &LiveSession) -> Refusal {
        self.live.remove(&session.id());
        session.over();
        self.forget(session.facts());
        Refusal::NoSession
    }

    /// What the backend has made for a session must not stay.
    pub(crate) fn forget(&self, facts: &Arc<Facts>) {
        self.backend.closed(&SessionHandle::new(self.arc(), Arc::clone(facts)));
    }

    pub fn handle(&self, session: &Arc<LiveSession>) -> SessionHandle {
        SessionHandle::new(self.arc(), Arc::clone(session.facts()))
    }

    /// Whether other processes may work on the same sessions.
    pub fn shares_its_store(&self) -> bool {
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

fn too_late() -> ErrorObject {
    ErrorObject::internal("deadline", "The server took too long to open the session.", true)
}
