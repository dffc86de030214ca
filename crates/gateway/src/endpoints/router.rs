//! Routes requests to endpoints by their exact path, and serves the metadata of endpoints that
//! verify tokens.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response};
use steadfast_auth::{Metadata, well_known_path};
use steadfast_http::listen::Incoming;
use steadfast_http::problem::Problem;
use steadfast_http::{Endpoint, ResponseBody};
use steadfast_wire::{Reason, rpc};
use tower_service::Service;

use super::reloadable_backend::ReloadableBackend;
use crate::admin::{CountedBody, HttpMetrics};

/// Cheap to clone. A reload changes the routes of all clones.
#[derive(Clone)]
pub(crate) struct Router(Arc<Shared>);

struct Shared {
    routes: RwLock<Arc<Routes>>,
    /// Counts requests to paths without an endpoint.
    no_endpoint: HttpMetrics,
    is_shutting_down: AtomicBool,
}

/// Built at the start and by each reload. A request copies nothing of it but a pointer.
#[derive(Default)]
pub(crate) struct Routes {
    endpoints: BTreeMap<Arc<str>, Arc<Route>>,
    /// The endpoints with metadata, by the paths of their metadata.
    metadata: BTreeMap<String, Arc<Route>>,
}

pub(crate) struct Route {
    pub(crate) service: Endpoint,
    /// Where clients get tokens, if the endpoint verifies tokens.
    pub(crate) metadata: Option<Metadata>,
    pub(crate) metrics: HttpMetrics,
    /// `None` for the demo server.
    pub(crate) backend: Option<Arc<ReloadableBackend>>,
}

impl Routes {
    fn new(endpoints: BTreeMap<Arc<str>, Arc<Route>>) -> Self {
        let mut metadata = BTreeMap::new();
        for (path, route) in &endpoints {
            if let Some(own) = &route.metadata {
                // A proxy may remove a part of the path that clients know, so the path of the
                // endpoint works as well.
                metadata.insert(well_known_path(path), Arc::clone(route));
                metadata.entry(own.path.clone()).or_insert_with(|| Arc::clone(route));
            }
        }
        Self { endpoints, metadata }
    }

    pub(crate) fn endpoints(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Route>)> {
        self.endpoints.iter()
    }
}

impl Router {
    pub(super) fn new(no_endpoint: HttpMetrics) -> Self {
        let is_shutting_down = AtomicBool::new(false);
        Self(Arc::new(Shared { routes: RwLock::default(), no_endpoint, is_shutting_down }))
    }

    pub(super) fn announce_shutdown(&self) {
        self.0.is_shutting_down.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.0.is_shutting_down.load(Ordering::Relaxed)
    }

    pub(super) fn replace(&self, endpoints: BTreeMap<Arc<str>, Arc<Route>>) {
        let new = Arc::new(Routes::new(endpoints));
        let mut routes = self.0.routes.write().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *routes, new);
        // Destructors must not run under the lock.
        drop(routes);
        drop(old);
    }

    pub(super) fn routes(&self) -> Arc<Routes> {
        Arc::clone(&self.0.routes.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Service<Request<Incoming>> for Router {
    type Response = Response<CountedBody<ResponseBody>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let (routes, path) = (self.routes(), request.uri().path());
        let method = request.method().clone();
        if let Some(route) = routes.endpoints.get(path) {
            let (route, router) = (Arc::clone(route), self.clone());
            return Box::pin(async move {
                let request = request.map(|body| route.metrics.request(body));
                let mut response = route.metrics.response(&method, route.service.handle(request).await);
                if router.is_shutting_down() {
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                Ok(response)
            });
        }
        let route = routes.metadata.get(path);
        let response = match route.and_then(|route| Some((route, route.metadata.as_ref()?))) {
            Some((route, metadata)) => {
                route.metrics.response(&method, metadata.respond(&method).map(ResponseBody::full))
            }
            None => {
                tracing::debug!(%method, "request refused: no endpoint at this path");
                self.0.no_endpoint.response(&method, not_found())
            }
        };
        Box::pin(std::future::ready(Ok(response)))
    }
}

/// Does not name the paths that exist.
fn not_found() -> Response<ResponseBody> {
    let message = "There is no MCP endpoint at this path. Check the URL.";
    Problem::new(Reason::NoEndpoint, rpc::INVALID_REQUEST, message).into_response()
}
