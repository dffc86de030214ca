//! A backend that can be replaced while it works.

use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use steadfast_engine::backend::BoxFuture;
use steadfast_engine::{
    Answer, Backend, CallHandle, ExchangeHandle, Facts, Incoming, SessionHandle, Unwelcome, Welcome,
};
use steadfast_wire::rpc::ErrorObject;

/// What was begun goes on where it began; everything after a change goes to the new one.
pub(crate) struct Swap(RwLock<Arc<dyn Backend>>);

impl Swap {
    pub(crate) fn new(first: Arc<dyn Backend>) -> Self {
        Self(RwLock::new(first))
    }

    pub(crate) fn replace(&self, next: Arc<dyn Backend>) {
        let before = std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), next);
        // Its destructor must not run under the lock.
        drop(before);
    }

    fn current(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Backend for Swap {
    fn initialize(&self, facts: Arc<Facts>, request: Incoming) -> BoxFuture<Result<Welcome, Unwelcome>> {
        let backend = self.current();
        Box::pin(async move { backend.initialize(facts, request).await })
    }

    fn call(&self, call: CallHandle, request: Incoming) -> BoxFuture<Result<Bytes, ErrorObject>> {
        let backend = self.current();
        Box::pin(async move { backend.call(call, request).await })
    }

    fn serve(&self, exchange: ExchangeHandle, request: Incoming) -> BoxFuture<Answer> {
        let backend = self.current();
        Box::pin(async move { backend.serve(exchange, request).await })
    }

    fn notify(&self, session: SessionHandle, notification: Incoming) -> BoxFuture<()> {
        let backend = self.current();
        Box::pin(async move { backend.notify(session, notification).await })
    }

    fn closed(&self, facts: &Arc<Facts>) {
        self.current().closed(facts);
    }
}
