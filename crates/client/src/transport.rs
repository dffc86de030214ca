//! How requests reach a server: the only place that knows sockets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower_service::Service;

use crate::config::{Limits, Timeouts};
use crate::owner::Boxed;

#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "tls")]
pub use tls::{Identity, SecureStream, Secured, Tls, TlsError, TlsFiles};

/// How long a connection is kept for the next request. Node and uvicorn close theirs after 5 s: a request that is under way
/// then is lost, and nobody can tell whether it was begun.
const MAX_IDLE: Duration = Duration::from_secs(4);

/// The body of an answer, piece by piece. Dropped before its end, it closes its connection.
pub type Body = UnsyncBoxBody<Bytes, BrokenBody>;

/// Sends requests, each on a connection of its own until its answer has ended.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request and gives the head of the answer. Dropped, it gives up.
    fn send(&self, request: Request<Bytes>) -> Boxed<'_, Result<Response<Body>, SendError>>;
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn send(&self, request: Request<Bytes>) -> Boxed<'_, Result<Response<Body>, SendError>> {
        (**self).send(request)
    }
}

/// Why there is no answer. The network is to blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Nothing was sent.
    #[error("{0}")]
    Connect(String),
    /// Something may have been sent.
    #[error("{0}")]
    Broken(String),
}

/// A body broke off. The network is to blame, or a server that ends its answers amiss.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BrokenBody(pub String);

/// HTTP/1.1 over the connections that a connector makes: TCP, or TLS over it.
#[derive(Debug)]
pub struct Http<C> {
    client: Client<C, Full<Bytes>>,
}

impl Http<HttpConnector> {
    /// Plain TCP.
    pub fn new(timeouts: &Timeouts, limits: &Limits) -> Self {
        Self::over(set_up(HttpConnector::new(), timeouts.connect), limits)
    }
}

impl Http<HttpConnector<Pinned>> {
    /// Plain TCP to this very address, whatever the host of a request resolves to. Its name is still sent as `Host`.
    pub fn pinned(address: SocketAddr, timeouts: &Timeouts, limits: &Limits) -> Self {
        let connector = HttpConnector::new_with_resolver(Pinned(address));
        Self::over(set_up(connector, timeouts.connect), limits)
    }
}

/// Resolves every name to one address.
#[derive(Clone, Copy, Debug)]
pub struct Pinned(SocketAddr);

impl Service<Name> for Pinned {
    type Response = std::iter::Once<SocketAddr>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _name: Name) -> Self::Future {
        std::future::ready(Ok(std::iter::once(self.0)))
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Http<C> {
    /// Over any connector of hyper-util. Its own timeout bounds how long it tries.
    pub fn over(connector: C, limits: &Limits) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(MAX_IDLE)
            .http1_max_buf_size(limits.head_bytes.max(8 << 10))
            .http1_max_headers(limits.headers)
            .build(connector);
        Self { client }
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Transport for Http<C> {
    fn send(&self, request: Request<Bytes>) -> Boxed<'_, Result<Response<Body>, SendError>> {
        let answer = self.client.request(request.map(Full::new));
        Box::pin(async move {
            match answer.await {
                Ok(answer) => {
                    Ok(answer.map(|body| body.map_err(|error| BrokenBody(chain(&error))).boxed_unsync()))
                }
                Err(error) if error.is_connect() => Err(SendError::Connect(chain(&error))),
                Err(error) => Err(SendError::Broken(chain(&error))),
            }
        })
    }
}

fn set_up<R>(mut connector: HttpConnector<R>, timeout: Duration) -> HttpConnector<R> {
    connector.set_connect_timeout(Some(timeout));
    connector.set_nodelay(true);
    connector
}

/// An error with its causes: hyper's own text says only on which floor it happened.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
