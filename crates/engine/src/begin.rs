//! Taking calls: the calls of one POST begin together or not at all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_session::command::{Begin, Begun};
use steadfast_session::{CallNo, StreamNo};
use steadfast_store::{StoreError, StoreExt};
use steadfast_wire::RequestId;
use tokio_util::sync::CancellationToken;

use crate::calls::{BegunCall, CallHandle};
use crate::cursor::Cursor;
use crate::engine::{Engine, Posted};
use crate::live::{LiveSession, Running};
use crate::reconcile::not_started;
use crate::refusal::Refusal;
use crate::tail::Tail;

/// How often a command whose outcome is unknown is sent again before the client is told to.
const BEGIN_ATTEMPTS: usize = 3;

impl Engine {
    /// Takes the calls of one POST: all or none.
    pub async fn begin(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        answer_only: bool,
    ) -> Result<Posted, Refusal> {
        let entered = self.admission.enter()?;
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.to_the_end(async move {
            let posted = engine.begin_now(&session, ids, answer_only).await;
            // What has begun counts for itself.
            drop(entered);
            posted
        })
        .await
    }

    async fn begin_now(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        answer_only: bool,
    ) -> Result<Posted, Refusal> {
        let delivered = session.beginning();
        let begun = self.begin_in_store(session, ids.clone(), answer_only, delivered.clone()).await;
        let (stream, first, connection) = match begun {
            Ok(Begun::Begun { stream, first, connection }) => (stream, first, connection),
            other => {
                let heard = other.is_ok();
                session.not_begun(if heard { Vec::new() } else { delivered });
                return Err(match other {
                    Ok(Begun::Duplicate(id)) => Refusal::Duplicate(id),
                    Ok(Begun::OverLimit(limit)) => Refusal::OverLimit(limit),
                    Ok(_) => self.lost(session),
                    Err(error) => error.into(),
                });
            }
        };
        let tail = Arc::new(Tail::of_new_stream(connection, self.options().tail_bytes));
        let deadline = self.now().plus(self.options().call_deadline);
        let resumable = !answer_only && session.facts().revision.primes_streams();
        let calls: Vec<_> = (first.0..)
            .map(CallNo)
            .zip(ids)
            .map(|(no, id)| {
                (no, Running { id, stream, deadline, resumable, cancel: CancellationToken::new() })
            })
            .collect();
        session.begun(stream, connection, &tail, &calls);
        let calls = calls
            .into_iter()
            .map(|(no, running)| BegunCall::new(CallHandle::new(self.arc(), session, no, running)))
            .collect();
        let cursor = Cursor::new(self.arc(), Arc::clone(session), tail, stream, connection, 0);
        Ok(Posted { cursor, calls })
    }

    /// An unknown outcome is resolved by asking again, which is safe because the command has a name.
    async fn begin_in_store(
        &self,
        session: &Arc<LiveSession>,
        ids: Vec<RequestId>,
        answer_only: bool,
        delivered: Vec<StreamNo>,
    ) -> Result<Begun, StoreError> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let mut begin = Begin {
            ids,
            owner: self.node(),
            attempt,
            again: false,
            duplicates: self.options().duplicates,
            answer_only,
            delivered,
        };
        for _ in 0..BEGIN_ATTEMPTS {
            match self.store().run(session.id(), begin.clone(), self.now()).await {
                Err(StoreError::Unknown(_)) => begin.again = true,
                // The one before may have happened.
                Err(_) if begin.again => {}
                outcome => return outcome,
            }
        }
        let (engine, session) = (self.arc(), Arc::clone(session));
        self.spawn(async move { engine.end_unknown_calls(&session, begin).await });
        Err(StoreError::Unknown("it did not say so when asked again, either".into()))
    }

    /// A begin whose outcome stayed unknown. Its client was told to try again, so whatever has begun is ended as
    /// soon as the store says what that is.
    pub(crate) async fn end_unknown_calls(&self, session: &Arc<LiveSession>, begin: Begin) {
        let begun = self.patiently(|| self.store().run(session.id(), begin.clone(), self.now())).await;
        if begun.is_err() {
            session.suspect();
        }
        let Ok(Begun::Begun { first, .. }) = begun else { return };
        for (no, id) in (first.0..).map(CallNo).zip(&begin.ids) {
            let end = || self.store().run(session.id(), not_started(no, id), self.now());
            if self.patiently(end).await.is_err() {
                session.suspect();
            }
        }
    }
}
