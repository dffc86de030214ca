//! Counts what goes in and out of an endpoint.

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

use super::metrics::{At, Metrics, Refusal, Status};

/// What one endpoint's requests are counted with; or nothing, where nobody looks.
#[derive(Clone, Default)]
pub(crate) struct HttpMeter(Option<Arc<Counters>>);

struct Counters {
    metrics: Arc<Metrics>,
    endpoint: String,
    received: Counter,
    sent: Counter,
    streams: Gauge,
}

impl HttpMeter {
    pub(crate) fn new(metrics: Arc<Metrics>, endpoint: &str) -> Self {
        let at = At { endpoint: endpoint.to_owned() };
        let received = metrics.received_bytes.get_or_create(&at).clone();
        let sent = metrics.sent_bytes.get_or_create(&at).clone();
        let streams = metrics.streams.get_or_create(&at).clone();
        Self(Some(Arc::new(Counters { metrics, endpoint: at.endpoint, received, sent, streams })))
    }

    pub(crate) fn request<B>(&self, body: B) -> Counted<B> {
        Counted { body, count: self.0.as_ref().map(|counters| counters.received.clone()), _open: None }
    }

    pub(crate) fn response(
        &self,
        method: &Method,
        response: Response<ResponseBody>,
    ) -> Response<Counted<ResponseBody>> {
        let Some(counters) = &self.0 else {
            return response.map(|body| Counted { body, count: None, _open: None });
        };
        let (endpoint, status) = (counters.endpoint.clone(), response.status().as_u16());
        if let Some(Refused { reason }) = response.extensions().get().copied() {
            let refusal = Refusal { endpoint: endpoint.clone(), status, reason };
            counters.metrics.refusals.get_or_create(&refusal).inc();
        }
        let label = Status { endpoint, method: known(method), status };
        counters.metrics.responses.get_or_create(&label).inc();
        // What is complete already goes out in one piece and is no open stream.
        let is_stream = response.body().size_hint().exact().is_none();
        let _open = is_stream.then(|| Open::new(counters.streams.clone()));
        response.map(|body| Counted { body, count: Some(counters.sent.clone()), _open })
    }
}

/// A client can send any method; a label cannot be anything.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

/// A body whose bytes are counted on their way.
pub(crate) struct Counted<B> {
    body: B,
    count: Option<Counter>,
    /// For as long as the body lives.
    _open: Option<Open>,
}

struct Open(Gauge);

impl Open {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl<B: Body + Unpin> Body for Counted<B> {
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
