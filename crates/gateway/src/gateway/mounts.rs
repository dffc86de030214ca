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

/// Cheap to clone; all clones change together.
#[derive(Clone, Default)]
pub(crate) struct Mounts(Arc<RwLock<BTreeMap<Arc<str>, Endpoint>>>);

impl Mounts {
    pub(crate) fn replace(&self, endpoints: impl Iterator<Item = (Arc<str>, Endpoint)>) {
        let next = endpoints.collect();
        let mut mounted = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *mounted, next);
        drop(mounted);
        drop(before);
    }

    fn at(&self, path: &str) -> Option<Endpoint> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }
}

impl Service<Request<Incoming>> for Mounts {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        match self.at(request.uri().path()) {
            Some(mut endpoint) => endpoint.call(request),
            None => Box::pin(std::future::ready(Ok(nothing_here()))),
        }
    }
}

/// Whoever does not know a path learns none.
fn nothing_here() -> Response<ResponseBody> {
    let message = "There is no MCP endpoint at this path. Check the URL.";
    Problem::new(StatusCode::NOT_FOUND, rpc::INVALID_REQUEST, message).into_response()
}
