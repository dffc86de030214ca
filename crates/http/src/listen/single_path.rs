//! Serves one endpoint at one path. All other paths are 404.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tower_service::Service;

use crate::mcp_endpoint::Endpoint;
use crate::response::body::ResponseBody;

/// A service with one endpoint at one path.
#[derive(Clone, Debug)]
pub struct SinglePath {
    path: &'static str,
    endpoint: Endpoint,
}

impl SinglePath {
    pub fn new(path: &'static str, endpoint: Endpoint) -> Self {
        Self { path, endpoint }
    }
}

impl Service<Request<Incoming>> for SinglePath {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        if request.uri().path() == self.path {
            return self.endpoint.call(request);
        }
        let text = format!("There is nothing here. The MCP endpoint is at {}.\n", self.path);
        let mut response = Response::new(ResponseBody::full(text.into()));
        *response.status_mut() = StatusCode::NOT_FOUND;
        Box::pin(std::future::ready(Ok(response)))
    }
}
