//! Why there is no process.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderValue, Response, StatusCode};
use steadfast_client::transport::Body;
use steadfast_wire::RequestId;
use steadfast_wire::rpc::ErrorObject;

use super::reply::refuse;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unavailable {
    status: StatusCode,
    why: String,
    retry_after: Option<Duration>,
}

impl Unavailable {
    /// There may be one in a moment.
    pub(super) fn now(why: String) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, why, retry_after: None }
    }

    /// The program, or whoever configured it: it does not start. Whoever tries again at once fares no better.
    pub(super) fn broken(why: String) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, why, retry_after: None }
    }

    /// It has been tried often enough for now.
    pub(super) fn later(why: String, wait: Duration) -> Self {
        Self { status: StatusCode::TOO_MANY_REQUESTS, why, retry_after: Some(wait) }
    }

    /// Said to somebody who takes every other status for a word of the program's.
    pub(super) fn for_now(self) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, ..self }
    }

    pub(super) fn response(self, id: &RequestId) -> Response<Body> {
        let error = ErrorObject::internal("upstream_unavailable", self.why, true);
        let mut response = refuse(self.status, Some(id), &error);
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
