//! Which endpoint is at which path. A request goes to the endpoint of exactly its path, or nowhere.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use steadfast_http::listen::Incoming;
use steadfast_http::problem::Problem;
use steadfast_http::{Endpoint, ResponseBody};
use steadfast_wire::rpc;
use tower_service::Service;

use super::swap::Swap;
use crate::admin::{Counted, HttpMeter};

/// Cheap to clone; all clones change together.
#[derive(Clone)]
pub(crate) struct Mounts {
    endpoints: Arc<RwLock<BTreeMap<Arc<str>, Mounted>>>,
    /// For requests to no endpoint.
    nowhere: HttpMeter,
}

/// One endpoint as it looks from outside.
#[derive(Clone)]
pub(crate) struct Mounted {
    pub(crate) service: Endpoint,
    pub(crate) meter: HttpMeter,
    pub(crate) upstream: Option<Arc<Swap>>,
}

impl Mounts {
    pub(crate) fn new(nowhere: HttpMeter) -> Self {
        Self { endpoints: Arc::default(), nowhere }
    }

    pub(crate) fn replace(&self, endpoints: BTreeMap<Arc<str>, Mounted>) {
        let mut mounted = self.endpoints.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *mounted, endpoints);
        drop(mounted);
        drop(before);
    }

    pub(crate) fn all(&self) -> BTreeMap<Arc<str>, Mounted> {
        self.endpoints.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn at(&self, path: &str) -> Option<Mounted> {
        self.endpoints.read().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }
}

impl Service<Request<Incoming>> for Mounts {
    type Response = Response<Counted<ResponseBody>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let method = request.method().clone();
        let Some(Mounted { service, meter, .. }) = self.at(request.uri().path()) else {
            tracing::debug!(%method, "refused: there is no endpoint at this path");
            return Box::pin(std::future::ready(Ok(self.nowhere.response(&method, nothing_here()))));
        };
        let request = request.map(|body| meter.request(body));
        Box::pin(async move { Ok(meter.response(&method, service.handle(request).await)) })
    }
}

/// Whoever does not know a path learns none.
fn nothing_here() -> Response<ResponseBody> {
    let message = "There is no MCP endpoint at this path. Check the URL.";
    let mut problem = Problem::new(StatusCode::NOT_FOUND, rpc::INVALID_REQUEST, message);
    problem.reason = "no_endpoint";
    problem.into_response()
}
