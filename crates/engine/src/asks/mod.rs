//! Asks: requests to the client, and the wait for their answers.
//!
//! A session has a bounded number of asks in flight. Those beyond it wait in a queue of this node, in the order of
//! arrival; the store is the arbiter between nodes. One that waits for its turn is not in the store, so it costs nothing
//! there and goes with this process.

mod handle;
mod queue;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use steadfast_session::command::{Answer, Answered, AskOpened, Fence, OpenAsk, Target, Withdraw};
use steadfast_session::{AskNo, Limit, Outcome, Step, Time};
use steadfast_store::{StoreError, StoreExt};
use steadfast_wire::RequestId;

use crate::engine::Engine;
use crate::live::LiveSession;
use crate::options::AskOrder;
use crate::refusal::Refusal;

pub use handle::AskHandle;
pub(crate) use queue::{AskQueue, Bounds, Question, Ticket};

/// How long to wait before the store is asked again whether other nodes have left room.
const RETRY: Duration = Duration::from_millis(50);

impl Engine {
    /// Takes a request to the client. If there is room, it is on its way to the store when this returns, so that it keeps
    /// its place among the messages of its call; if not, it waits for its turn.
    pub(crate) fn ask(
        &self,
        session: &Arc<LiveSession>,
        target: Target,
        rest: Bytes,
        fence: Option<Fence>,
    ) -> AskHandle {
        let deadline = self.now().plus(self.options().ask_deadline);
        let taken = session.asks().take(Question { target, rest, fence }, deadline, self.ask_bounds());
        if taken.is_ok() {
            self.send_asks(session);
        }
        AskHandle::new(self.arc(), session, taken)
    }

    fn ask_bounds(&self) -> Bounds {
        let in_flight = match self.options().ask_order {
            AskOrder::Concurrent => self.store().rules().limits.asks,
            AskOrder::Strict => self.store().rules().limits.asks.min(1),
        };
        Bounds { in_flight, waiting: self.options().waiting_asks }
    }

