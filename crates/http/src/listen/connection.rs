//! Serves one connection. hyper serves it until a response is long-lived; `long_lived_response`
//! writes that response.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use steadfast_wire::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::unbuffered_response::{self, RequestTraits};

/// Serves a connection until it ends. After `draining` is cancelled, the connection ends as soon as
/// no request is in progress.
pub(super) async fn serve<T, S, B>(
    http: &Builder,
    mut stream: T,
    service: S,
    draining: CancellationToken,
) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes> + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    loop {
        // The box frees hyper's buffers before the long-lived response is written.
        let served =
            Box::pin(serve_until_long_lived(http, stream, service.clone(), draining.clone())).await?;
        let Some((before, response, may_keep_alive)) = served else { return Ok(()) };
        let keep_alive = may_keep_alive && !draining.is_cancelled();
        match Box::pin(unbuffered_response::write(before, response, keep_alive)).await? {
            Some(after) => stream = after,
            None => return Ok(()),
        }
    }
}

/// Serves requests until the first long-lived response. Returns that response with the connection,
/// and whether the connection may be reused: the client allows keep-alive and has sent no further
/// bytes. Returns `None` if the connection ends first.
async fn serve_until_long_lived<T, S, B>(
    http: &Builder,
    stream: T,
    service: S,
    draining: CancellationToken,
) -> io::Result<Option<(T, Response<B>, bool)>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes> + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let long_lived = LongLivedSlot::default();
    let service =
        InterceptLongLived { service: TowerToHyperService::new(service), long_lived: long_lived.clone() };
    let mut connection = http.serve_connection(TokioIo::new(stream), service);
    let mut draining = std::pin::pin!(draining.cancelled_owned());
    let mut is_draining = false;
    let done = std::future::poll_fn(|context| {
        if !is_draining && draining.as_mut().poll(context).is_ready() {
            is_draining = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        let done = Pin::new(&mut connection).poll(context);
        // hyper has written nothing of that response and starts no other before it, so the
        // connection is between two messages.
        match long_lived.0.lock().take() {
            Some(long_lived) => Poll::Ready(Ok(Some(long_lived))),
            None => done.map_ok(|()| None).map_err(io::Error::other),
        }
    });
    let Some((response, traits)) = done.await? else { return Ok(None) };
    let parts = connection.into_parts();
    Ok(Some((parts.io.into_inner(), response, traits.keep_alive && parts.read_buf.is_empty())))
}

/// Receives a response that hyper must not write.
struct LongLivedSlot<B>(Arc<Mutex<Slot<B>>>);

/// The response and what is needed of its request.
type Slot<B> = Option<(Response<B>, RequestTraits)>;

impl<B> LongLivedSlot<B> {}

impl<B> Clone for LongLivedSlot<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Default for LongLivedSlot<B> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// Calls the inner service, and withholds long-lived responses from hyper.
struct InterceptLongLived<S, B> {
    service: TowerToHyperService<S>,
    long_lived: LongLivedSlot<B>,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for InterceptLongLived<S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body,
{
    type Response = Response<B>;
    type Error = Infallible;
    type Future = InterceptFuture<TowerToHyperServiceFuture<S, Request<Incoming>>, B>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let traits = RequestTraits::of(&request);
        InterceptFuture { answer: self.service.call(request), traits, long_lived: self.long_lived.clone() }
    }
}

pin_project_lite::pin_project! {
    /// The future of a response. It stays pending if the response is long-lived, and puts the
    /// response into the slot.
    struct InterceptFuture<F, B> {
        #[pin]
        answer: F,
        traits: RequestTraits,
        long_lived: LongLivedSlot<B>,
    }
}

impl<F, B> Future for InterceptFuture<F, B>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: Body,
{
    type Output = Result<Response<B>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(response) = ready!(this.answer.poll(context));
        if !unbuffered_response::is_long_lived(this.traits, &response) {
            return Poll::Ready(Ok(response));
        }
        *this.long_lived.0.lock() = Some((response, *this.traits));
        Poll::Pending
    }
}
