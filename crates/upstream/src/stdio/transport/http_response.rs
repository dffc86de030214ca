//! Builds the HTTP responses of a stdio transport, which exist in memory only.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use steadfast_client::transport::Body;
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{RequestId, headers};

use crate::stdio::transport::sse_body::{Source, SseBody};

pub(crate) fn not_found() -> Response<Body> {
    empty(StatusCode::NOT_FOUND)
}

pub(crate) fn refuse(status: StatusCode, id: Option<&RequestId>, error: &ErrorObject) -> Response<Body> {
    json(status, error.to_message(id).into())
}

pub(crate) fn json(status: StatusCode, text: Bytes) -> Response<Body> {
    response(status, Some(headers::JSON), full(text))
}

pub(crate) fn events(source: Source) -> Response<Body> {
    response(StatusCode::OK, Some(headers::EVENT_STREAM), SseBody::new(source).boxed_unsync())
}

pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    response(status, None, full(Bytes::new()))
}

pub(crate) fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

fn response(status: StatusCode, kind: Option<&'static str>, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    if let Some(kind) = kind {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    }
    response
}
