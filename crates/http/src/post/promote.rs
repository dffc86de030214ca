//! Stateless requests that are not answered soon: makes their responses resumable.
//!
//! The specification gives the streams of these requests no event ids. Clients resume any stream
//! whose events have ids, though, and lose their request otherwise when a connection breaks.

use std::time::Duration;

use http::Response;
use steadfast_engine::{Principal, Replies};

use super::{Endpoint, ResponseBody};
use crate::coarse_timer::Wait;
use crate::config::ResponseMode;
use crate::response::sse_body::StreamStart;

/// How long the store may take to create a job. One second: the client gets no notification
/// meanwhile, and the request can do without a job.
const MAX_CREATION: Duration = Duration::from_secs(1);

impl Endpoint {
    /// Returns true if the responses to stateless requests can be resumed.
    pub(crate) fn resumes_stateless(&self) -> bool {
        !self.engine.options().resume_grace.is_zero()
    }

    /// Waits for the answer. Returns true if the answer is not there in time and the request can
    /// become a job.
    pub(super) async fn should_promote(&self, replies: &mut Replies) -> bool {
        // The setting asks for a plain answer, which a resumable response could not be.
        let is_plain = self.config.response == ResponseMode::Json;
        if is_plain || !self.resumes_stateless() || replies.is_subscription() || replies.is_answered() {
            return false;
        }
        tokio::select! {
            biased;
            () = answered(replies) => return false,
            () = self.timer.wait(Wait::BeforePromotion) => {}
        }
        let rest = self.config.auth_wait.saturating_sub(Wait::BeforePromotion.duration());
        if !rest.is_zero() {
            // A client fetches new credentials when it sees a status, which a stream cannot carry.
            let checked = std::future::poll_fn(|context| replies.poll_credentials_checked(context));
            let _ = tokio::time::timeout(rest, checked).await;
        }
        !replies.is_answered()
    }

    /// Turns the exchange into a job, and returns a response that the client can resume. Returns
    /// the replies if the answer is there first, or if the store does not accept the job.
    pub(super) async fn promote(
        &self,
        mut replies: Replies,
        principal: &Principal,
    ) -> Result<Response<ResponseBody>, Replies> {
        let request = replies.id().clone();
        let created = tokio::time::timeout(MAX_CREATION, self.engine.create_call_job(principal, &request));
        let created = tokio::select! {
            biased;
            () = answered(&mut replies) => return Err(replies),
            created = created => created,
        };
        let why = match created {
            Ok(Ok(job)) => {
                let (token, cursor) = self.engine.promote(job, replies);
                return Ok(self.job_stream(cursor, (token, request), StreamStart::New(Vec::new())).await);
            }
            Ok(Err(refusal)) => refusal.to_string(),
            Err(_) => "the store takes too long".to_owned(),
        };
        tracing::debug!(why, "a stateless request cannot be resumed");
        Err(replies)
    }
}

async fn answered(replies: &mut Replies) {
    std::future::poll_fn(|context| replies.poll_answered(context)).await;
}
