//! Which endpoint is at which path. A request goes to the endpoint of exactly its path, or nowhere. Beside endpoints that ask for
//! tokens there is what tells where to get one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};

use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode};
use steadfast_auth::{Metadata, well_known_path};
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
    places: Arc<RwLock<Places>>,
    /// For requests to no endpoint.
    nowhere: HttpMeter,
    /// The gateway is about to go: each connection ends with its next answer.
    is_leaving: Arc<AtomicBool>,
}

/// They change together.
#[derive(Default)]
struct Places {
    endpoints: BTreeMap<Arc<str>, Mounted>,
    /// By the path at which it is served.
    metadata: BTreeMap<String, Public>,
}

/// What everybody may know about an endpoint.
#[derive(Clone)]
struct Public {
    metadata: Metadata,
    meter: HttpMeter,
}

/// One endpoint as it looks from outside.
#[derive(Clone)]
pub(crate) struct Mounted {
    pub(crate) service: Endpoint,
    pub(crate) metadata: Option<Metadata>,
    pub(crate) meter: HttpMeter,
    pub(crate) upstream: Option<Arc<Swap>>,
}

impl Mounts {
    pub(crate) fn new(nowhere: HttpMeter) -> Self {
        Self { places: Arc::default(), nowhere, is_leaving: Arc::default() }
    }

    pub(super) fn take_leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    pub(crate) fn replace(&self, endpoints: BTreeMap<Arc<str>, Mounted>) {
        let next = Places { metadata: public(&endpoints), endpoints };
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *places, next);
        drop(places);
        drop(before);
    }

    pub(crate) fn all(&self) -> BTreeMap<Arc<str>, Mounted> {
        self.places.read().unwrap_or_else(PoisonError::into_inner).endpoints.clone()
    }

    fn at(&self, path: &str) -> Place {
        let places = self.places.read().unwrap_or_else(PoisonError::into_inner);
        match (places.endpoints.get(path), places.metadata.get(path)) {
            (Some(mounted), _) => Place::Endpoint(mounted.clone()),
            (None, Some(public)) => Place::Metadata(public.clone()),
            (None, None) => Place::Nothing,
        }
    }
}

/// What is at a path.
enum Place {
    Endpoint(Mounted),
    Metadata(Public),
    Nothing,
}

/// By the path that clients know, and by the endpoint's own in case that a proxy takes a part of the path away.
fn public(endpoints: &BTreeMap<Arc<str>, Mounted>) -> BTreeMap<String, Public> {
    let all = || {
        endpoints.iter().filter_map(|(path, Mounted { metadata, meter, .. })| {
            Some((path, Public { metadata: metadata.clone()?, meter: meter.clone() }))
        })
    };
    let known = all().map(|(_, public)| (public.metadata.path.clone(), public));
    let own = all().map(|(path, public)| (well_known_path(path), public));
    known.chain(own).collect()
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
        let response = match self.at(request.uri().path()) {
            Place::Endpoint(Mounted { service, meter, .. }) => {
                let request = request.map(|body| meter.request(body));
                let is_leaving = Arc::clone(&self.is_leaving);
                return Box::pin(async move {
                    let mut response = meter.response(&method, service.handle(request).await);
                    if is_leaving.load(Ordering::Relaxed) {
                        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                    }
                    Ok(response)
                });
            }
            Place::Metadata(Public { metadata, meter }) => {
                meter.response(&method, metadata.respond(&method).map(ResponseBody::full))
            }
            Place::Nothing => {
                tracing::debug!(%method, "refused: there is no endpoint at this path");
                self.nowhere.response(&method, nothing_here())
            }
        };
        Box::pin(std::future::ready(Ok(response)))
    }
}

/// Whoever does not know a path learns none.
fn nothing_here() -> Response<ResponseBody> {
    let message = "There is no MCP endpoint at this path. Check the URL.";
    let mut problem = Problem::new(StatusCode::NOT_FOUND, rpc::INVALID_REQUEST, message);
    problem.reason = "no_endpoint";
    problem.into_response()
}
