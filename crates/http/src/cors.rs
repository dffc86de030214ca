//! Web pages of other origins: what a browser asks before it lets them in, and what it lets them read.
//!
//! A page whose origin is served is told so on every answer, refusals included, or it could not read why it was refused. All
//! others are told nothing. Cookies are not ours, so nothing is said of credentials; tokens are set by pages themselves.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN, VARY,
};
use http::request::Parts;
use http::{Method, Response, StatusCode};

use crate::body::ResponseBody;
use crate::config::Origins;
use crate::edge;
use crate::endpoint::empty;

const METHODS: &str = "GET, POST, DELETE, OPTIONS";

/// What clients of every revision send.
const SENT: &str = "Content-Type, Accept, Authorization, Mcp-Session-Id, MCP-Protocol-Version, Last-Event-ID, \
                    Mcp-Method, Mcp-Name";

/// And parameters that a request repeats in headers, by names of the server's choice.
const PARAMETER: &str = "mcp-param-";

/// What pages need of our answers.
const READ: &str = "Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After";

/// For how many seconds a browser may remember the answer. None remembers longer.
const MAX_AGE: &str = "7200";

/// The origin of the page that asks, if it is served. Without one there is no page.
pub(crate) fn page(parts: &Parts, origins: &Origins) -> Option<HeaderValue> {
    match edge::check_origin(parts, origins) {
        Ok(()) => parts.headers.get(ORIGIN).cloned(),
        Err(_) => None,
    }
}

/// Whether a browser asks what its page may do. No client sends this by itself.
pub(crate) fn is_preflight(parts: &Parts) -> bool {
    parts.method == Method::OPTIONS
        && parts.headers.contains_key(ORIGIN)
        && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to that. The request has passed the edge.
pub(crate) fn preflight(parts: &Parts) -> Response<ResponseBody> {
    let mut response = empty(StatusCode::NO_CONTENT);
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(parts));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    response
}

/// Lets a page read the answer.
pub(crate) fn admit(page: HeaderValue, response: &mut Response<ResponseBody>) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, page);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(READ));
    headers.append(VARY, HeaderValue::from_static("Origin"));
}

/// Their number is bounded by the size of the request's head.
fn allowed_headers(parts: &Parts) -> HeaderValue {
    let asked = parts.headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let names =
        asked.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).map(str::trim);
    // Names that are read as such have nothing in them that could end a header.
    let parameters = names.filter_map(|name| HeaderName::try_from(name).ok());
    let parameters = parameters.filter(|name| name.as_str().starts_with(PARAMETER));
    let list = parameters.fold(SENT.to_owned(), |list, name| format!("{list}, {name}"));
    HeaderValue::try_from(list).unwrap_or(HeaderValue::from_static(SENT))
}
