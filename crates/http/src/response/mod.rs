//! Responses: their heads, their bodies and refusals.

pub(crate) mod body;
pub(crate) mod exchange_body;
mod keep_alive;
pub mod problem;
pub(crate) mod sse_body;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use steadfast_engine::SessionToken;
use steadfast_wire::headers;

use crate::request::header_names;
use body::ResponseBody;

pub(crate) fn event_stream(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    let map = response.headers_mut();
    map.insert(CONTENT_TYPE, HeaderValue::from_static(headers::EVENT_STREAM));
    map.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    map.insert(header_names::ACCEL_BUFFERING.clone(), HeaderValue::from_static("no"));
    response
}

pub(crate) fn json(message: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(message));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(headers::JSON));
    response
}

pub(crate) fn empty(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::empty());
    *response.status_mut() = status;
    response
}

/// Adds the token of a new session.
pub(crate) fn set_session_id(response: &mut Response<ResponseBody>, token: SessionToken) {
    // All characters of a token are valid in a header.
    if let Ok(mut value) = HeaderValue::from_str(&token.expose()) {
        value.set_sensitive(true);
        response.headers_mut().insert(header_names::SESSION_ID.clone(), value);
    }
}

/// Repeats the session header of the request, because some clients and proxies look for it.
pub(crate) fn repeat_session_id(response: &mut Response<ResponseBody>, header: Option<HeaderValue>) {
    if let Some(value) = header {
        response.headers_mut().insert(header_names::SESSION_ID.clone(), value);
    }
}
