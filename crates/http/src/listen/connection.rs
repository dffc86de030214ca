//! One connection: hyper's, until an answer on it lasts.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use hyper_util::service::{TowerToHyperService, TowerToHyperServiceFuture};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::stream::{self, Asked};

/// Serves a connection to its end. Once it is told to, it ends when nothing is under way on it.
pub(super) async fn serve<T, S, B>(
    http: &Builder,
    mut stream: T,
    service: S,
    told: CancellationToken,
) -> io::Result<()>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes> + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    loop {
        // What hyper needs is given back before the answer that lasts.
        let served = Box::pin(until_one_lasts(http, stream, service.clone(), told.clone())).await?;
        let Some((before, response, may_go_on)) = served else { return Ok(()) };
        let goes_on = may_go_on && !told.is_cancelled();
        match Box::pin(stream::write(before, response, goes_on)).await? {
            Some(after) => stream = after,
            None => return Ok(()),
        }
    }
}

/// Gives the connection with the first answer that lasts, unless it ends before; and whether it may be used again: its client
/// wants to, and has not said more already.
async fn until_one_lasts<T, S, B>(
    http: &Builder,
    stream: T,
    service: S,
    told: CancellationToken,
) -> io::Result<Option<(T, Response<B>, bool)>>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes> + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let lasting = Lasting::default();
    let service = Watched { service: TowerToHyperService::new(service), lasting: lasting.clone() };
    let mut connection = http.serve_connection(TokioIo::new(stream), service);
    let mut told = std::pin::pin!(told.cancelled_owned());
    let mut was_told = false;
    let done = std::future::poll_fn(|context| {
        if !was_told && told.as_mut().poll(context).is_ready() {
            was_told = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        let done = Pin::new(&mut connection).poll(context);
        // Nothing of that answer was sent, and until it is no other begins: the connection is between two messages.
        match lasting.slot().take() {
            Some(lasting) => Poll::Ready(Ok(Some(lasting))),
            None => done.map_ok(|()| None).map_err(io::Error::other),
        }
    });
    let Some((response, asked)) = done.await? else { return Ok(None) };
    let parts = connection.into_parts();
    Ok(Some((parts.io.into_inner(), response, asked.goes_on && parts.read_buf.is_empty())))
}

/// Where an answer is put that is not hyper's to write.
struct Lasting<B>(Arc<Mutex<Slot<B>>>);

/// With what it answers.
type Slot<B> = Option<(Response<B>, Asked)>;

impl<B> Lasting<B> {
    fn slot(&self) -> MutexGuard<'_, Slot<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> Clone for Lasting<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Default for Lasting<B> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// Calls a service, and keeps answers that last away from hyper.
struct Watched<S, B> {
    service: TowerToHyperService<S>,
    lasting: Lasting<B>,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Watched<S, B>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body,
{
    type Response = Response<B>;
    type Error = Infallible;
    type Future = Answering<TowerToHyperServiceFuture<S, Request<Incoming>>, B>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let asked = Asked::of(&request);
        Answering { answer: self.service.call(request), asked, lasting: self.lasting.clone() }
    }
}

pin_project_lite::pin_project! {
    /// An answer on its way. It never arrives at hyper if it lasts.
    struct Answering<F, B> {
        #[pin]
        answer: F,
        asked: Asked,
        lasting: Lasting<B>,
    }
}

impl<F, B> Future for Answering<F, B>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
    B: Body,
{
    type Output = Result<Response<B>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Ok(response) = ready!(this.answer.poll(context));
        if !stream::lasts(this.asked, &response) {
            return Poll::Ready(Ok(response));
        }
        *this.lasting.slot() = Some((response, *this.asked));
        Poll::Pending
    }
}
