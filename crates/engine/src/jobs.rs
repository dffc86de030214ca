//! Jobs: work that outlives the request which started it.
//!
//! A job is a session of a stateless revision with one call in flight. Its state is what others see of it, any node may
//! change that, and the call keeps it from expiring while it runs and is failed when its node dies. No client can use
//! it as a session.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::{Facts, Principal, Read, SessionId, SessionToken, StreamNo};
use steadfast_store::{Opened, StoreError};
use steadfast_wire::{RequestId, Revision};
use tokio_util::sync::CancellationToken;

use crate::calls::{CallHandle, catch_panic, unless_cancelled};
use crate::cursor::Cursor;
use crate::engine::{Engine, Posted};
use crate::exchange::Answer;
use crate::handle::SessionHandle;
use crate::refusal::Refusal;

/// The stream of a session's first call.
const FIRST_CALL: StreamNo = StreamNo(1);

/// A job that nobody runs yet. Dropped, it fails.
#[derive(Debug)]
pub struct StartedJob {
    token: SessionToken,
    call: crate::calls::BegunCall,
    cursor: Cursor,
    session: SessionHandle,
    cancel: CancellationToken,
}

impl StartedJob {
    /// What the client names the job with.
    pub fn token(&self) -> SessionToken {
        self.token
    }

    pub fn session(&self) -> &SessionHandle {
        &self.session
    }

    /// Cancelled when somebody cancels the job, its deadline passes, or the node shuts down.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }
}

/// How a job stands, apart from what its state says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStatus {
    Running,
    /// Whoever ran it has ended it, or has ended.
    Over,
}

impl Engine {
    /// Opens the record of a job. It is there, for every node, before this returns.
    pub async fn start_job(&self, principal: Principal) -> Result<StartedJob, Refusal> {
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
        let facts = match self.store().open(facts).await? {
            Opened::Opened(facts) => facts,
            Opened::Taken => return Err(StoreError::Unavailable("the id is taken".into()).into()),
            Opened::OverLimit(limit) => return Err(Refusal::OverLimit(limit)),
        };
        let (session, _) = self.live.enter(&facts);
        let Posted { cursor, calls } = self.begin(&session, vec![RequestId::Number(0)], &[], false).await?;
        let Some(call) = calls.into_iter().next() else { return Err(Refusal::NoSession) };
        let cancel = call.cancelled();
        Ok(StartedJob { token, call, cursor, session: self.handle(&session), cancel })
    }

    /// Runs a job to its end. `settle` records what came of it, and is given `None` for work that was cancelled, whatever it
    /// gave back; only then is the job over.
    pub fn run_job<S>(
        &self,
        job: StartedJob,
        work: impl Future<Output = Answer> + Send + 'static,
        settle: impl FnOnce(Option<Answer>) -> S + Send + 'static,
    ) where
        S: Future<Output = ()> + Send,
    {
        let StartedJob { call, cursor, cancel, .. } = job;
        let Some((call, counted)) = call.take() else { return };
        let engine = self.arc();
        self.spawn(async move {
            let done = unless_cancelled(catch_panic(work), &cancel, engine.options().wind_down).await;
            let done = done.filter(|_| !cancel.is_cancelled());
            settle(done.map(|answer| answer.and_then(|answer| answer))).await;
            engine.end_job(&call, cursor).await;
            drop(counted);
        });
    }

    async fn end_job(&self, call: &CallHandle, cursor: Cursor) {
        call.finish(Bytes::from_static(br#"{"jsonrpc":"2.0","id":0,"result":{}}"#)).await;
        // Read to its end by the one who wrote it, so that the record lives on as a session without connections does.
        cursor.read_out().await;
    }

    /// The job with this id, if it is this principal's.
    pub async fn job(&self, id: SessionId, principal: &Principal) -> Result<SessionHandle, Refusal> {
        match self.store().facts(id).await? {
            Some(facts) if facts.revision.is_modern() && facts.principal == *principal => {
                Ok(SessionHandle::new(self.arc(), facts))
            }
            _ => Err(Refusal::NoSession),
        }
    }

    /// Whether somebody still works on a job.
    pub async fn job_status(&self, id: SessionId) -> Result<JobStatus, Refusal> {
        match self.store().read(id, FIRST_CALL, 0, 1).await? {
            Read::Slice(slice) if !slice.ended && slice.entries.is_empty() => Ok(JobStatus::Running),
            Read::Slice(_) | Read::Gone | Read::UnknownEvent => Ok(JobStatus::Over),
            Read::NoSession => Err(Refusal::NoSession),
        }
    }
}

/// Whether a session is the record of a job, which is nobody's session.
pub(crate) fn is_job(facts: &Arc<Facts>) -> bool {
    facts.revision.is_modern()
}
