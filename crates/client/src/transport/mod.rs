//! How requests reach a server. Only this module opens sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower_service::Service;

use crate::config::{Limits, Timeouts};
use crate::handler::BoxFuture;
use connection::{Connection, HeadLimits, RequestError};
use pool::Pool;

mod connection;
mod framing;
mod pool;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "tls")]
pub use tls::{Identity, SecureStream, Secured, Tls, TlsError, TlsFiles};

pub use connection::Io;

/// TCP keepalive: after this idle time the kernel probes the peer, at this interval, this many
/// times. Without probes a client that waits for a response would never notice that the server's
/// machine is gone.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// The body of a response. Dropping it before its end closes the connection.
pub type Body = UnsyncBoxBody<Bytes, BrokenBody>;

/// Sends requests. Each request has a connection to itself until its response has ended.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request and returns the response, whose body is unread. Dropping the future abandons
    /// the request.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, SendError>>;
}

impl<T: Transport + ?Sized> Transport for Arc<T> {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, SendError>> {
        (**self).send(request)
    }
}

/// Why a request has no response. The network is to blame unless a variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No connection. Nothing was sent.
    #[error("{0}")]
    Connect(String),
    /// The server's certificate is not trusted. The operator of the server or of this client is to
    /// blame. Nothing was sent, and a retry does not help.
    #[error("{0}")]
    Untrusted(String),
    /// The connection broke. Part of the request may have been sent.
    #[error("{0}")]
    Broken(String),
}

/// The body of a response broke off. The network is to blame, or a server that ends its responses
/// incorrectly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BrokenBody(pub String);

/// HTTP/1.1 over the connections of a [`Connector`]: TCP, or TLS over TCP.
pub struct Http<C: Connector> {
    connector: C,
    head_limits: HeadLimits,
    pool: Arc<Pool<C::Io>>,
}

/// Opens connections. Implemented for connect services like those of hyper-util, whose own timeouts
/// apply.
pub trait Connector: Clone + Send + Sync + 'static {
    type Io: Io;
    fn connect(&self, uri: Uri) -> BoxFuture<'static, Result<Self::Io, SendError>>;
}

impl<S> Connector for S
where
    S: Service<Uri> + Clone + Send + Sync + 'static,
    S::Response: Io,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: Send,
{
    type Io = S::Response;

    fn connect(&self, uri: Uri) -> BoxFuture<'static, Result<Self::Io, SendError>> {
        let mut connector = self.clone();
        Box::pin(async move {
            let failed = |error: S::Error| connect_error(&*error.into());
            std::future::poll_fn(|context| connector.poll_ready(context)).await.map_err(failed)?;
            connector.call(uri).await.map_err(failed)
        })
    }
}

impl Http<HttpConnector> {
    /// A transport over plain TCP.
    pub fn new(timeouts: &Timeouts, limits: &Limits) -> Self {
        Self::over(with_socket_options(HttpConnector::new(), timeouts.connect), limits)
    }
}

impl Http<HttpConnector<PinnedAddress>> {
    /// A transport over plain TCP that connects to the pinned address. The host of the request is
    /// still sent as `Host`.
    pub fn pinned(pinned_address: &PinnedAddress, timeouts: &Timeouts, limits: &Limits) -> Self {
        let connector = HttpConnector::new_with_resolver(pinned_address.clone());
        Self::over(with_socket_options(connector, timeouts.connect), limits)
    }
}

/// The address that connections go to. `None` means the address that the host of the request
/// resolves to. The address can change at any time; open connections are not affected. Clones share
/// one address.
#[derive(Clone, Debug, Default)]
pub struct PinnedAddress(Arc<RwLock<Option<SocketAddr>>>);

impl PinnedAddress {
    /// `None`: the address that the host of the request resolves to.
    pub fn new(address: Option<SocketAddr>) -> Self {
        Self(Arc::new(RwLock::new(address)))
    }

    pub fn move_to(&self, address: Option<SocketAddr>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = address;
    }

    pub fn address(&self) -> Option<SocketAddr> {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service<Name> for PinnedAddress {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        if let Some(address) = self.address() {
            return Box::pin(std::future::ready(Ok(vec![address].into_iter())));
        }
        let found = GaiResolver::new().call(name);
        Box::pin(async move { Ok(found.await?.collect::<Vec<_>>().into_iter()) })
    }
}

impl<C: Connector> Http<C> {
    pub fn over(connector: C, limits: &Limits) -> Self {
        let head_limits = HeadLimits { bytes: limits.head_bytes.max(8 << 10), fields: limits.headers };
        Self { connector, head_limits, pool: Arc::default() }
    }

    async fn send_request(&self, request: Request<Bytes>) -> Result<Response<Body>, SendError> {
        let host = host_of(request.uri())?;
        // The response to a GET may be long-lived, so it gets a connection outside the pool.
        let is_get = request.method() == Method::GET;
        // The server may close an idle connection at the moment of reuse. Each pooled connection is
        // tried at most once, and the last attempt uses a new connection.
        loop {
            let pooled = if is_get { None } else { self.pool.take(host) };
            let is_new = pooled.is_none();
            let connection = match pooled {
                Some(connection) => connection,
                None => {
                    let io = self.connector.connect(request.uri().clone()).await?;
                    Box::new(Connection::new(host.to_owned(), io))
                }
            };
            let pool = (!is_get).then(|| Arc::downgrade(&self.pool));
            match connection.send_request(&request, self.head_limits, pool).await {
                Ok(answer) => return Ok(answer.map(|body| body.boxed_unsync())),
                Err(RequestError::NotSent) if is_new => {
                    let why = "the server closed a new connection immediately".to_owned();
                    return Err(SendError::Connect(why));
                }
                Err(RequestError::NotSent) => {}
                Err(RequestError::Broken(why)) => return Err(SendError::Broken(why)),
            }
        }
    }
}

fn host_of(uri: &Uri) -> Result<&str, SendError> {
    let unusable = || SendError::Connect(format!("{uri} is not a valid server address"));
    let host = uri.authority().ok_or_else(unusable)?.as_str();
    // Credentials in the URL must not be sent as part of `Host`.
    Ok(host.rsplit_once('@').map_or(host, |(_, host)| host))
}

impl<C: Connector> Transport for Http<C> {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Body>, SendError>> {
        Box::pin(self.send_request(request))
    }
}

impl<C: Connector> std::fmt::Debug for Http<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

fn with_socket_options<R>(mut connector: HttpConnector<R>, timeout: Duration) -> HttpConnector<R> {
    connector.set_connect_timeout(Some(timeout));
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE_IDLE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    connector
}

/// Classifies the error of a connection attempt: unreachable or untrusted.
fn connect_error(error: &(dyn std::error::Error + 'static)) -> SendError {
    #[cfg(feature = "tls")]
    if tls::is_untrusted(error) {
        return SendError::Untrusted(with_causes(error));
    }
    SendError::Connect(with_causes(error))
}

/// The text of an error with its causes: hyper's own text names only the layer that failed.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
