//! An accept loop for servers that have none of their own, with what goes around it: TLS, a path, and when to stop.

mod connection;
mod door;
mod mount;
mod stop;
mod stream;
#[cfg(feature = "tls")]
pub mod tls;
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

pub use door::{Door, Opening, Plain};
pub use mount::OnlyAt;
pub use stop::Signals;
pub use workers::Workers;

/// Bounds of an accept loop.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time. More wait to be accepted.
    pub connections: usize,
    /// How long a client may take for the handshake, where there is one.
    pub handshake: Duration,
    /// How long a client may take to send the head of a request.
    pub header_timeout: Duration,
    /// How long requests are still taken on open connections after the loop was told to stop, for whoever runs it in two
    /// steps: a balancer must not lose a request because it was about to use a connection again.
    pub notice: Duration,
    /// How long open connections may take to finish after the loop was told to stop.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            handshake: Duration::from_secs(10),
            header_timeout: Duration::from_secs(30),
            notice: Duration::from_secs(1),
            farewell: Duration::from_secs(5),
        }
    }
}

/// Serves HTTP/1.1 until `stop` is done; then accepts no more, and returns when all connections have ended or the
/// farewell time is over.
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
    serve_behind(&Workers::default(), Plain, listener, service, limits, stop, std::future::ready(())).await
}

/// Serves HTTP/1.1 behind a door, such as TLS, on `workers`, and stops in steps. Once `closed` is done
/// the loop accepts no more connections. After the notice time each connection ends when no request is
/// under way on it. Once `stop` is done, too, the loop returns after the farewell time. It returns
/// early if no connection is left. The calls that its connections started may still be running then:
/// they need `workers` until they end.
pub async fn serve_behind<D, S, B>(
    workers: &Workers,
    door: D,
    listener: TcpListener,
    service: S,
    limits: Limits,
    closed: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) -> io::Result<()>
where
    D: Door,
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: std::error::Error + Send + Sync,
{
    let places = Arc::new(Semaphore::new(limits.connections));
    let told = CancellationToken::new();
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout);
    let (mut closed, mut stop) = (std::pin::pin!(closed), std::pin::pin!(stop));
    loop {
        let next = async {
            // A semaphore that is never closed always gives a permit in the end.
            let place = Arc::clone(&places).acquire_owned().await;
            (place, accept(&listener).await)
        };
        let (place, stream) = tokio::select! {
            (place, stream) = next => (place, stream?),
            () = &mut closed => break,
        };
        let (told, http) = (told.clone(), http.clone());
        let (door, service) = (door.clone(), service.clone());
        let patience = limits.handshake;
        workers.serve(stream, move |stream| async move {
            match tokio::time::timeout(patience, door.open(stream)).await {
                Ok(Ok(stream)) => {
                    if let Err(error) = connection::serve(&http, stream, service, told).await {
                        tracing::debug!(%error, "a connection ended early");
                    }
                }
                Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
                Err(_) => tracing::debug!("a handshake took too long"),
            }
            drop(place);
        });
    }
    drop(listener);
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    // Whoever has all places knows that nobody else has one.
    let mut ended = std::pin::pin!(places.acquire_many(all));
    let is_stopped = tokio::select! {
        _ = &mut ended => return Ok(()),
        () = &mut stop => true,
        () = tokio::time::sleep(limits.notice) => false,
    };
    told.cancel();
    if !is_stopped {
        tokio::select! {
            _ = &mut ended => return Ok(()),
            () = &mut stop => {}
        }
    }
    let _ = tokio::time::timeout(limits.farewell, ended).await;
    Ok(())
}

/// The next connection. Running out of file descriptors passes; everything else about one connection is its own
/// problem.
async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without this an answer waits 40 ms for the client's delayed acknowledgement.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY is not to be had");
                }
                return Ok(stream);
            }
            Err(error) if is_about_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "connections cannot be accepted");
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
    use crate::body::ResponseBody;

    /// Says on which thread it was asked.
    #[derive(Clone)]
    struct WhoAmI;

    impl Service<Request<Incoming>> for WhoAmI {
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
    async fn a_loop_without_a_free_place_can_be_stopped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { connections: 1, farewell: Duration::ZERO, ..Limits::default() };
        let stop = Arc::new(tokio::sync::Notify::new());
        let stopped = Arc::clone(&stop);
        let serving = tokio::spawn(async move { serve(listener, WhoAmI, limits, stopped.notified()).await });
        // Answered, so it holds the only place; and it stays open.
        let mut guest = TcpStream::connect(address).await.unwrap();
        let mut answer = [0; 12];
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        guest.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        guest.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        stop.notify_one();
        // Only a loop that hangs gets near this.
        tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap().unwrap();
    }

    /// Asks on an open connection.
    async fn ask(guest: &mut TcpStream) -> String {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        guest.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.windows(12).any(|bytes| bytes.starts_with(b"connections-")) {
            assert_ne!(guest.read_buf(&mut answer).await.unwrap(), 0, "it was closed");
        }
        let answer = String::from_utf8(answer).unwrap();
        answer[answer.find("connections-").unwrap()..].to_owned()
    }

    #[tokio::test]
    async fn connections_stay_with_their_thread_and_are_shared_out_evenly() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = Limits { farewell: Duration::ZERO, ..Limits::default() };
        let stop = Arc::new(tokio::sync::Notify::new());
        let stopped = Arc::clone(&stop);
        let workers = Workers::start(2).unwrap();
        let serving = tokio::spawn(async move {
            let stop = async move { stopped.notified().await };
            serve_behind(&workers, Plain, listener, WhoAmI, limits, stop, std::future::ready(())).await
        });
        let mut guests = Vec::new();
        let mut names = Vec::new();
        for _ in 0..4 {
            let mut guest = TcpStream::connect(address).await.unwrap();
            names.push(ask(&mut guest).await);
            guests.push(guest);
        }
        let mut sorted = names.clone();
        sorted.sort();
        assert_eq!(sorted, ["connections-0", "connections-0", "connections-1", "connections-1"]);
        for (guest, name) in guests.iter_mut().zip(&names) {
            assert_eq!(ask(guest).await, *name);
        }
        stop.notify_one();
        // Only a loop that hangs gets near this.
        tokio::time::timeout(Duration::from_secs(10), serving).await.unwrap().unwrap().unwrap();
    }
}
