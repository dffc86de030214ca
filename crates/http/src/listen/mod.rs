//! An accept loop for programs without an HTTP server of their own: connection limits, TLS, worker
//! threads, a path, and graceful shutdown.

mod connection;
mod handshake;
mod shutdown_signals;
mod single_path;
#[cfg(feature = "tls")]
pub mod tls;
mod unbuffered_response;
mod workers;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
pub use http::{Request, Response, StatusCode};
pub use hyper::body::Incoming;
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
pub use tower_service::Service;

pub use handshake::{Handshake, HandshakeFuture, Plain};
pub use shutdown_signals::Signals;
pub use single_path::SinglePath;
pub use workers::Workers;

/// Limits and timeouts of an accept loop.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections. Further connections wait to be accepted.
    pub connections: usize,
    /// How long a client may take for the handshake, if there is one.
    pub handshake: Duration,
    /// How long a client may take to send the head of a request.
    pub header_timeout: Duration,
    /// How long open connections still serve requests after the loop stops accepting. A load
    /// balancer may be about to reuse a connection, and must not lose that request.
    pub drain_delay: Duration,
    /// How long open connections may take to finish after `stop`.
    pub shutdown_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            handshake: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            drain_delay: Duration::from_secs(1),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}

/// Serves HTTP/1.1 until `stop` completes. Then it accepts no more connections, and returns when
/// all connections have ended or after [`Limits::shutdown_grace`].
pub async fn serve<S, B>(
    listener: TcpListener,
    service: S,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    serve_with(&Workers::default(), Plain, listener, service, limits, stop, std::future::ready(())).await
}

/// Serves HTTP/1.1 after a handshake, such as TLS, on `workers`, and shuts down in steps. (1) When
/// `stop_accepting` completes, the loop accepts no more connections. (2) After
/// [`Limits::drain_delay`] each connection ends as soon as no request is in progress on it. (3)
/// When `stop` completes as well, the loop returns after [`Limits::shutdown_grace`]. It returns
/// early if no connection is left. Calls that the connections started may still be running then:
/// they need `workers` until they end.
pub async fn serve_with<D, S, B>(
    workers: &Workers,
    handshake: D,
    listener: TcpListener,
    service: S,
    limits: Limits,
    stop_accepting: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) -> io::Result<()>
where
    D: Handshake,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let permits = Arc::new(Semaphore::new(limits.connections));
    let draining = CancellationToken::new();
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout);
    let (mut stop_accepting, mut stop) = (std::pin::pin!(stop_accepting), std::pin::pin!(stop));
    loop {
        let next = async {
            // The semaphore is never closed, so this cannot fail.
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, accept(&listener).await)
        };
        let (permit, stream) = tokio::select! {
            (permit, stream) = next => (permit, stream?),
            () = &mut stop_accepting => break,
        };
        let (draining, http) = (draining.clone(), http.clone());
        let (handshake, service) = (handshake.clone(), service.clone());
        let handshake_timeout = limits.handshake;
        workers.serve(stream, move |stream| async move {
            match tokio::time::timeout(handshake_timeout, handshake.perform(stream)).await {
                Ok(Ok(stream)) => {
                    if let Err(error) = connection::serve(&http, stream, service, draining).await {
                        tracing::debug!(%error, "a connection ended with an error");
                    }
                }
                Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
                Err(_) => tracing::debug!("a handshake took too long"),
            }
            drop(permit);
        });
    }
    drop(listener);
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    // All permits are available only when all connections have ended.
    let mut ended = std::pin::pin!(permits.acquire_many(all));
    let stop_requested = tokio::select! {
        _ = &mut ended => return Ok(()),
        () = &mut stop => true,
        () = tokio::time::sleep(limits.drain_delay) => false,
    };
    draining.cancel();
    if !stop_requested {
        tokio::select! {
            _ = &mut ended => return Ok(()),
            () = &mut stop => {}
        }
    }
    let _ = tokio::time::timeout(limits.shutdown_grace, ended).await;
    Ok(())
}

