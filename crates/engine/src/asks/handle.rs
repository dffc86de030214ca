//! An ask as whoever asked it holds it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::queue::{Outcome, Ticket};
use crate::engine::Engine;
use crate::live::LiveSession;
use crate::refusal::Refusal;

/// A request to the client that was taken. It goes its way whether this is polled or not; this waits for the JSON text of
/// the client's response message. Dropping it withdraws the request, and the client is told.
#[must_use = "an ask that is dropped is withdrawn"]
pub struct AskHandle(State);

enum State {
    Waiting {
        engine: Arc<Engine>,
        session: Arc<LiveSession>,
        ticket: Ticket,
        outcome: oneshot::Receiver<Outcome>,
    },
    Refused(Refusal),
    Over,
}

impl AskHandle {
    pub(super) fn new(
        engine: Arc<Engine>,
        session: &Arc<LiveSession>,
        taken: Result<(Ticket, oneshot::Receiver<Outcome>), Refusal>,
    ) -> Self {
        Self(match taken {
            Ok((ticket, outcome)) => State::Waiting { engine, session: Arc::clone(session), ticket, outcome },
            Err(refusal) => State::Refused(refusal),
        })
    }
}

impl Future for AskHandle {
    type Output = Result<Bytes, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = match &mut self.0 {
            // A queue that is gone without a word has gone with its session.
            State::Waiting { outcome, .. } => {
                ready!(Pin::new(outcome).poll(context)).unwrap_or(Err(Refusal::AskWithdrawn))
            }
            State::Refused(refusal) => Err(refusal.clone()),
            State::Over => Err(Refusal::AskWithdrawn),
        };
        self.0 = State::Over;
        Poll::Ready(outcome)
    }
}

impl Drop for AskHandle {
    fn drop(&mut self) {
        if let State::Waiting { engine, session, ticket, .. } = &self.0 {
            engine.abandon_ask(session, *ticket);
        }
    }
}

impl std::fmt::Debug for AskHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            State::Waiting { .. } => "AskHandle(waiting)",
            State::Refused(_) | State::Over => "AskHandle(over)",
        })
    }
}
