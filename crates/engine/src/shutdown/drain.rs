//! Drains the node: ends its work in bounded time, so that no call is left without an answer.

use std::sync::Arc;
use std::time::Duration;

use steadfast_wire::Reason;
use steadfast_wire::rpc::ErrorObject;
use tokio::task::JoinSet;

use crate::engine::Engine;
use crate::panics::catch_panic;

/// Bounds each step of the shutdown that waits for the store.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn shutting_down() -> ErrorObject {
    Reason::ShuttingDown
        .error("The server shut down before the call was done. Whether it took effect is not known.")
}

impl Engine {
    /// Shuts the node down in bounded time:
    ///
    /// 1. refuses new requests, and asks clients that wait for no call of this node to reconnect;
    /// 2. waits up to `timeout` for running calls;
    /// 3. releases the calls that another node may run again, and answers the rest with an error;
    /// 4. deregisters the node.
    pub async fn drain(&self, timeout: Duration) {
        self.admission.close(self.now().plus(timeout));
        let engine = self.arc();
        self.spawn(async move {
            // A panic is logged. When this node has deregistered, other nodes take over what the
            // backend did not release.
            let _ = catch_panic(async { engine.backend().draining().await }).await;
        });
        self.disconnect_idle_readers();
        self.end_subscriptions();
        // A request that was admitted earlier is about to begin a call or attach a connection.
        let _ = tokio::time::timeout(STEP_TIMEOUT, self.admission.starting.wait_for_zero()).await;
        let _ = tokio::time::timeout(timeout, self.admission.calls.wait_for_zero()).await;
        let error = shutting_down();
        // Concurrently and in bounded time. If the store does not accept the errors, `leave` or the
        // node that reaps this one ends the calls.
        let mut failing = JoinSet::new();
        for session in self.sessions.all() {
            for (no, call) in session.release_reassignable_calls() {
                let (engine, session, error) = (self.arc(), Arc::clone(&session), error.clone());
                failing.spawn(async move { engine.fail(&session, no, &call, &error).await });
            }
        }
        self.fail_all_exchanges(&error);
        let _ =
            tokio::time::timeout(STEP_TIMEOUT, async { while failing.join_next().await.is_some() {} }).await;
        for session in self.sessions.all() {
            for tail in session.tails() {
                tail.fail_unresumable(&error);
            }
        }
        match tokio::time::timeout(STEP_TIMEOUT, self.store().leave(self.node(), self.now())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "could not deregister this node; other nodes will reap it")
            }
            Err(_) => tracing::warn!("could not deregister this node in time; other nodes will reap it"),
        }
    }

    /// Asks clients to reconnect that wait for no call of this node. Clients that wait for a call
    /// of another node and cannot reconnect count as calls until they have their answer.
    fn disconnect_idle_readers(&self) {
        for session in self.sessions.all() {
            session.disconnect_idle_readers();
        }
    }
}
