//! Going down in good order and in bounded time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use steadfast_wire::rpc::ErrorObject;

use crate::engine::Engine;

impl Engine {
    /// Takes no more requests, lets running calls finish for as long as `patience`, gives the rest an explicit
    /// error, and sends every waiting connection away with the advice to come back.
    pub async fn drain(&self, patience: Duration) {
        self.draining.store(true, Ordering::Release);
        self.send_waiting_connections_away();
        let _ = tokio::time::timeout(patience, self.all_calls_ended()).await;
        let error = ErrorObject::internal(
            "shutting_down",
            "The server shut down before the call was done. Whether it took effect is not known.",
            false,
        );
        for session in self.live.all() {
            for (no, call) in session.running() {
                self.fail(&session, no, &call, &error).await;
            }
        }
        for session in self.live.all() {
            for tail in session.tails() {
                tail.tell_to_leave();
            }
        }
        if let Err(error) = self.store().leave(self.node(), self.now()).await {
            tracing::warn!(%error, "this node could not take leave of the store");
        }
    }

    async fn all_calls_ended(&self) {
        loop {
            let ended = self.call_ended.notified();
            if self.running.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Connections that wait for no call of this node.
    fn send_waiting_connections_away(&self) {
        for session in self.live.all() {
            session.send_waiting_away();
        }
    }
}