/// Accepts the next connection. Retries after errors: a lack of file descriptors is temporary, and
/// other errors concern one connection.
async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without TCP_NODELAY a response waits 40 ms for the client's delayed
                // acknowledgement.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "could not set TCP_NODELAY");
                }
                return Ok(stream);
            }
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection; retrying");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn is_about_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::body::ResponseBody;

    /// Responds with the name of the thread that serves the request.
    #[derive(Clone)]
    struct ThreadName;

    impl Service<Request<Incoming>> for ThreadName {
        type Response = Response<ResponseBody>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Incoming>) -> Self::Future {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            std::future::ready(Ok(Response::new(ResponseBody::full(name.into()))))
        }
    }

    #[tokio::test]
    async fn a_loop_at_its_connection_limit_can_be_stopped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { connections: 1, shutdown_grace: Duration::ZERO, ..Limits::default() };
        let stop = Arc::new(tokio::sync::Notify::new());
        let stopped = Arc::clone(&stop);
        let serving =
            tokio::spawn(async move { serve(listener, ThreadName, limits, stopped.notified()).await });
        // The client has a response, so it holds the only permit, and its connection stays open.
        let mut client = TcpStream::connect(address).await.unwrap();
        let mut answer = [0; 12];
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        stop.notify_one();
        // Only a loop that hangs reaches this timeout.
        tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap().unwrap();
    }

    /// A handshake that the client never completes.
    #[derive(Clone)]
    struct Incomplete;

    impl Handshake for Incomplete {
        type Stream = TcpStream;

        fn perform(&self, stream: TcpStream) -> HandshakeFuture<TcpStream> {
            Box::pin(async move {
                std::future::pending::<()>().await;
                Ok(stream)
            })
        }
    }

    #[tokio::test]
    async fn a_client_without_a_handshake_is_disconnected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { handshake: Duration::from_millis(1), ..Limits::default() };
        let (workers, never) = (Workers::default(), std::future::pending::<()>());
        tokio::spawn(async move {
            serve_with(&workers, Incomplete, listener, ThreadName, limits, never, std::future::ready(()))
                .await
        });
        let mut client = TcpStream::connect(address).await.unwrap();
        use tokio::io::AsyncReadExt as _;
        // Only a server that keeps the connection reaches this timeout.
        let end = tokio::time::timeout(Duration::from_secs(60), client.read(&mut [0; 16])).await;
        assert_eq!(end.expect("the server disconnects").unwrap(), 0);
    }

    /// Sends a request on an open connection and returns the thread name in the response.
    async fn request_thread_name(client: &mut TcpStream) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.windows(12).any(|bytes| bytes.starts_with(b"connections-")) {
            assert_ne!(client.read_buf(&mut answer).await.unwrap(), 0, "it was closed");
        }
        let answer = String::from_utf8(answer).unwrap();
        answer[answer.find("connections-").unwrap()..].to_owned()
    }

    #[tokio::test]
    async fn connections_stay_on_one_thread_and_are_distributed_evenly() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { shutdown_grace: Duration::ZERO, ..Limits::default() };
        let stop = Arc::new(tokio::sync::Notify::new());
        let stopped = Arc::clone(&stop);
        let workers = Workers::start(2).unwrap();
        let serving = tokio::spawn(async move {
            let stop = async move { stopped.notified().await };
            serve_with(&workers, Plain, listener, ThreadName, limits, stop, std::future::ready(())).await
        });
        let mut clients = Vec::new();
        let mut names = Vec::new();
        for _ in 0..4 {
            let mut client = TcpStream::connect(address).await.unwrap();
            names.push(request_thread_name(&mut client).await);
            clients.push(client);
        }
        let mut sorted = names.clone();
        sorted.sort();
        assert_eq!(sorted, ["connections-0", "connections-0", "connections-1", "connections-1"]);
        for (client, name) in clients.iter_mut().zip(&names) {
            assert_eq!(request_thread_name(client).await, *name);
        }
        stop.notify_one();
        // Only a loop that hangs reaches this timeout.
        tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap().unwrap();
    }
}
