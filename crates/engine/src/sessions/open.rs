//! Opens sessions: asks the backend, then the store, and returns the token to the client.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::Close;
use steadfast_session::{CloseReason, Facts, Principal, SessionToken};
use steadfast_store::{Opened, StoreError, StoreExt};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{Reason, Revision};

use crate::backend::{Denial, IncomingMessage, InitializeError, InitializeOk};
use crate::engine::Engine;
use crate::panics::catch_panic;
use crate::refusal::Refusal;
use crate::sessions::SessionHandle;

/// Why a session was not opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    Refused(Refusal),
    /// The backend answered `initialize` with an error.
    Backend(ErrorObject),
    /// The backend requires other credentials.
    Denied(Denial),
}

impl From<InitializeError> for OpenError {
    fn from(initialize_error: InitializeError) -> Self {
        match initialize_error {
            InitializeError::Error(error) => Self::Backend(error),
            InitializeError::Denied(denial) => Self::Denied(denial),
        }
    }
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        Self::Refused(error.into())
    }
}

impl Engine {
    /// Opens a session. Returns its token and the JSON text of the `initialize` result. If the
    /// caller drops this future, the session is closed, because no client has its token.
    pub async fn open(
        &self,
        principal: Principal,
        revision: Revision,
        request: IncomingMessage,
    ) -> Result<(SessionToken, Bytes), OpenError> {
        let admitted = self.admission.admit().map_err(OpenError::Refused)?;
        let engine = self.arc();
        let opened = self.run_detached(async move {
            let opened = engine.open_admitted(principal, revision, request).await;
            drop(admitted);
            opened.map(|(token, result)| CloseOnDrop::new(engine, token, result))
        });
        Ok(opened.await?.disarm())
    }

    async fn open_admitted(
        &self,
        principal: Principal,
        revision: Revision,
        request: IncomingMessage,
    ) -> Result<(SessionToken, Bytes), OpenError> {
        if let Some(limit) = self.reached_limit(&principal).await? {
            // Checked before the backend is asked, so that a full store costs the backend nothing.
            return Err(OpenError::Refused(Refusal::OverLimit(limit)));
        }
        let token = self.entropy().session_token();
        let id = token.id();
        // Copied, so that the session does not keep the whole HTTP body in memory.
        let initialize = request.params.as_deref().map(Bytes::copy_from_slice).unwrap_or_default();
        let facts = Facts { id, principal, revision, initialize, opened_at: self.now() };
        let proposed = Arc::new(facts.clone());
        let initialized =
            catch_panic(async { self.backend().initialize(Arc::clone(&proposed), request).await });
        let deadline = self.now().plus(self.options().call_deadline);
        let answer = self
            .pending_initialize
            .with_deadline(deadline, initialized)
            .await
            .unwrap_or_else(|| Err(too_late()));
        let InitializeOk { result, revision } =
            match answer.map_err(InitializeError::Error).and_then(|answer| answer) {
                Ok(initialized) => initialized,
                Err(initialize_error) => {
                    self.notify_closed(&proposed);
                    return Err(initialize_error.into());
                }
            };
        let refusal = match self.open_in_store(Facts { revision, ..facts }).await {
            Ok(Opened::Opened(facts)) => {
                self.sessions.insert_id(id);
                return self.notify_opened(facts).await.map(|()| (token, result));
            }
            Ok(Opened::IdInUse) => {
                Refusal::Store(StoreError::Unavailable("the generated session id is in use".into()))
            }
            Ok(Opened::OverLimit(limit)) => Refusal::OverLimit(limit),
            Err(error) => Refusal::Store(error),
        };
        self.notify_closed(&proposed);
        Err(OpenError::Refused(refusal))
    }

    /// Calls [`Backend::opened`](crate::Backend::opened). Closes the session if that fails.
    async fn notify_opened(&self, facts: Arc<Facts>) -> Result<(), OpenError> {
        let handle = SessionHandle::new(self.arc(), Arc::clone(&facts));
        let opened = catch_panic(async { self.backend().opened(handle).await }).await;
        let Err(error) = opened.and_then(|opened| opened) else { return Ok(()) };
        let close = Close { reason: CloseReason::ServerEnded };
        if let Err(error) = self.store().run(facts.id, close, self.now()).await {
            // No client knows the session id, so the session will expire.
            tracing::warn!(session = %facts.id.short(), %error, "could not close a session that the backend refused; it will expire");
        }
        Err(OpenError::Backend(error))
    }
}

fn too_late() -> ErrorObject {
    Reason::Deadline.error_retryable(true, "The server took too long to open the session.")
}

/// Closes an open session when it is dropped, unless its token has been returned to the caller.
pub(crate) struct CloseOnDrop {
    engine: Option<Arc<Engine>>,
    token: SessionToken,
    result: Bytes,
}

impl CloseOnDrop {
    pub(crate) fn new(engine: Arc<Engine>, token: SessionToken, result: Bytes) -> Self {
        Self { engine: Some(engine), token, result }
    }

    pub(crate) fn disarm(mut self) -> (SessionToken, Bytes) {
        self.engine = None;
        (self.token, std::mem::take(&mut self.result))
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let (Some(engine), id) = (self.engine.take(), self.token.id()) else { return };
        engine.clone().spawn(async move {
            let close = Close { reason: CloseReason::ServerEnded };
            let closed = engine.with_retry(|| engine.store().run(id, close.clone(), engine.now())).await;
            if let Err(error) = closed {
                // The session will expire.
                tracing::warn!(session = %id.short(), %error, "could not close a session whose client disconnected; it will expire");
            }
        });
    }
}
