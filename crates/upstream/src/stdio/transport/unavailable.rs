//! Why no process can serve a request, and the HTTP response for it.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderValue, Response, StatusCode};
use steadfast_client::transport::Body;
use steadfast_wire::{Reason, RequestId};

use crate::stdio::transport::http_response::refuse;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unavailable {
    status: StatusCode,
    why: String,
    retry_after: Option<Duration>,
}

impl Unavailable {
    /// A process may be available in a moment.
    pub(crate) fn temporary(why: String) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, why, retry_after: None }
    }

    /// The program does not start. The program or its configuration is to blame. An immediate retry
    /// does not help.
    pub(crate) fn broken(why: String) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, why, retry_after: None }
    }

    /// The program has failed too often. The client should wait.
    pub(crate) fn later(why: String, wait: Duration) -> Self {
        Self { status: StatusCode::TOO_MANY_REQUESTS, why, retry_after: Some(wait) }
    }

    /// Changes the status to 503, for callers that take other statuses for answers of the program.
    pub(crate) fn into_service_unavailable(self) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, ..self }
    }

    pub(crate) fn response(self, id: &RequestId) -> Response<Body> {
        let error = Reason::UpstreamUnavailable.error(self.why);
        let mut response = refuse(self.status, Some(id), &error);
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
