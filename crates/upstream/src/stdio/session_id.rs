//! The ids of sessions in processes.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use steadfast_client::transport::Body;
use steadfast_wire::headers;

use super::reply::json;

/// A session as its id names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionId {
    pub(super) boot: u64,
    pub(super) generation: u64,
    pub(super) seat: u64,
}

impl SessionId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-');
        let boot = u64::from_str_radix(parts.next()?, 16).ok()?;
        let (generation, seat) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { boot, generation, seat })
    }

    /// The answer that opens a session.
    pub(super) fn welcome(self, text: Bytes) -> Response<Body> {
        let Self { boot, generation, seat } = self;
        let mut response = json(StatusCode::OK, text);
        if let Ok(id) = HeaderValue::try_from(format!("{boot:x}-{generation}-{seat}")) {
            response.headers_mut().insert(headers::SESSION_ID, id);
        }
        response
    }
}
