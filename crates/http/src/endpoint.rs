//! The service: one URL, three verbs.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, COOKIE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use steadfast_engine::{Cursor, Engine, LiveSession, Principal, SessionToken};
use steadfast_wire::{Revision, headers, revision};

use crate::body::ResponseBody;
use crate::config::Config;
use crate::cors;
use crate::edge;
use crate::moment::Moments;
use crate::names;
use crate::problem::Problem;
use crate::sse_body::{Opening, SseBody};

/// One MCP endpoint. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(crate) engine: Arc<Engine>,
    pub(crate) config: Arc<Config>,
    pub(crate) moments: Moments,
}

impl Endpoint {
    pub fn new(engine: Arc<Engine>, config: Config) -> Self {
        Self { engine, config: Arc::new(config), moments: Moments::default() }
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub async fn handle<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        let (mut parts, body) = request.into_parts();
        hide_secrets(&mut parts);
        let (method, uri) = (parts.method.clone(), parts.uri.clone());
        let page = cors::page(&parts, &self.config.origins);
        let mut response = match self.dispatch(parts, body).await {
            Ok(response) => response,
            Err(problem) => {
                let (status, reason) = (problem.status.as_u16(), &problem.error.message);
                tracing::debug!(%method, path = uri.path(), status, reason, "refused");
                problem.into_response()
            }
        };
        if let Some(page) = page {
            cors::admit(page, &mut response);
        }
        response
    }

    async fn dispatch<B>(&self, parts: Parts, body: B) -> Result<Response<ResponseBody>, Problem>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        edge::check(&parts, &self.config)?;
        match parts.method {
            Method::POST => {
                let principal = self.principal(&parts).await?;
                self.post(parts, body, principal).await
            }
            Method::GET => {
                let principal = self.principal(&parts).await?;
                self.get(&parts, &principal).await
            }
            Method::DELETE => {
                let principal = self.principal(&parts).await?;
                self.delete(&parts, &principal).await
            }
            _ if cors::is_preflight(&parts) => Ok(cors::preflight(&parts)),
            _ => Err(Problem::method_not_allowed()),
        }
    }

    async fn principal(&self, parts: &Parts) -> Result<Principal, Problem> {
        Ok(self.config.principal.identify(parts).principal().await?)
    }

    /// The session that a request names.
    pub(crate) async fn session(
        &self,
        parts: &Parts,
        principal: &Principal,
    ) -> Result<Arc<LiveSession>, Problem> {
        let token = header(parts, &names::SESSION_ID)?.ok_or_else(Problem::session_required)?;
        let token = SessionToken::parse(token).ok_or_else(Problem::no_session)?;
        Ok(self.engine.session(token.id(), principal).await?)
    }

    /// A response that writes a stream.
    pub(crate) async fn stream(
        &self,
        cursor: Cursor,
        session: &LiveSession,
        opening: Opening,
    ) -> Response<ResponseBody> {
        let mut body = SseBody::new(cursor, session.facts().revision, &self.config);
        body.open(opening, &self.moments).await;
        event_stream(ResponseBody::stream(body))
    }
}

/// Handlers get the head of the request, and may log it: secrets are marked, so that `Debug` does not show them.
fn hide_secrets(parts: &mut Parts) {
    for (name, value) in &mut parts.headers {
        if *name == names::SESSION_ID || *name == AUTHORIZATION || *name == COOKIE {
            value.set_sensitive(true);
        }
    }
}

/// The value of a header that may be sent once.
pub(crate) fn header<'a>(parts: &'a Parts, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = parts.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(value) => Ok(Some(value)),
            Err(_) => {
                Err(Problem::bad_request(format!("The header {name} has characters that it must not have.")))
            }
        },
        (Some(_), Some(_)) => {
            Err(Problem::bad_request(format!("The header {name} was sent more than once.")))
        }
    }
}

/// The protocol version that a request claims. What is neither ours nor of the stateless era is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    Nothing,
    Legacy,
    Modern,
}

pub(crate) fn claimed_version(parts: &Parts) -> Result<Claimed, Problem> {
    let Some(version) = header(parts, &names::PROTOCOL_VERSION)? else { return Ok(Claimed::Nothing) };
    match Revision::parse(version) {
        Some(revision) if !revision.is_modern() => Ok(Claimed::Legacy),
        _ if revision::names_modern(version) => Ok(Claimed::Modern),
        _ => Err(Problem::bad_version(version)),
    }
}

/// GET and DELETE belong to sessions, which stateless revisions do not have.
pub(crate) fn legacy_only(parts: &Parts) -> Result<(), Problem> {
    match claimed_version(parts)? {
        Claimed::Modern => Err(Problem::method_not_allowed()),
        Claimed::Legacy | Claimed::Nothing => Ok(()),
    }
}

/// Tells the client the token of the session that it has opened.
pub(crate) fn tell_session(response: &mut Response<ResponseBody>, token: SessionToken) {
    // The alphabet of tokens is that of headers.
    if let Ok(mut value) = HeaderValue::from_str(&token.expose()) {
        value.set_sensitive(true);
        response.headers_mut().insert(names::SESSION_ID.clone(), value);
    }
}

/// The header that names the session of a request, for [`echo_session`].
pub(crate) fn session_header(parts: &Parts) -> Option<HeaderValue> {
    parts.headers.get(&names::SESSION_ID).cloned()
}

/// Repeats the header that named the session of the request: clients and proxies may look for it.
pub(crate) fn echo_session(response: &mut Response<ResponseBody>, header: Option<HeaderValue>) {
    if let Some(value) = header {
        response.headers_mut().insert(names::SESSION_ID.clone(), value);
    }
}

pub(crate) fn event_stream(body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    let map = response.headers_mut();
    map.insert(CONTENT_TYPE, HeaderValue::from_static(headers::EVENT_STREAM));
    map.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    map.insert(names::ACCEL_BUFFERING.clone(), HeaderValue::from_static("no"));
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

impl<B> tower_service::Service<Request<B>> for Endpoint
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display + Send,
{
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let endpoint = self.clone();
        Box::pin(async move { Ok(endpoint.handle(request).await) })
    }
}
