//! Appends messages to streams.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::{Append, AppendOutcome, Fence, Target};
use steadfast_session::{Class, Step};

use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::sessions::LiveSession;

impl Engine {
    /// Appends a message to the stream of a call or to a standalone stream. The command goes to the
    /// store before this function returns, so messages keep their order even if the futures are
    /// awaited in another order.
    pub(crate) fn append(
        &self,
        session: &Arc<LiveSession>,
        target: Target,
        class: Class,
        payload: Bytes,
        fence: Option<Fence>,
    ) -> impl Future<Output = Result<(), Refusal>> + Send + 'static + use<> {
        let append = Append { target, class, payload, fence };
        let reply = self.store().apply(session.id(), append.into_command(), self.now());
        let (engine, session) = (self.arc(), Arc::clone(session));
        async move {
            match Append::outcome(reply.await?) {
                Some(AppendOutcome::Appended { .. }) => Ok(()),
                Some(AppendOutcome::Full(limit)) => Err(Refusal::OverLimit(limit)),
                Some(AppendOutcome::Fenced) => Err(Refusal::Fenced),
                Some(AppendOutcome::NoSession) | None => Err(engine.session_gone(&session)),
            }
        }
    }
}
