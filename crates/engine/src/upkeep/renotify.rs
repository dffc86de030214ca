//! Repeats hints for calls that clients of this node wait for and that another node has to start.
//! The first hint may be lost, and the other node may not have served the session before.

use std::sync::Arc;

use steadfast_session::command::{Renotified, Renotify};
use steadfast_store::StoreExt;

use crate::engine::Engine;
use crate::sessions::LiveSession;

impl Engine {
    /// Sends one command for each session that waits for a remote start. Other sessions cost
    /// nothing.
    pub(crate) async fn renotify_all(&self) {
        let waiting = self.sessions.all().into_iter().filter(|session| session.awaits_remote_start());
        self.for_each(waiting, |engine, session| async move { engine.renotify(&session).await }).await;
    }

    async fn renotify(&self, session: &Arc<LiveSession>) {
        // Cleared first, so that a concurrent mark is not lost.
        session.clear_awaits_remote_start();
        match self.store().run(session.id(), Renotify { node: self.node() }, self.now()).await {
            Ok(Renotified::Renotified { calls: 0 } | Renotified::NoSession) => {}
            Ok(Renotified::Renotified { .. }) => session.mark_awaits_remote_start(),
            Err(error) => {
                tracing::debug!(session = %session.id().short(), %error, "could not repeat the hints of a session");
                session.mark_awaits_remote_start();
            }
        }
    }
}
