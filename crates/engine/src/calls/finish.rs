//! Ends calls: with the backend's answer, with an error, or because the client cancels them.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::CallNo;
use steadfast_session::command::{Cancel, Cancelled, Finish, Finished};
use steadfast_store::{StoreError, StoreExt};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{Reason, RequestId};

use crate::engine::Engine;
use crate::refusal::Refusal;
use crate::sessions::{LiveSession, RunningCall};

/// How many kept answers one sweep sends to the store.
const ANSWERS_PER_SWEEP: usize = 1024;

impl Engine {
    /// Stores the answer of a call. The first answer counts, so the command can be repeated while
    /// its outcome is unknown. If the store does not accept it in time, the answer stays in memory
    /// for [`Engine::store_kept_answers`].
    pub(crate) async fn finish(&self, session: &Arc<LiveSession>, no: CallNo, payload: Bytes) {
        // An answer that was kept earlier comes first: the client may have received it.
        let payload = session.unstored_answer(no).unwrap_or(payload);
        if let Err(error) = self.with_retry(|| self.finish_once(session, no, payload.clone())).await {
            tracing::error!(session = %session.id().short(), %error, "could not store the answer of a call; kept in memory, the sweeper will retry");
            session.keep_unstored_answer(no, payload);
        }
    }

    async fn finish_once(
        &self,
        session: &Arc<LiveSession>,
        call: CallNo,
        payload: Bytes,
    ) -> Result<(), StoreError> {
        let finished = self.store().run(session.id(), Finish { call, payload }, self.now()).await?;
        if finished == Finished::NoSession {
            self.session_gone(session);
        }
        if let Some(call) = session.remove_call(call) {
            call.cancel.cancel();
        }
        Ok(())
    }

    /// Retries the answers that the store did not accept, a bounded number at a time.
    pub(crate) async fn store_kept_answers(&self, sessions: &[Arc<LiveSession>]) {
        let kept = sessions.iter().flat_map(|session| {
            session.unstored_answers().into_iter().map(move |(no, answer)| (session, no, answer))
        });
        for (session, no, answer) in kept.take(ANSWERS_PER_SWEEP) {
            if self.finish_once(session, no, answer).await.is_err() {
                // The store is not ready for the other answers either.
                return;
            }
        }
    }

    /// Answers a call with an error.
    pub(crate) async fn fail(
        &self,
        session: &Arc<LiveSession>,
        no: CallNo,
        call: &RunningCall,
        error: &ErrorObject,
    ) {
        self.finish(session, no, error.to_message(Some(&call.id)).into()).await;
    }

    /// Answers a call with an error and tries the store only once. A failed attempt is retried by
    /// the sweeper.
    pub(crate) async fn try_fail(
        &self,
        session: &Arc<LiveSession>,
        no: CallNo,
        call: &RunningCall,
        error: &ErrorObject,
    ) {
        let payload = Bytes::from(error.to_message(Some(&call.id)));
        if self.finish_once(session, no, payload.clone()).await.is_err() {
            session.keep_unstored_answer(no, payload);
        }
    }

    /// Cancels the client's own call. An id that no call has is not an error.
    pub async fn cancel(&self, session: &Arc<LiveSession>, id: RequestId) -> Result<(), Refusal> {
        match self.store().run(session.id(), Cancel { id: id.clone() }, self.now()).await? {
            Cancelled::Cancelled { .. } | Cancelled::Nothing => Ok(()),
            Cancelled::Ambiguous => {
                tracing::warn!(session = %session.id().short(), %id, "cancellation ignored: several calls in flight have this id");
                Ok(())
            }
            Cancelled::NoSession => Err(self.session_gone(session)),
        }
    }
}

/// Returns the command that answers a call with the error that no node has started it.
pub(crate) fn not_started(call: CallNo, id: &RequestId) -> Finish {
    let error = Reason::NotStarted.error("The call was not started.");
    Finish { call, payload: error.to_message(Some(id)).into() }
}
