//! CORS: preflight requests, and headers that let web pages of allowed origins read responses.
//!
//! An allowed origin gets these headers on every response, including refusals, because otherwise
//! the page could not read the reason. Other origins get none. The endpoint uses no cookies, so it
//! does not allow credentials; pages set tokens themselves.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN, VARY,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};

use crate::config::Origins;
use crate::request::guard;
use crate::response::body::ResponseBody;
use crate::response::empty;

const METHODS: &str = "GET, POST, DELETE, OPTIONS";

/// Request headers that clients of every revision send.
const REQUEST_HEADERS: &str = "Content-Type, Accept, Authorization, Mcp-Session-Id, MCP-Protocol-Version, Last-Event-ID, \
                    Mcp-Method, Mcp-Name";

/// Headers that mirror tool arguments. The server chooses their names.
const PARAM_HEADER_PREFIX: &str = "mcp-param-";

/// Response headers that pages need.
const EXPOSED_HEADERS: &str = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After";

/// How many seconds a browser may cache the preflight response. No browser caches it longer.
const MAX_AGE: &str = "7200";

pub(crate) fn allowed_origin(parts: &Parts, origins: &Origins) -> Option<HeaderValue> {
    match guard::check_origin(parts, origins) {
        Ok(()) => parts.headers.get(ORIGIN).cloned(),
        Err(_) => None,
    }
}

/// Returns true for a CORS preflight request. Only browsers send these.
pub(crate) fn is_preflight(parts: &Parts) -> bool {
    parts.method == Method::OPTIONS
        && parts.headers.contains_key(ORIGIN)
        && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The response to a preflight request that has passed the guard.
pub(crate) fn preflight(parts: &Parts) -> Response<ResponseBody> {
    let mut response = empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(parts));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    response
}

/// Allows the page at this origin to read the response.
pub(crate) fn allow_read(allowed_origin: HeaderValue, response: &mut Response<ResponseBody>) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed_origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
    headers.append(VARY, HeaderValue::from_static("Origin"));
}

/// The header names that a page may send. Their number is bounded by the size of the request's
/// head.
fn allowed_headers(parts: &Parts) -> HeaderValue {
    let asked = parts.headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let names =
        asked.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim);
    // A valid header name contains no character that could end a header.
    let parameters = names.filter_map(|name| HeaderName::try_from(name).ok());
    let parameters = parameters.filter(|name| name.as_str().starts_with(PARAM_HEADER_PREFIX));
    let list = parameters.fold(REQUEST_HEADERS.to_owned(), |list, name| format!("{list}, {name}"));
    HeaderValue::try_from(list).unwrap_or(HeaderValue::from_static(REQUEST_HEADERS))
}
