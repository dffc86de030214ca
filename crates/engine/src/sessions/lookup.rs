//! Finds sessions by id.

use std::sync::Arc;

use steadfast_session::{Facts, Principal, SessionId};

use crate::engine::Engine;
use crate::internal_sessions::is_internal;
use crate::panics::catch_panic;
use crate::refusal::Refusal;
use crate::sessions::{LiveSession, SeenBefore, SessionEventKind, SessionHandle};

impl Engine {
    /// Returns the session with this id. Fails with [`Refusal::NoSession`] if it does not exist or
    /// belongs to another principal. A session that this node has not served before is loaded from
    /// the store.
    pub async fn session(&self, id: SessionId, principal: &Principal) -> Result<Arc<LiveSession>, Refusal> {
        self.find(id, Some(principal)).await
    }

    /// Returns the session with this id like [`Engine::session`], also for a request of another
    /// principal if the backend admits it.
    pub async fn session_for(
        &self,
        id: SessionId,
        principal: &Principal,
        http: &http::request::Parts,
    ) -> Result<Arc<LiveSession>, Refusal> {
        match self.session(id, principal).await {
            Err(Refusal::NoSession) => {
                let facts = self.store().facts(id).await?.ok_or(Refusal::NoSession)?;
                if is_internal(&facts) {
                    return Err(Refusal::NoSession);
                }
                let handle = SessionHandle::new(self.arc(), facts);
                // A panic is logged and admits no request.
                let admitted =
                    catch_panic(async { self.backend().admits(handle, principal, http).await }).await;
                if admitted == Ok(true) { self.find(id, None).await } else { Err(Refusal::NoSession) }
            }
            found => found,
        }
    }

    /// Prepares this node to serve a session that another node opened. Every request does that
    /// itself; calling this earlier makes the first request faster.
    pub async fn restore(&self, id: SessionId) -> Result<SessionHandle, Refusal> {
        let session = self.find(id, None).await?;
        Ok(self.session_handle(&session))
    }

    /// Returns the session with this id, for `principal` or, if that is `None`, for the engine
    /// itself. The owner is checked before anything is cached, so requests of other principals
    /// leave no trace.
    pub(crate) async fn find(
        &self,
        id: SessionId,
        principal: Option<&Principal>,
    ) -> Result<Arc<LiveSession>, Refusal> {
        let is_accessible = |facts: &Arc<Facts>| {
            !is_internal(facts) && principal.is_none_or(|principal| facts.principal == *principal)
        };
        let (session, seen_before) = self.find_where(id, is_accessible).await?;
        if seen_before == SeenBefore::No {
            self.listeners.report(session.facts(), SessionEventKind::Restored);
            let handle = self.session_handle(&session);
            // A panic is logged. The calls of the session will report the problem to the client.
            let _ = catch_panic(async { self.backend().restored(handle).await }).await;
        }
        session.mark_used(self.now());
        Ok(session)
    }

    /// Returns the session with this id if its facts are accepted, and whether this node has served
    /// it before.
    pub(crate) async fn find_where(
        &self,
        id: SessionId,
        is_accessible: impl Fn(&Arc<Facts>) -> bool,
    ) -> Result<(Arc<LiveSession>, SeenBefore), Refusal> {
        if let Some(session) = self.sessions.get(&id) {
            return if is_accessible(session.facts()) {
                Ok((session, SeenBefore::Yes))
            } else {
                Err(Refusal::NoSession)
            };
        }
        let facts = self.store().facts(id).await?.filter(is_accessible).ok_or(Refusal::NoSession)?;
        Ok(self.sessions.get_or_create(&facts))
    }
}
