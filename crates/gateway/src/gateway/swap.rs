//! The server behind an endpoint, which can be replaced while it works.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use prometheus_client::metrics::histogram::Histogram;
use steadfast_engine::backend::BoxFuture;
use steadfast_engine::{
    Answer, Backend, CallHandle, ExchangeHandle, Facts, Fence, Incoming, Routing, SessionHandle, SessionId,
    Unwelcome, Welcome,
};
use steadfast_upstream::Upstream;
use steadfast_wire::rpc::ErrorObject;
use tokio::time::Instant;

use crate::admin::seconds;

/// What was begun goes on where it began; everything after a change goes to the new one.
pub(crate) struct Swap {
    current: Arc<RwLock<Arc<Upstream>>>,
    /// Whom sessions are being opened by. The engine says of each of them that it is opened or that it is closed.
    opening: Mutex<HashMap<SessionId, Arc<Upstream>>>,
    took: Option<Histogram>,
}

impl Swap {
    /// How long calls take is observed, if somebody wants to know.
    pub(crate) fn new(first: Upstream, took: Option<Histogram>) -> Self {
        Self { current: Arc::new(RwLock::new(Arc::new(first))), opening: Mutex::default(), took }
    }

    pub(crate) fn replace(&self, next: Upstream) {
        let next = Arc::new(next);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // Nobody calls the new one before it knows of the calls that run.
        next.succeed(&current);
        let before = std::mem::replace(&mut *current, next);
        // Its destructor must not run under the lock.
        drop(current);
        drop(before);
    }

    pub(crate) fn current(&self) -> Arc<Upstream> {
        now(&self.current)
    }

    /// The one that a session that is not open yet began with, or else the current one.
    fn opener(&self, session: &SessionId) -> Arc<Upstream> {
        self.opening().remove(session).unwrap_or_else(|| self.current())
    }

    /// Observes how long an answer takes.
    fn timed(&self, answer: BoxFuture<Answer>) -> BoxFuture<Answer> {
        let Some(took) = self.took.clone() else { return answer };
        let begun = Instant::now();
        Box::pin(async move {
            let answer = answer.await;
            took.observe(seconds(begun.elapsed()));
            answer
        })
    }

    fn opening(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Upstream>>> {
        self.opening.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn now(current: &RwLock<Arc<Upstream>>) -> Arc<Upstream> {
    Arc::clone(&current.read().unwrap_or_else(PoisonError::into_inner))
}

impl Backend for Swap {
    fn initialize(&self, facts: Arc<Facts>, request: Incoming) -> BoxFuture<Result<Welcome, Unwelcome>> {
        let opener = self.current();
        self.opening().insert(facts.id, Arc::clone(&opener));
        opener.initialize(facts, request)
    }

    fn opened(&self, session: SessionHandle) -> BoxFuture<Result<(), ErrorObject>> {
        let (opener, current) = (self.opener(&session.facts().id), Arc::clone(&self.current));
        Box::pin(async move {
            opener.opened(session.clone()).await?;
            let current = now(&current);
            if !Arc::ptr_eq(&opener, &current) {
                current.restored(session).await;
            }
            Ok(())
        })
    }

    fn restored(&self, session: SessionHandle) -> BoxFuture<()> {
        self.current().restored(session)
    }

    fn call(&self, call: CallHandle, request: Incoming) -> BoxFuture<Result<Bytes, ErrorObject>> {
        self.timed(self.current().call(call, request))
    }

    fn route(&self, session: &SessionHandle, request: &Incoming) -> Routing {
        self.current().route(session, request)
    }

    fn misrouted(&self, facts: &Arc<Facts>, fence: &Fence) {
        self.current().misrouted(facts, fence);
    }

    fn attended(&self, sessions: Vec<SessionHandle>) -> BoxFuture<()> {
        self.current().attended(sessions)
    }

    fn leaving(&self) -> BoxFuture<()> {
        self.current().leaving()
    }

    fn serve(&self, exchange: ExchangeHandle, request: Incoming) -> BoxFuture<Answer> {
        // A subscription lasts for as long as its client likes, which says nothing about the server.
        let is_call = !exchange.is_subscription();
        let answer = self.current().serve(exchange, request);
        if is_call { self.timed(answer) } else { answer }
    }

    fn notify(&self, session: SessionHandle, notification: Incoming) -> BoxFuture<()> {
        self.current().notify(session, notification)
    }

    fn closed(&self, session: &SessionHandle) {
        self.opener(&session.facts().id).closed(session);
    }

    fn forgotten(&self, session: SessionId) {
        self.opener(&session).forgotten(session);
    }
}
