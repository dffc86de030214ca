//! Jobs: work that continues after the request that started it (tasks of the protocol).
//!
//! A job is an internal session with one call in flight. The job's record is the session state,
//! which every node can read and change. The call keeps the session from expiring while the job
//! runs, and is failed if its node dies.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::Duplicates;
use steadfast_session::{Facts, Principal, Read, SessionId, SessionToken, StreamNo};
use steadfast_store::{Opened, StoreError};
use steadfast_wire::{RequestId, Revision};
use tokio_util::sync::CancellationToken;

use crate::calls::{BegunCalls, CallHandle, ResponseFormat};
use crate::delivery::Cursor;
use crate::engine::Engine;
use crate::panics::catch_panic;
use crate::refusal::Refusal;
use crate::run_futures::unless_cancelled;
use crate::sessions::{LiveSession, SessionHandle};
use crate::stateless::Answer;

/// The stream of a session's first call.
pub(crate) const FIRST_CALL: StreamNo = StreamNo(1);

/// A job that does not run yet. Dropping it fails the job.
#[derive(Debug)]
pub struct CreatedJob {
    token: SessionToken,
    call: crate::calls::BegunCall,
    cursor: Cursor,
    session: SessionHandle,
    cancel: CancellationToken,
}

impl CreatedJob {
    /// The id under which the client knows the job.
    pub fn token(&self) -> SessionToken {
        self.token
    }

    pub fn session(&self) -> &SessionHandle {
        &self.session
    }

    /// Cancelled when a client cancels the job, its deadline passes, or the node shuts down.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }
}

/// Whether a job runs, apart from what its record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStatus {
    Running,
    /// The job has ended, or its node has died.
    Ended,
}

impl Engine {
    /// Creates a job. Every node can find it when this function returns.
    pub async fn create_job(&self, principal: Principal) -> Result<CreatedJob, Refusal> {
        let (token, session) = self.open_job(principal).await?;
        let format = ResponseFormat::EventStream;
        let BegunCalls { cursor, calls } =
            self.begin(&session, vec![RequestId::Number(0)], &[], format, Duplicates::Reject).await?;
        let Some(call) = calls.into_iter().next() else { return Err(Refusal::NoSession) };
        let cancel = call.cancelled();
        Ok(CreatedJob { token, call, cursor, session: self.session_handle(&session), cancel })
    }

    /// Opens the session of a job, without a call.
    pub(crate) async fn open_job(
        &self,
        principal: Principal,
    ) -> Result<(SessionToken, Arc<LiveSession>), Refusal> {
        if self.is_draining() {
            return Err(Refusal::Draining);
        }
        let token = self.entropy().session_token();
        let facts = Facts {
            id: token.id(),
            principal,
            revision: Revision::V2026_07_28,
            initialize: Bytes::new(),
            opened_at: self.now(),
        };
        let facts = match self.open_in_store(facts).await? {
            Opened::Opened(facts) => facts,
            Opened::IdInUse => {
                return Err(StoreError::Unavailable("the generated session id is in use".into()).into());
            }
            Opened::OverLimit(limit) => return Err(Refusal::OverLimit(limit)),
        };
        let (session, _) = self.sessions.get_or_create(&facts);
        Ok((token, session))
    }

    /// Runs a job in a task. `settle` records the result; it gets `None` if the work was cancelled,
    /// even if it returned something. The job counts as ended after that.
    pub fn run_job<S>(
        &self,
        job: CreatedJob,
        work: impl Future<Output = Answer> + Send + 'static,
        settle: impl FnOnce(Option<Answer>) -> S + Send + 'static,
    ) where
        S: Future<Output = ()> + Send,
    {
        let CreatedJob { call, cursor, cancel, .. } = job;
        let Some((call, in_flight)) = call.into_parts() else { return };
        let engine = self.arc();
        self.spawn(async move {
            let done = unless_cancelled(catch_panic(work), &cancel, engine.options().wind_down).await;
            let done = done.filter(|_| !cancel.is_cancelled());
            settle(done.map(|answer| answer.and_then(|answer| answer))).await;
            engine.end_job(&call, cursor).await;
            drop(in_flight);
        });
    }

    async fn end_job(&self, call: &CallHandle, cursor: Cursor) {
        call.finish(Bytes::from_static(br#"{"jsonrpc":"2.0","id":0,"result":{}}"#)).await;
        // Read completely, so that the store keeps the session as one without connections.
        cursor.read_to_end().await;
    }

    /// Returns the job with this id. Fails with [`Refusal::NoSession`] if it does not exist or
    /// belongs to another principal.
    pub async fn find_job(&self, id: SessionId, principal: &Principal) -> Result<SessionHandle, Refusal> {
        match self.store().facts(id).await? {
            Some(facts) if facts.revision.is_modern() && facts.principal == *principal => {
                Ok(SessionHandle::new(self.arc(), facts))
            }
            _ => Err(Refusal::NoSession),
        }
    }

    /// Returns whether the job still runs.
    pub async fn job_status(&self, id: SessionId) -> Result<JobStatus, Refusal> {
        match self.store().read(id, FIRST_CALL, 0, 1).await? {
            Read::Slice(slice) if !slice.ended && slice.events.is_empty() => Ok(JobStatus::Running),
            Read::Slice(_) | Read::Gone | Read::UnknownEvent => Ok(JobStatus::Ended),
            Read::NoSession => Err(Refusal::NoSession),
        }
    }
}
