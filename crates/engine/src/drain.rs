//! Going down in good order and in bounded time.

use std::sync::Arc;
use std::time::Duration;

use steadfast_wire::rpc::ErrorObject;

use tokio::task::JoinSet;

use crate::calls::catch_panic;
use crate::engine::Engine;

/// How long the store may take for the last words of a node.
const FAREWELL: Duration = Duration::from_secs(5);

pub(crate) fn shutting_down() -> ErrorObject {
    ErrorObject::internal(
        "shutting_down",
        "The server shut down before the call was done. Whether it took effect is not known.",
        false,
    )
}

impl Engine {
    /// Takes no more requests, lets running calls finish for as long as `patience`, leaves those that may be done again to other
    /// nodes, gives the rest an explicit error, and sends every waiting connection away with the advice to come back.
    pub async fn drain(&self, patience: Duration) {
        self.admission.close();
        let engine = self.arc();
        self.spawn(async move {
            // A panic is logged; what was not given up is found to be nobody's when this node has left.
            let _ = catch_panic(async { engine.backend().leaving().await }).await;
        });
        self.send_waiting_connections_away();
        self.end_subscriptions();
        // Whoever was let in before that is about to hold something: a call to be waited for, a connection to be sent away.
        let _ = tokio::time::timeout(FAREWELL, self.admission.entering.is_zero()).await;
        let _ = tokio::time::timeout(patience, self.admission.calls.is_zero()).await;
        let error = shutting_down();
        // All at once and for a bounded time: if the store does not take the errors, `leave` or the next node will see
        // to the calls.
        let mut failing = JoinSet::new();
        for session in self.live.all() {
            for (no, call) in session.release_calls() {
                let (engine, session, error) = (self.arc(), Arc::clone(&session), error.clone());
                failing.spawn(async move { engine.fail(&session, no, &call, &error).await });
            }
        }
        self.fail_all_exchanges(&error);
        let _ = tokio::time::timeout(FAREWELL, async { while failing.join_next().await.is_some() {} }).await;
        for session in self.live.all() {
            for tail in session.tails() {
                tail.give_up(&error);
            }
        }
        match tokio::time::timeout(FAREWELL, self.store().leave(self.node(), self.now())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "this node could not take leave of the store"),
            Err(_) => tracing::warn!("the store did not take this node's leave in time"),
        }
    }

    /// Connections that wait for no call of this node. Those that wait for a call of another node and cannot come back count as
    /// calls until they have their answer.
    fn send_waiting_connections_away(&self) {
        for session in self.live.all() {
            session.send_waiting_away();
        }
    }
}
