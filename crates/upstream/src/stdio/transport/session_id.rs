//! The ids of sessions in stdio processes.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use steadfast_client::transport::Body;
use steadfast_wire::headers;

use crate::stdio::transport::http_response::json;

/// A session id in its parts: the run of the gateway, the process, and the session in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessSessionId {
    pub(crate) boot: u64,
    pub(crate) generation: u64,
    pub(crate) session: u64,
}

impl ProcessSessionId {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-');
        let boot = u64::from_str_radix(parts.next()?, 16).ok()?;
        let (generation, session) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { boot, generation, session })
    }

    pub(crate) fn initialize_response(self, text: Bytes) -> Response<Body> {
        let Self { boot, generation, session } = self;
        let mut response = json(StatusCode::OK, text);
        if let Ok(id) = HeaderValue::try_from(format!("{boot:x}-{generation}-{session}")) {
            response.headers_mut().insert(headers::SESSION_ID, id);
        }
        response
    }
}
