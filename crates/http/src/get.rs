//! GET: listen to a standalone stream, or resume any stream.

use http::Response;
use http::request::Parts;
use steadfast_engine::Principal;
use steadfast_wire::{EventId, accept, headers};

use crate::body::ResponseBody;
use crate::endpoint::{Endpoint, echo_session, header, legacy_only, session_header};
use crate::names;
use crate::problem::Problem;
use crate::sse_body::Opening;

impl Endpoint {
    pub(crate) async fn get(
        &self,
        parts: &Parts,
        principal: &Principal,
    ) -> Result<Response<ResponseBody>, Problem> {
        legacy_only(parts)?;
        let accepted = parts.headers.get_all(http::header::ACCEPT).iter();
        if !accepted
            .filter_map(|value| value.to_str().ok())
            .any(|value| accept::admits(value, headers::EVENT_STREAM))
        {
            return Err(Problem::not_acceptable(headers::EVENT_STREAM));
        }
        let session = self.session(parts, principal).await?;
        let after = match header(parts, &names::LAST_EVENT_ID)? {
            Some(id) => Some(
                EventId::parse(id).ok_or_else(|| Problem::from(steadfast_engine::Refusal::UnknownEvent))?,
            ),
            None => None,
        };
        let cursor = self.engine.attach(&session, after).await?;
        let opening = if after.is_some() { Opening::Resumed } else { Opening::Fresh(Vec::new()) };
        let mut response = self.stream(cursor, &session, opening).await;
        echo_session(&mut response, session_header(parts));
        Ok(response)
    }
}
