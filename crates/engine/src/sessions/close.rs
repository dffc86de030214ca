//! Ends sessions, and drops this node's part of sessions that have ended.

use std::sync::Arc;

use steadfast_session::command::{Close, Closed};
use steadfast_session::{CloseReason, Facts};
use steadfast_store::StoreExt;

use crate::engine::Engine;
use crate::internal_sessions::is_internal;
use crate::refusal::Refusal;
use crate::sessions::{LiveSession, SessionHandle};

impl Engine {
    /// Ends a session.
    pub async fn close(&self, session: &Arc<LiveSession>, reason: CloseReason) -> Result<(), Refusal> {
        match self.store().run(session.id(), Close { reason }, self.now()).await? {
            Closed::Closed => Ok(()),
            Closed::NoSession => Err(self.session_gone(session)),
        }
    }

    /// Call this when the store says that the session does not exist: drops the node's part of the
    /// session, tells the backend, and returns [`Refusal::NoSession`].
    pub(crate) fn session_gone(&self, session: &LiveSession) -> Refusal {
        self.sessions.remove(&session.id());
        session.end();
        self.notify_closed(session.facts());
        Refusal::NoSession
    }

    /// Tells the backend that a session has ended, so that it releases what it made for the
    /// session.
    pub(crate) fn notify_closed(&self, facts: &Arc<Facts>) {
        if is_internal(facts) {
            return;
        }
        self.backend().closed(&SessionHandle::new(self.arc(), Arc::clone(facts)));
    }
}
