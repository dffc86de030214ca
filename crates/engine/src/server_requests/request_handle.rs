//! The future of a server request: waits for the client's answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::queue::{LocalNo, Outcome};
use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::sessions::LiveSession;

/// A server request that was enqueued. It proceeds whether this future is polled or not. The future
/// returns the JSON-RPC message with the client's answer. Dropping it withdraws the request and
/// notifies the client.
#[must_use = "a server request is withdrawn when its handle is dropped"]
pub struct ServerRequestHandle(State);

enum State {
    Waiting {
        engine: Arc<Engine>,
        session: Arc<LiveSession>,
        local: LocalNo,
        outcome: oneshot::Receiver<Outcome>,
    },
    Refused(Refusal),
    Completed,
}

impl ServerRequestHandle {
    pub(super) fn new(
        engine: Arc<Engine>,
        session: &Arc<LiveSession>,
        enqueued: Result<(LocalNo, oneshot::Receiver<Outcome>), Refusal>,
    ) -> Self {
        Self(match enqueued {
            Ok((local, outcome)) => State::Waiting { engine, session: Arc::clone(session), local, outcome },
            Err(refusal) => State::Refused(refusal),
        })
    }
}

impl Future for ServerRequestHandle {
    type Output = Result<Bytes, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.0 {
            // The queue was dropped together with its session.
            State::Waiting { outcome, .. } => {
                ready!(Pin::new(outcome).poll(context)).unwrap_or(Err(Refusal::ServerRequestWithdrawn))
            }
            State::Refused(refusal) => Err(refusal.clone()),
            State::Completed => Err(Refusal::ServerRequestWithdrawn),
        };
        self.0 = State::Completed;
        Poll::Ready(outcome)
    }
}

impl Drop for ServerRequestHandle {
    fn drop(&mut self) {
        if let State::Waiting { engine, session, local, .. } = &self.0 {
            engine.abandon_server_request(session, *local);
        }
    }
}

impl std::fmt::Debug for ServerRequestHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            State::Waiting { .. } => "ServerRequestHandle(waiting)",
            State::Refused(_) | State::Completed => "ServerRequestHandle(completed)",
        })
    }
}
