//! Asks: requests to the client, and the wait for their answers.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::AskNo;
use steadfast_session::command::{Answer, Answered, AskOpened, OpenAsk, Target, Withdraw};
use steadfast_store::{StoreError, StoreExt};
use steadfast_wire::RequestId;

use crate::engine::Engine;
use crate::live::LiveSession;
use crate::refusal::Refusal;

impl Engine {
    pub(crate) async fn ask(
        &self,
        session: &Arc<LiveSession>,
        target: Target,
        rest: Bytes,
    ) -> Result<Bytes, Refusal> {
        let open = OpenAsk { target, owner: self.node(), rest };
        session.asking();
        let opened = self.store().run(session.id(), open, self.now()).await;
        let Ok(AskOpened::Opened { ask, .. }) = opened else {
            session.not_asked();
            return Err(match opened? {
                AskOpened::OverLimit(limit) => Refusal::OverLimit(limit),
                AskOpened::NoSession => self.lost(session),
                AskOpened::CallGone | AskOpened::Opened { .. } => Refusal::UnknownAsk,
            });
        };
        match tokio::time::timeout(self.options().ask_deadline, session.asked(ask)).await {
            Ok(Ok(answer)) => Ok(answer),
            // Withdrawn: its call or its session has ended.
            Ok(Err(_)) => Err(Refusal::UnknownAsk),
            Err(_) => {
                session.stop_waiting(ask);
                self.store().run(session.id(), Withdraw { ask }, self.now()).await?;
                Err(Refusal::AskDeadline)
            }
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
        let mut outcome = self.store().run(session.id(), Answer { ask }, self.now()).await;
        let mut repeated = false;
        if let Err(StoreError::Unknown(_)) = outcome {
            repeated = true;
            outcome = self.store().run(session.id(), Answer { ask }, self.now()).await;
        }
        match outcome? {
            Answered::Answered { .. } => {}
            // The first attempt took it: whoever waits here has not been served by anybody else.
            Answered::Unknown if repeated && session.is_awaited(ask) => {}
            Answered::Unknown => return Err(Refusal::UnknownAsk),
            Answered::NoSession => return Err(self.lost(session)),
        }
        session.answer(ask, message);
        Ok(())
    }
}
