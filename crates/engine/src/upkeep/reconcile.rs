//! Releases what the store holds for this node and this node does not know.
//!
//! A command with an unknown outcome can leave behind an attached connection that no response
//! reads, a server request without a waiter, or a call that never ran; the session would never
//! expire. It can also resolve a server request in the store while its waiter still waits. Code
//! that meets an unknown outcome marks the session. The sweeper compares marked sessions only.

use std::sync::Arc;

use steadfast_session::Holdings;
use steadfast_session::command::{Detach, Withdraw};
use steadfast_store::{StoreError, StoreExt};

use crate::calls::not_started;
use crate::engine::Engine;
use crate::sessions::LiveSession;

impl Engine {
    pub(crate) async fn reconcile_marked(&self, sessions: &[Arc<LiveSession>]) {
        let marked = sessions.iter().filter(|session| session.needs_reconcile()).cloned().collect();
        let in_turn = self.reconcile_order.next_batch(marked, |session: &Arc<LiveSession>| session.id());
        let compare = async |engine: Arc<Self>, session: Arc<LiveSession>| {
            if let Err(error) = engine.poll_and_reconcile(&session).await {
                session.mark_needs_reconcile();
                tracing::debug!(session = %session.id().short(), %error, "could not reconcile a session; the next sweep will retry");
            }
        };
        self.for_each(in_turn, compare).await;
    }

    async fn poll_and_reconcile(&self, session: &Arc<LiveSession>) -> Result<(), StoreError> {
        self.poll_session(session).await?;
        self.reconcile(session).await
    }

    async fn reconcile(&self, session: &Arc<LiveSession>) -> Result<(), StoreError> {
        // Operations in flight are in the store before this node knows them. The session stays
        // marked, so the next sweep compares it.
        let Some(before) = session.settled_operations() else { return Ok(()) };
        session.clear_needs_reconcile();
        let held = self.store().holdings(session.id(), self.node()).await?;
        if session.settled_operations() != Some(before) {
            session.mark_needs_reconcile();
            return Ok(());
        }
        if let Holdings::Held { server_requests, .. } = &held {
            // A command with an unknown outcome has resolved the requests that the store does not
            // hold.
            session.server_requests().keep_only(server_requests);
        }
        let Holdings::Held { calls, server_requests, connections, .. } = session.retain_unknown(held) else {
            return Ok(());
        };
        for (no, id) in calls {
            self.store().run(session.id(), not_started(no, &id), self.now()).await?;
        }
        for server_request in server_requests {
            self.store().run(session.id(), Withdraw { server_request }, self.now()).await?;
        }
        for (stream, connection) in connections {
            // It is unknown what was written to the connection, so nothing counts as delivered.
            self.store().run(session.id(), Detach { stream, connection, through: 0 }, self.now()).await?;
        }
        Ok(())
    }
}