    /// Sends as many asks to the store as there is room for.
    pub(crate) fn send_asks(&self, session: &Arc<LiveSession>) {
        // Whoever takes the next one also sends it before anybody takes another: that keeps the order.
        let _sending = session.sending_asks();
        loop {
            let next = session.asks().start(self.ask_bounds());
            let Some((ticket, Question { target, rest, fence })) = next else { return };
            let open = OpenAsk { target, owner: self.node(), rest, fence };
            let mut reply = self.store().apply(session.id(), open.into_command(), self.now());
            // A store that answers at once needs no task.
            match Pin::new(&mut reply).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => self.ask_sent(session, ticket, outcome),
                Poll::Pending => {
                    let (engine, session) = (self.arc(), Arc::clone(session));
                    self.spawn(async move {
                        engine.ask_sent(&session, ticket, reply.await);
                        engine.send_asks(&session);
                    });
                }
            }
        }
    }

    fn ask_sent(&self, session: &Arc<LiveSession>, ticket: Ticket, outcome: Result<Outcome, StoreError>) {
        let corrupt = || StoreError::Corrupt("an outcome of another command".into());
        let outcome = outcome.and_then(|outcome| OpenAsk::outcome(outcome).ok_or_else(corrupt));
        let why = match outcome {
            Ok(AskOpened::Opened { ask, .. }) => {
                let abandoned = session.asks().opened(ticket, ask);
                return abandoned.into_iter().for_each(|ask| self.withdraw_later(session, ticket, ask));
            }
            Ok(AskOpened::OverLimit(Limit::Asks)) => {
                if session.asks().no_room(ticket) {
                    self.send_asks_later(session);
                }
                return;
            }
            Ok(AskOpened::OverLimit(limit)) => Refusal::OverLimit(limit),
            Ok(AskOpened::CallGone) => Refusal::AskWithdrawn,
            Ok(AskOpened::Fenced) => Refusal::Fenced,
            Ok(AskOpened::NoSession) => {
                // The backend drops its handler there, which is the user's code, and a lock may be held here.
                let (engine, session) = (self.arc(), Arc::clone(session));
                self.spawn(async move { drop(engine.lost(&session)) });
                Refusal::AskWithdrawn
            }
            Err(error) => {
                if let StoreError::Unknown(_) = error {
                    // It may be open, and nobody here knows its number.
                    session.suspect();
                }
                error.into()
            }
        };
        session.asks().not_opened(ticket, why);
    }

    fn send_asks_later(&self, session: &Arc<LiveSession>) {
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.spawn(async move {
            tokio::time::sleep(RETRY).await;
            session.asks().try_again();
            engine.send_asks(&session);
        });
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn abandon_ask(&self, session: &Arc<LiveSession>, ticket: Ticket) {
        let open = session.asks().abandon(ticket);
        if let Some(ask) = open {
            self.withdraw_later(session, ticket, ask);
        }
    }

    /// Takes an ask back from the client. Its place is free when the store has heard of it.
    fn withdraw_later(&self, session: &Arc<LiveSession>, ticket: Ticket, ask: AskNo) {
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.spawn(async move {
            let withdraw = || engine.store().run(session.id(), Withdraw { ask }, engine.now());
            if let Err(error) = engine.patiently(withdraw).await {
                tracing::warn!(session = %session.id().short(), %ask, %error, "an ask could not be withdrawn");
                session.suspect();
            }
            session.asks().left(ticket);
            engine.send_asks(&session);
        });
    }

    /// Ends the wait of every asker whose time is over.
    pub(crate) fn expire_asks(&self, session: &Arc<LiveSession>, now: Time) {
        let open = session.asks().expire(now);
        for (ticket, ask) in open {
            self.withdraw_later(session, ticket, ask);
        }
    }

    /// The client answers an ask. `message` is the JSON text of its response.
    pub async fn answer(
        &self,
        session: &Arc<LiveSession>,
        id: &RequestId,
        message: Bytes,
    ) -> Result<(), Refusal> {
        let ask = AskNo::from_wire_id(id).ok_or(Refusal::UnknownAsk)?;
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.to_the_end(async move { engine.answer_now(&session, ask, message).await }).await
    }

    async fn answer_now(
        &self,
        session: &Arc<LiveSession>,
        ask: AskNo,
        message: Bytes,
    ) -> Result<(), Refusal> {
        session.asks().answering();
        let taken = self.take_answer(session, ask, message).await;
        session.asks().done_answering();
        self.send_asks(session);
        taken
    }

    /// Gives the answer to the store, which takes one for each ask, and to the asker if it waits here. Whether a command with an unknown outcome took effect
    /// is found out by sending it again, under the same name:
    ///
    /// - If it did and the asker waits elsewhere, the store still has the answer, and says so.
    /// - If it did and the asker waits here, the ask is gone from the store while the asker still waits. Nobody else has
    ///   answered it: an answer that came elsewhere is kept in the store until this node has handed it over.
    /// - If neither shows, the answer may have been kept and collected meanwhile, or somebody else's was. Then the client is
    ///   told that the outcome is not known, which is the truth.
    async fn take_answer(
        &self,
        session: &Arc<LiveSession>,
        ask: AskNo,
        message: Bytes,
    ) -> Result<(), Refusal> {
        let (node, attempt) = (self.node(), self.attempts.fetch_add(1, Ordering::Relaxed));
        let answer = Answer { ask, node, attempt, message: message.clone() };
        let send = || self.store().run(session.id(), answer.clone(), self.now());
        let first = send().await;
        let doubt = first.as_ref().err().filter(|error| matches!(error, StoreError::Unknown(_))).cloned();
        let outcome = if doubt.is_some() { self.patiently(send).await } else { first };
        if doubt.is_some() && !matches!(outcome, Ok(Answered::Answered { .. } | Answered::Kept { .. })) {
            // If the ask was taken and its answer is lost, the asker must hear of it.
            session.suspect();
        }
        match outcome? {
            Answered::Answered { .. } => session.asks().answered(ask, message),
            Answered::Kept { .. } => {}
            Answered::Unknown if doubt.is_some() && session.asks().answered_if_open(ask, message) => {}
            Answered::Unknown => return Err(doubt.map_or(Refusal::UnknownAsk, Refusal::Store)),
            Answered::Before => return Err(Refusal::UnknownAsk),
            Answered::OverLimit(limit) => return Err(Refusal::OverLimit(limit)),
            Answered::NoSession => return Err(self.lost(session)),
        }
        Ok(())
    }
}
