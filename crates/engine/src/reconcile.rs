//! Letting go of what the store thinks this node holds and nobody here knows of.
//!
//! Such rows are left by commands whose outcome stayed unknown: an attached connection that no response reads, an ask
//! without an asker, a call that was never started. Their session would count as busy for ever. The other way round, an
//! asker may wait for an ask that such a command has taken from the store. Whoever meets such an
//! outcome marks the session, and the sweeper looks at marked sessions only, so that the others cost nothing.

use std::sync::Arc;

use steadfast_session::command::{Detach, Finish, Withdraw};
use steadfast_session::{CallNo, Holdings};
use steadfast_store::{StoreError, StoreExt};
use steadfast_wire::RequestId;
use steadfast_wire::rpc::ErrorObject;

use crate::engine::Engine;
use crate::live::LiveSession;

impl Engine {
    pub(crate) async fn reconcile_suspects(&self, sessions: &[Arc<LiveSession>]) {
        let suspects = sessions.iter().filter(|session| session.is_suspect()).cloned().collect();
        let in_turn = self.suspects.next(suspects, |session: &Arc<LiveSession>| session.id());
        let compare = async |engine: Arc<Self>, session: Arc<LiveSession>| {
            if let Err(error) = engine.look_and_reconcile(&session).await {
                session.suspect();
                tracing::debug!(session = %session.id().short(), %error, "the store cannot be compared with yet");
            }
        };
        self.for_each(in_turn, compare).await;
    }

    async fn look_and_reconcile(&self, session: &Arc<LiveSession>) -> Result<(), StoreError> {
        self.look_in_turn(session).await?;
        self.reconcile(session).await
    }

    async fn reconcile(&self, session: &Arc<LiveSession>) -> Result<(), StoreError> {
        // What is being begun, attached or asked is in the store before it is known here: then look another time.
        let Some(before) = session.settled() else { return Ok(()) };
        session.trust();
        let held = self.store().held(session.id(), self.node()).await?;
        if session.settled() != Some(before) {
            session.suspect();
            return Ok(());
        }
        if let Holdings::Held { asks, .. } = &held {
            // What the store does not hold was answered by a command whose outcome stayed unknown.
            session.asks().keep_only(asks);
        }
        let Holdings::Held { calls, asks, connections, .. } = session.unknown_of(held) else { return Ok(()) };
        for (no, id) in calls {
            self.store().run(session.id(), not_started(no, &id), self.now()).await?;
        }
        for ask in asks {
            self.store().run(session.id(), Withdraw { ask }, self.now()).await?;
        }
        for (stream, connection) in connections {
            // Nobody knows what was written to it.
            self.store().run(session.id(), Detach { stream, connection, through: 0 }, self.now()).await?;
        }
        Ok(())
    }
}

/// Ends a call that may have begun and was never run.
pub(crate) fn not_started(call: CallNo, id: &RequestId) -> Finish {
    let error = ErrorObject::internal("not_started", "The call was not started.", true);
    Finish { call, payload: error.to_message(Some(id)).into() }
}
