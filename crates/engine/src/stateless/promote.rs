//! Promotes a stateless request to a job, so that its client can resume the response at any node.
//!
//! The job is an internal session with one call. A task reads the replies of the exchange and
//! appends them to the call's stream, and the response reads that stream like any other. The
//! exchange itself does not notice, except that a broken connection does not cancel it at once
//! (`upkeep::abandoned_calls`).

use std::sync::Arc;

use steadfast_session::command::{Close, Duplicates};
use steadfast_session::{Class, CloseReason, Facts, Principal, SessionToken};
use steadfast_store::StoreExt;
use steadfast_wire::{EventId, Reason, RequestId};
use tokio_util::sync::CancellationToken;

use crate::backend::response;
use crate::calls::{BegunCall, BegunCalls, CallHandle, ResponseFormat};
use crate::delivery::Cursor;
use crate::engine::Engine;
use crate::internal_sessions::{FIRST_CALL, call_principal};
use crate::refusal::Refusal;
use crate::sessions::LiveSession;
use crate::shutdown::InFlightGuard;
use crate::stateless::{Answer, Replies, Reply};

/// The job of a stateless request, before the request is handed over to it. Dropping it closes the
/// job.
#[derive(Debug)]
pub struct CallJob {
    token: SessionToken,
    call: BegunCall,
    cursor: Cursor,
    unused: UnusedJob,
}

/// A job that no client knows. Dropping it closes the job.
#[derive(Debug)]
struct UnusedJob(Option<(Arc<Engine>, Arc<LiveSession>)>);

impl Drop for UnusedJob {
    fn drop(&mut self) {
        let Some((engine, session)) = self.0.take() else { return };
        engine.clone().spawn(async move {
            let close = Close { reason: CloseReason::ServerEnded };
            let closed = engine.with_retry(|| engine.store().run(session.id(), close.clone(), engine.now()));
            if let Err(error) = closed.await {
                tracing::debug!(%error, "could not close an unused job; it will expire");
            }
        });
    }
}

impl Engine {
    /// Creates a job for the exchange of these replies. Every node can find it when this function
    /// returns. The exchange continues without the job if this fails or is dropped.
    pub async fn create_call_job(&self, principal: &Principal, id: &RequestId) -> Result<CallJob, Refusal> {
        let admitted = self.admission.admit()?;
        let (engine, principal, id) = (self.arc(), call_principal(principal), id.clone());
        self.run_detached(async move {
            let (token, session) = engine.open_job(principal).await?;
            let unused = UnusedJob(Some((Arc::clone(&engine), Arc::clone(&session))));
            let (format, duplicates) = (ResponseFormat::EventStream, Duplicates::Reject);
            let begun = engine.begin_admitted(&session, vec![id], &[], format, duplicates, admitted).await?;
            let BegunCalls { cursor, calls } = begun;
            let Some(call) = calls.into_iter().next() else { return Err(Refusal::NoSession) };
            Ok(CallJob { token, call, cursor, unused })
        })
        .await
    }

    /// Hands an exchange over to its job. Returns the token that leads to the job, and the cursor
    /// that reads everything that the exchange has not delivered yet.
    pub fn promote(&self, job: CallJob, replies: Replies) -> (SessionToken, Cursor) {
        let CallJob { token, call, cursor, mut unused } = job;
        unused.0 = None;
        if let Some((call, in_flight)) = call.into_parts() {
            let engine = self.arc();
            self.spawn(async move { engine.store_replies(&call, replies, in_flight).await });
        }
        (token, cursor)
    }

    /// Attaches a connection to the job of a stateless request, after the event `seq`. Fails with
    /// [`Refusal::NoSession`] if the job does not exist or belongs to another principal.
    pub async fn resume_call(
        &self,
        token: SessionToken,
        principal: &Principal,
        seq: u64,
    ) -> Result<Cursor, Refusal> {
        let owner = call_principal(principal);
        let is_accessible = |facts: &Arc<Facts>| facts.is_call_job() && facts.principal == owner;
        let (session, _) = self.find_where(token.id(), is_accessible).await?;
        session.mark_used(self.now());
        let after = EventId { stream: FIRST_CALL.0, seq, tag: session.tag() };
        self.attach(&session, Some(after)).await
    }

    /// Appends the replies of an exchange to the stream of its job, until the answer.
    async fn store_replies(&self, call: &CallHandle, mut replies: Replies, in_flight: InFlightGuard) {
        let answer = store_notifications(call, &mut replies).await;
        call.finish(response(call.id(), &answer)).await;
        drop(in_flight);
    }
}

/// Appends notifications until the answer, and returns the answer.
async fn store_notifications(call: &CallHandle, replies: &mut Replies) -> Answer {
    let mut was_refused = false;
    loop {
        let (class, payload) = match next_reply(replies, call.cancelled()).await {
            // No client waits for it.
            Some(Reply::Message(..)) if call.cancelled().is_cancelled() => continue,
            Some(Reply::Message(class, payload)) => (class, payload),
            Some(Reply::Answer(answer)) => return answer,
            // The answer is the last reply, so this is the end of a loop that had ended before.
            None => return Err(Reason::Cancelled.error("The request was cancelled.")),
        };
        // All that is available goes to the store at once, in order.
        let mut appends = vec![(class, call.notify(class, payload))];
        while let Some((class, payload)) = replies.take_message() {
            appends.push((class, call.notify(class, payload)));
        }
        for (class, append) in appends {
            if let Err(refusal) = append.await
                && class != Class::Droppable
                && !std::mem::replace(&mut was_refused, true)
            {
                tracing::warn!(%refusal, "dropped a notification of a stateless request; not logged again for this request");
            }
        }
    }
}

/// Waits for the next reply. Cancels the exchange when its call is cancelled: the call was
/// abandoned or ended by another node, or its deadline has passed. A server that always has a
/// notification does not delay that.
pub(super) async fn next_reply(replies: &mut Replies, cancelled: &CancellationToken) -> Option<Reply> {
    tokio::select! {
        biased;
        () = cancelled.cancelled() => replies.cancel(),
        reply = std::future::poll_fn(|context| replies.poll_next(context)) => return reply,
    }
    std::future::poll_fn(|context| replies.poll_next(context)).await
}
