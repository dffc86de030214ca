//! The admin listener: `/healthz`, `/readyz` and `/metrics`.

mod call_counters;
mod http_metrics;
mod job_calls;
mod metrics;
mod stateless_call_counters;
mod store_metrics;

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
use steadfast_upstream::Verdict;
use tower_service::Service;

pub(crate) use http_metrics::{CountedBody, HttpMetrics};
pub(crate) use metrics::{EndpointLabel, Event, Metrics, Reload};
pub(crate) use stateless_call_counters::ExchangeMetrics;
pub(crate) use store_metrics::{CommandKind, StoreMetrics};

use crate::endpoints::Status;
use metrics::{Replica, Serial};

/// How long the store may take to answer before the gateway counts as not ready.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// The media type of the encoder.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Admin {
    metrics: Arc<Metrics>,
    status: Arc<Status>,
}

impl Admin {
    pub(crate) fn new(metrics: Arc<Metrics>, status: Arc<Status>) -> Self {
        Self { metrics, status }
    }

    async fn respond(&self, method: &Method, path: &str) -> Response<ResponseBody> {
        if *method != Method::GET && *method != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "Use GET.\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match path {
            "/healthz" => text(StatusCode::OK, "alive\n"),
            "/readyz" => match self.not_ready_reason().await {
                None => text(StatusCode::OK, "ready\n"),
                Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, reason),
            },
            "/metrics" => {
                self.update_gauges().await;
                let mut response = text(StatusCode::OK, self.metrics.encode());
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
                response
            }
            _ => text(StatusCode::NOT_FOUND, "Available paths: /healthz, /readyz, /metrics.\n"),
        }
    }

    async fn not_ready_reason(&self) -> Option<String> {
        if self.status.is_shutting_down() {
            return Some("not ready: the gateway is shutting down\n".into());
        }
        match tokio::time::timeout(STORE_TIMEOUT, self.status.check_store()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("not ready: {error}\n")),
            Err(_) => Some(format!("not ready: the session store has not answered for {STORE_TIMEOUT:?}\n")),
        }
    }

    /// Sets the gauges whose values are read on demand. A value that cannot be read stays as it
    /// was.
    async fn update_gauges(&self) {
        let metrics = &self.metrics;
        if let Ok(Ok(usage)) = tokio::time::timeout(STORE_TIMEOUT, self.status.store_usage()).await {
            metrics.sessions.set(gauge(usage.sessions));
            metrics.store_bytes.set(gauge(usage.bytes));
        }
        // A reload or DNS may have removed replicas.
        metrics.replica_up.clear();
        metrics.replica_sessions.clear();
        metrics.upstream_serial.clear();
        for endpoint in self.status.endpoints() {
            let label = EndpointLabel { endpoint: endpoint.path.to_string() };
            metrics.exchanges.get_or_create(&label).set(gauge(endpoint.exchanges));
            metrics.subscriptions.get_or_create(&label).set(gauge(endpoint.subscriptions));
            let Some(upstream) = endpoint.upstream else { continue };
            metrics.queued_calls.get_or_create(&label).set(gauge(upstream.queued_calls()));
            metrics.heartbeats.get_or_create(&label).set(gauge(upstream.heartbeats()));
            metrics.reopened_sessions.get_or_create(&label).set(gauge(upstream.failovers()));
            for status in upstream.replicas() {
                if let Some(verdict) = status.verdict {
                    let (is_serial, reason) = match verdict {
                        Verdict::Parallel => (0, "check"),
                        Verdict::Serial(reason) => (1, reason.as_str()),
                    };
                    let (endpoint, replica) = (label.endpoint.clone(), status.name.clone());
                    let serial = Serial { endpoint, replica, reason };
                    metrics.upstream_serial.get_or_create(&serial).set(is_serial);
                }
                let replica = Replica { endpoint: label.endpoint.clone(), replica: status.name };
                metrics.replica_up.get_or_create(&replica).set(i64::from(status.is_up));
                metrics.replica_sessions.get_or_create(&replica).set(gauge(status.sessions));
            }
        }
    }
}

fn gauge(count: impl TryInto<i64>) -> i64 {
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
        Box::pin(async move { Ok(admin.respond(request.method(), request.uri().path()).await) })
    }
}
