//! A backend that a configuration reload can replace. Calls in flight finish on the upstream on
//! which they started. New calls use the current upstream.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use prometheus_client::metrics::histogram::Histogram;
use steadfast_engine::backend::BoxFuture;
use steadfast_engine::{
    Answer, Backend, CallHandle, ExchangeHandle, Facts, Fence, IncomingMessage, InitializeError,
    InitializeOk, Principal, Routing, SessionHandle, SessionId,
};
use steadfast_upstream::Upstream;
use steadfast_wire::Mutex;
use steadfast_wire::rpc::ErrorObject;
use tokio::time::Instant;

pub(crate) struct ReloadableBackend {
    current: Arc<RwLock<Arc<Upstream>>>,
    /// The upstreams on which sessions are being initialized. The engine reports the end of each:
    /// `opened`, `closed` or `ended_elsewhere`.
    initializing: Mutex<HashMap<SessionId, Arc<Upstream>>>,
    call_seconds: Option<Histogram>,
}

impl ReloadableBackend {
    /// Observes the duration of calls in `call_seconds`.
    pub(crate) fn new(upstream: Upstream, call_seconds: Option<Histogram>) -> Self {
        let current = Arc::new(RwLock::new(Arc::new(upstream)));
        Self { current, initializing: Mutex::default(), call_seconds }
    }

    pub(crate) fn replace(&self, upstream: Upstream) {
        let new = Arc::new(upstream);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // Before its first call the new upstream must know the running calls, which count toward
        // its concurrency.
        new.replace(&current);
        let old = std::mem::replace(&mut *current, new);
        // Destructors must not run under the lock.
        drop(current);
        drop(old);
    }

    pub(crate) fn current(&self) -> Arc<Upstream> {
        read(&self.current)
    }

    /// Removes and returns the upstream on which the session is being initialized. Returns the
    /// current upstream for other sessions.
    fn take_initializer(&self, session: &SessionId) -> Arc<Upstream> {
        self.initializing.lock().remove(session).unwrap_or_else(|| self.current())
    }

    fn timed(&self, answer: BoxFuture<Answer>) -> BoxFuture<Answer> {
        let Some(call_seconds) = self.call_seconds.clone() else { return answer };
        let started = Instant::now();
        Box::pin(async move {
            let answer = answer.await;
            call_seconds.observe(started.elapsed().as_secs_f64());
            answer
        })
    }
}

fn read(current: &RwLock<Arc<Upstream>>) -> Arc<Upstream> {
    Arc::clone(&current.read().unwrap_or_else(PoisonError::into_inner))
}

impl Backend for ReloadableBackend {
    fn initialize(
        &self,
        facts: Arc<Facts>,
        request: IncomingMessage,
    ) -> BoxFuture<Result<InitializeOk, InitializeError>> {
        let upstream = self.current();
        self.initializing.lock().insert(facts.id, Arc::clone(&upstream));
        upstream.initialize(facts, request)
    }

    fn opened(&self, session: SessionHandle) -> BoxFuture<Result<(), ErrorObject>> {
        let initializer = self.take_initializer(&session.facts().id);
        let current = Arc::clone(&self.current);
        Box::pin(async move {
            initializer.opened(session.clone()).await?;
            // A reload may have replaced the upstream since `initialize`.
            let current = read(&current);
            if !Arc::ptr_eq(&initializer, &current) {
                current.restored(session).await;
            }
            Ok(())
        })
    }

    fn restored(&self, session: SessionHandle) -> BoxFuture<()> {
        self.current().restored(session)
    }

    fn call(&self, call: CallHandle, request: IncomingMessage) -> BoxFuture<Result<Bytes, ErrorObject>> {
        self.timed(self.current().call(call, request))
    }

    fn route(&self, session: &SessionHandle, request: &IncomingMessage) -> Routing {
        self.current().route(session, request)
    }

    fn invalidate_route(&self, facts: &Arc<Facts>, fence: &Fence) {
        self.current().invalidate_route(facts, fence);
    }

    fn readers_present(&self, sessions: Vec<SessionHandle>) -> BoxFuture<()> {
        self.current().readers_present(sessions)
    }

    fn draining(&self) -> BoxFuture<()> {
        self.current().draining()
    }

    fn serve(&self, exchange: ExchangeHandle, request: IncomingMessage) -> BoxFuture<Answer> {
        // The duration of a subscription depends on the client and says nothing about the server.
        let is_call = !exchange.is_subscription();
        let answer = self.current().serve(exchange, request);
        if is_call { self.timed(answer) } else { answer }
    }

    fn notify(&self, session: SessionHandle, notification: IncomingMessage) -> BoxFuture<()> {
        self.current().notify(session, notification)
    }

    fn closed(&self, session: &SessionHandle) {
        self.take_initializer(&session.facts().id).closed(session);
    }

    fn admits(
        &self,
        session: SessionHandle,
        principal: &Principal,
        http: &http::request::Parts,
    ) -> BoxFuture<bool> {
        self.current().admits(session, principal, http)
    }

    fn ended_elsewhere(&self, session: SessionId) {
        self.take_initializer(&session).ended_elsewhere(session);
    }
}
