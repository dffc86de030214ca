//! GET: opens a standalone stream, or resumes any stream.

use bytes::BytesMut;
use http::Response;
use http::request::Parts;
use steadfast_engine::{Principal, Refusal, SessionToken};
use steadfast_wire::sse::encode;
use steadfast_wire::{EventId, JobEventId, Reason, RequestId, headers, media_types};

use crate::mcp_endpoint::Endpoint;
use crate::request::header_names;
use crate::request::headers::{ClaimedEra, claimed_version, session_header, single_header};
use crate::response::body::ResponseBody;
use crate::response::problem::Problem;
use crate::response::sse_body::StreamStart;
use crate::response::{event_stream, repeat_session_id};

impl Endpoint {
    pub(crate) async fn get(
        &self,
        parts: &Parts,
        principal: &Principal,
    ) -> Result<Response<ResponseBody>, Problem> {
        let era = claimed_version(parts, &self.config.revisions)?;
        let after = single_header(parts, &header_names::LAST_EVENT_ID)?;
        if era == ClaimedEra::Modern && (after.is_none_or(str::is_empty) || !self.resumes_stateless()) {
            return Err(Problem::method_not_allowed());
        }
        let accepted = parts.headers.get_all(http::header::ACCEPT).iter();
        if !accepted
            .filter_map(|value| value.to_str().ok())
            .any(|value| media_types::accepts(value, headers::EVENT_STREAM))
        {
            return Err(Problem::not_acceptable(headers::EVENT_STREAM));
        }
        // The id decides. An adapter (mcp-remote) has a session, passes on requests of a client
        // that has none, and resumes these with the headers of its session.
        let is_of_a_job = |after| self.resumes_stateless() && JobEventId::parse(after).is_some();
        match (era, after) {
            (ClaimedEra::Modern, Some(after)) => self.resume_stateless(after, principal).await,
            (_, Some(after)) if is_of_a_job(after) => self.resume_stateless(after, principal).await,
            (_, after) => self.get_in_session(parts, after, principal).await,
        }
    }

    async fn get_in_session(
        &self,
        parts: &Parts,
        after: Option<&str>,
        principal: &Principal,
    ) -> Result<Response<ResponseBody>, Problem> {
        if !parts.headers.contains_key(&header_names::SESSION_ID) {
            // Not 400, as for other requests without a session: Cursor leaves the header out of its
            // first GET, and would repeat the GET for ever. 405 means that there is no stream.
            return Err(Problem::no_stream());
        }
        let session = self.session(parts, principal).await?;
        let after = match after {
            Some(id) => Some(EventId::parse(id).ok_or(Refusal::UnknownEvent)?),
            None => None,
        };
        let cursor = self.engine.attach(&session, after).await?;
        let start = if after.is_some() { StreamStart::Resumed } else { StreamStart::New(Vec::new()) };
        let mut response = self.stream(cursor, &session, start).await;
        repeat_session_id(&mut response, session_header(parts));
        Ok(response)
    }

    /// Resumes the response to a stateless request. If the request's job is gone, or belongs to
    /// another principal, the client gets an error for its request on a complete stream: clients
    /// treat a refusal as a lost connection and leave the request waiting.
    async fn resume_stateless(
        &self,
        after: &str,
        principal: &Principal,
    ) -> Result<Response<ResponseBody>, Problem> {
        let parsed = JobEventId::parse(after).and_then(|id| Some((SessionToken::parse(&id.token)?, id)));
        let (token, JobEventId { seq, request, .. }) = parsed.ok_or(Refusal::UnknownEvent)?;
        match self.engine.resume_call(token, principal, seq).await {
            Ok(cursor) => Ok(self.job_stream(cursor, (token, request), StreamStart::Resumed).await),
            Err(Refusal::NoSession | Refusal::Gone | Refusal::UnknownEvent) => Ok(outcome_unknown(&request)),
            Err(refusal) => Err(Problem::from(refusal).with_id(Some(&request))),
        }
    }
}

fn outcome_unknown(request: &RequestId) -> Response<ResponseBody> {
    let error = Reason::OutcomeUnknown
        .error("The answer is not kept any more. Whether the request took effect is not known.");
    let mut events = BytesMut::new();
    encode::event_without_id(&mut events, &error.to_message(Some(request)));
    event_stream(ResponseBody::full(events.freeze()))
}
