//! The listener for operators: is it alive, is it ready, and numbers.

mod exchange_meter;
mod http_meter;
mod metrics;
mod store_meter;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use steadfast_http::ResponseBody;
use steadfast_http::listen::Incoming;
use tower_service::Service;

pub(crate) use exchange_meter::ExchangeMeter;
pub(crate) use http_meter::{Counted, HttpMeter};
pub(crate) use metrics::{At, Event, Metrics, Reload, seconds};
pub(crate) use store_meter::{Noted, StoreMeter};

use crate::gateway::Overview;
use metrics::Replica;

/// How long the store may take to say that it is there.
const READY_PATIENCE: Duration = Duration::from_secs(2);

/// What the encoder writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Admin {
    metrics: Arc<Metrics>,
    overview: Arc<Overview>,
}

impl Admin {
    pub(crate) fn new(metrics: Arc<Metrics>, overview: Arc<Overview>) -> Self {
        Self { metrics, overview }
    }

    async fn answer(&self, method: &Method, path: &str) -> Response<ResponseBody> {
        if *method != Method::GET && *method != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Only GET.\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/healthz" => text(StatusCode::OK, "alive\n"),
            "/readyz" => match self.why_not_ready().await {
                None => text(StatusCode::OK, "ready\n"),
                Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, why),
            },
            "/metrics" => {
                self.look().await;
                let mut response = text(StatusCode::OK, self.metrics.encode());
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
                response
            }
            _ => text(StatusCode::NOT_FOUND, "There are /healthz, /readyz and /metrics.\n"),
        }
    }

    async fn why_not_ready(&self) -> Option<String> {
        if self.overview.is_draining() {
            return Some("not ready: it is stopping\n".into());
        }
        match tokio::time::timeout(READY_PATIENCE, self.overview.answers()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("not ready: {error}\n")),
            Err(_) => Some(format!("not ready: the session store has not answered for {READY_PATIENCE:?}\n")),
        }
    }

    /// Reads what is not counted as it happens. What cannot be read keeps its last value.
    async fn look(&self) {
        let metrics = &self.metrics;
        if let Ok(Ok(usage)) = tokio::time::timeout(READY_PATIENCE, self.overview.usage()).await {
            metrics.sessions.set(number(usage.sessions));
            metrics.store_bytes.set(number(usage.bytes));
        }
        // Replicas come and go.
        metrics.replica_up.clear();
        metrics.replica_sessions.clear();
        for seen in self.overview.endpoints() {
            let at = At { endpoint: seen.path.to_string() };
            metrics.exchanges.get_or_create(&at).set(number(seen.exchanges));
            metrics.subscriptions.get_or_create(&at).set(number(seen.subscriptions));
            let Some(upstream) = seen.upstream else { continue };
            metrics.waiting_calls.get_or_create(&at).set(number(upstream.waiting()));
            metrics.healed.get_or_create(&at).set(number(upstream.healed()));
            for status in upstream.replicas() {
                let replica = Replica { endpoint: at.endpoint.clone(), replica: status.name };
                metrics.replica_up.get_or_create(&replica).set(i64::from(status.is_up));
                metrics.replica_sessions.get_or_create(&replica).set(number(status.sessions));
            }
        }
    }
}

fn number(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

fn text(status: StatusCode, text: impl Into<String>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(text.into().into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

impl Service<Request<Incoming>> for Admin {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        let admin = self.clone();
        Box::pin(async move { Ok(admin.answer(request.method(), request.uri().path()).await) })
    }
}
