//! Calls that this node waits for and that others are to begin: until they have, these are told of them again and again. They may
//! have nothing to do with the session, and the first word may be lost.

use std::sync::Arc;

use steadfast_session::command::{Remind, Reminded};
use steadfast_store::StoreExt;

use crate::engine::Engine;
use crate::live::LiveSession;

impl Engine {
    /// One word for each session in which somebody waits for others. Sessions in which nobody does cost nothing.
    pub(crate) async fn remind_others(&self) {
        let waiting = self.live.all().into_iter().filter(|session| session.awaits_others());
        self.for_each(waiting, |engine, session| async move { engine.remind(&session).await }).await;
    }

    async fn remind(&self, session: &Arc<LiveSession>) {
        // In this order: whoever begins to wait meanwhile is not forgotten.
        session.await_nobody();
        match self.store().run(session.id(), Remind { node: self.node() }, self.now()).await {
            Ok(Reminded::Reminded { calls: 0 } | Reminded::NoSession) => {}
            Ok(Reminded::Reminded { .. }) => session.await_others(),
            Err(error) => {
                tracing::debug!(session = %session.id().short(), %error, "others cannot be told again yet");
                session.await_others();
            }
        }
    }
}
