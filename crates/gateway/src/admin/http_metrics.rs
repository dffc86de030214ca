//! Counts requests, responses, bytes and open streams of an endpoint.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::{Method, Response};
use http_body::{Body, Frame, SizeHint};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use steadfast_http::ResponseBody;
use steadfast_http::problem::Refused;
use steadfast_http::quirks::AppliedQuirk;

use super::metrics::{EndpointLabel, Metrics, QuirkLabel, Refusal, Status};

/// The counters of one endpoint. The default counts nothing.
#[derive(Clone, Default)]
pub(crate) struct HttpMetrics(Option<Arc<Counters>>);

struct Counters {
    metrics: Arc<Metrics>,
    endpoint: String,
    received: Counter,
    sent: Counter,
    streams: Gauge,
}

impl HttpMetrics {
    pub(crate) fn new(metrics: Arc<Metrics>, endpoint: &str) -> Self {
        let label = EndpointLabel { endpoint: endpoint.to_owned() };
        let received = metrics.received_bytes.get_or_create(&label).clone();
        let sent = metrics.sent_bytes.get_or_create(&label).clone();
        let streams = metrics.streams.get_or_create(&label).clone();
        Self(Some(Arc::new(Counters { metrics, endpoint: label.endpoint, received, sent, streams })))
    }

    pub(crate) fn request<B>(&self, body: B) -> CountedBody<B> {
        CountedBody { body, count: self.0.as_ref().map(|counters| counters.received.clone()), _open: None }
    }

    pub(crate) fn response(
        &self,
        method: &Method,
        response: Response<ResponseBody>,
    ) -> Response<CountedBody<ResponseBody>> {
        let Some(counters) = &self.0 else {
            return response.map(|body| CountedBody { body, count: None, _open: None });
        };
        let (endpoint, status) = (counters.endpoint.clone(), response.status().as_u16());
        if let Some(Refused { reason }) = response.extensions().get().copied() {
            let refusal = Refusal { endpoint: endpoint.clone(), status, reason: reason.as_str() };
            counters.metrics.refusals.get_or_create(&refusal).inc();
        }
        if let Some(AppliedQuirk { effect }) = response.extensions().get().copied() {
            let quirk = QuirkLabel { endpoint: endpoint.clone(), quirk: effect.as_str() };
            counters.metrics.quirks.get_or_create(&quirk).inc();
        }
        let label = Status { endpoint, method: method_label(method), status };
        counters.metrics.responses.get_or_create(&label).inc();
        // A body of known size is sent at once and is not an open stream.
        let is_stream = response.body().size_hint().exact().is_none();
        let _open = is_stream.then(|| OpenStream::new(counters.streams.clone()));
        response.map(|body| CountedBody { body, count: Some(counters.sent.clone()), _open })
    }
}

/// Bounds the label: a client can send any method.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// A body whose bytes are counted.
pub(crate) struct CountedBody<B> {
    body: B,
    count: Option<Counter>,
    /// Counts the stream as open until the body is dropped.
    _open: Option<OpenStream>,
}

struct OpenStream(Gauge);

impl OpenStream {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl<B: Body + Unpin> Body for CountedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let (Some(count), Some(Ok(frame))) = (&self.count, &frame) {
            count.inc_by(frame.data_ref().map_or(0, Buf::remaining) as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
