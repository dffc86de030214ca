//! The tower service of one MCP endpoint: dispatches by HTTP method.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Method, Request, Response};
use http_body::Body;
use steadfast_engine::{Cursor, Engine, LiveSession, Principal, SessionToken};
use steadfast_wire::{JobEventId, RequestId, Revision};

use crate::coarse_timer::CoarseTimer;
use crate::config::Config;
use crate::request::headers::{hide_secrets, single_header};
use crate::request::{cors, guard, header_names};
use crate::response::body::ResponseBody;
use crate::response::event_stream;
use crate::response::problem::Problem;
use crate::response::sse_body::{EventIds, SseBody, StreamStart};

/// One MCP endpoint. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(crate) engine: Arc<Engine>,
    pub(crate) config: Arc<Config>,
    pub(crate) timer: CoarseTimer,
}

impl Endpoint {
    pub fn new(engine: Arc<Engine>, config: Config) -> Self {
        Self { engine, config: Arc::new(config), timer: CoarseTimer::default() }
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
        let origin = cors::allowed_origin(&parts, &self.config.origins);
        let mut response = match self.dispatch(parts, body).await {
            Ok(response) => response,
            Err(problem) => {
                let (status, reason) = (problem.status.as_u16(), &problem.error.message);
                tracing::debug!(%method, path = uri.path(), status, reason, "refused");
                problem.into_response()
            }
        };
        if let Some(origin) = origin {
            cors::allow_read(origin, &mut response);
        }
        response
    }

    async fn dispatch<B>(&self, parts: Parts, body: B) -> Result<Response<ResponseBody>, Problem>
    where
        B: Body,
        B::Error: std::fmt::Display,
    {
        guard::check(&parts, &self.config)?;
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

    /// Returns the session that the request names. Fails if the session is unknown or belongs to
    /// another principal.
    pub(crate) async fn session(
        &self,
        parts: &Parts,
        principal: &Principal,
    ) -> Result<Arc<LiveSession>, Problem> {
        let token = single_header(parts, &header_names::SESSION_ID)?.ok_or_else(Problem::session_required)?;
        let token = SessionToken::parse(token).ok_or_else(Problem::no_session)?;
        Ok(self.engine.session_for(token.id(), principal, parts).await?)
    }

    /// Returns a response that writes the stream at `cursor`.
    pub(crate) async fn stream(
        &self,
        cursor: Cursor,
        session: &LiveSession,
        start: StreamStart,
    ) -> Response<ResponseBody> {
        let body = SseBody::new(cursor, session.facts().revision, EventIds::OfSession, &self.config);
        self.open_stream(body, start).await
    }

    /// Returns a response that writes the stream of a stateless request at `cursor`.
    pub(crate) async fn job_stream(
        &self,
        cursor: Cursor,
        (token, request): (SessionToken, RequestId),
        start: StreamStart,
    ) -> Response<ResponseBody> {
        let id = JobEventId { token: token.expose(), seq: 0, request };
        let ids = EventIds::OfJob { id, text: String::new() };
        let body = SseBody::new(cursor, Revision::V2026_07_28, ids, &self.config);
        self.open_stream(body, start).await
    }

    async fn open_stream(&self, mut body: SseBody, start: StreamStart) -> Response<ResponseBody> {
        body.open(start, &self.timer).await;
        event_stream(ResponseBody::stream(body))
    }
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
