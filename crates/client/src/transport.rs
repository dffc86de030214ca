//! How requests reach a server: the only place that knows sockets.

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
use crate::owner::Boxed;
use line::{Bounds, Failed, Line};
use pool::Pool;

mod framing;
mod line;
mod pool;
#[cfg(feature = "tls")]
mod tls;

#[cfg(feature = "tls")]
pub use tls::{Identity, SecureStream, Secured, Tls, TlsError, TlsFiles};

pub use line::Io;

/// A connection that has been silent for so long is probed, so often and so many times. If nobody replies it is broken: a machine
/// that vanishes says nothing, and whoever waits for an answer sends nothing that would tell.
const PROBE_AFTER: Duration = Duration::from_secs(15);
const PROBE_EVERY: Duration = Duration::from_secs(5);
const MAX_PROBES: u32 = 3;

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

/// Why there is no answer. The network is to blame, unless it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Nothing was sent.
    #[error("{0}")]
    Connect(String),
    /// Nothing was sent, because the server has not proven who it is: its operator is to blame, or ours. Trying again does not
    /// help.
    #[error("{0}")]
    Untrusted(String),
    /// Something may have been sent.
    #[error("{0}")]
    Broken(String),
}

/// A body broke off. The network is to blame, or a server that ends its answers amiss.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BrokenBody(pub String);

/// HTTP/1.1 over the connections that a connector makes: TCP, or TLS over it.
pub struct Http<C: Connector> {
    connector: C,
    bounds: Bounds,
    pool: Arc<Pool<C::Io>>,
}

/// Makes connections: any such service, like those of hyper-util. Its own timeout bounds how long it tries.
pub trait Connector: Clone + Send + Sync + 'static {
    type Io: Io;
    fn connect(&self, uri: Uri) -> Boxed<'static, Result<Self::Io, SendError>>;
}

impl<S> Connector for S
where
    S: Service<Uri> + Clone + Send + Sync + 'static,
    S::Response: Io,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: Send,
{
    type Io = S::Response;

    fn connect(&self, uri: Uri) -> Boxed<'static, Result<Self::Io, SendError>> {
        let mut connector = self.clone();
        Box::pin(async move {
            let failed = |error: S::Error| not_connected(&*error.into());
            std::future::poll_fn(|context| connector.poll_ready(context)).await.map_err(failed)?;
            connector.call(uri).await.map_err(failed)
        })
    }
}

impl Http<HttpConnector> {
    /// Plain TCP.
    pub fn new(timeouts: &Timeouts, limits: &Limits) -> Self {
        Self::over(set_up(HttpConnector::new(), timeouts.connect), limits)
    }
}

impl Http<HttpConnector<Anchor>> {
    /// Plain TCP to where the anchor says, whatever the host of a request resolves to. Its name is still sent as `Host`.
    pub fn anchored(anchor: &Anchor, timeouts: &Timeouts, limits: &Limits) -> Self {
        let connector = HttpConnector::new_with_resolver(anchor.clone());
        Self::over(set_up(connector, timeouts.connect), limits)
    }
}

/// Says where connections go: to one address, or to wherever their host resolves to. It can be moved while it is in use;
/// connections that are open stay where they are. Clones are the same anchor.
#[derive(Clone, Debug, Default)]
pub struct Anchor(Arc<RwLock<Option<SocketAddr>>>);

impl Anchor {
    /// `None`: wherever the host resolves to.
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

impl Service<Name> for Anchor {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Boxed<'static, io::Result<Self::Response>>;

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
        let bounds = Bounds { bytes: limits.head_bytes.max(8 << 10), fields: limits.headers };
        Self { connector, bounds, pool: Arc::default() }
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Body>, SendError> {
        let host = host_of(request.uri())?;
        // Its answer may last. It has a connection of its own.
        let is_get = request.method() == Method::GET;
        // The server may close a connection just when it is wanted again. Each of those that wait is tried once at most, and
        // the last attempt is on a new one.
        loop {
            let kept = if is_get { None } else { self.pool.take(host) };
            let is_new = kept.is_none();
            let line = match kept {
                Some(line) => line,
                None => {
                    let io = self.connector.connect(request.uri().clone()).await?;
                    Box::new(Line::new(host.to_owned(), io))
                }
            };
            let pool = (!is_get).then(|| Arc::downgrade(&self.pool));
            match line.exchange(&request, self.bounds, pool).await {
                Ok(answer) => return Ok(answer.map(|body| body.boxed_unsync())),
                Err(Failed::NotSent) if is_new => {
                    let why = "the server closed the connection at once".to_owned();
                    return Err(SendError::Connect(why));
                }
                Err(Failed::NotSent) => {}
                Err(Failed::Broken(why)) => return Err(SendError::Broken(why)),
            }
        }
    }
}

/// The host of a server, with its port.
fn host_of(uri: &Uri) -> Result<&str, SendError> {
    let unusable = || SendError::Connect(format!("{uri} is not the address of a server"));
    let host = uri.authority().ok_or_else(unusable)?.as_str();
    // Whoever put a name and a password there did not mean to tell them to everybody.
    Ok(host.rsplit_once('@').map_or(host, |(_, host)| host))
}

impl<C: Connector> Transport for Http<C> {
    fn send(&self, request: Request<Bytes>) -> Boxed<'_, Result<Response<Body>, SendError>> {
        Box::pin(self.exchange(request))
    }
}

impl<C: Connector> std::fmt::Debug for Http<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

fn set_up<R>(mut connector: HttpConnector<R>, timeout: Duration) -> HttpConnector<R> {
    connector.set_connect_timeout(Some(timeout));
    connector.set_nodelay(true);
    connector.set_keepalive(Some(PROBE_AFTER));
    connector.set_keepalive_interval(Some(PROBE_EVERY));
    connector.set_keepalive_retries(Some(MAX_PROBES));
    connector
}

/// Why there is no connection: nobody is there, or it is not who it should be.
fn not_connected(error: &(dyn std::error::Error + 'static)) -> SendError {
    #[cfg(feature = "tls")]
    if tls::is_distrust(error) {
        return SendError::Untrusted(chain(error));
    }
    SendError::Connect(chain(error))
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
