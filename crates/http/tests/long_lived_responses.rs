//! Long-lived responses, which the accept loop writes without hyper.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use steadfast_http::listen::{self, Limits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tower_service::Service;

/// A body that consists of the received frames. The sender notices when the body is dropped.
struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Responds to each request with the next stream.
#[derive(Clone)]
struct Streams(Arc<Mutex<Vec<mpsc::Receiver<Bytes>>>>);

impl Service<Request<Incoming>> for Streams {
    type Response = Response<Pieces>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Incoming>) -> Self::Future {
        let pieces = self.0.lock().unwrap().pop().expect("a stream for every request");
        let response = Response::builder().header("content-type", "text/event-stream").header("x-one", "1");
        std::future::ready(Ok(response.body(Pieces { pieces }).unwrap()))
    }
}

struct Scene {
    address: SocketAddr,
    pieces: mpsc::Sender<Bytes>,
    stop: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
}

/// An accept loop with one open stream, and one stream that has ended for a second request.
async fn scene() -> Scene {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (pieces, stream) = mpsc::channel(1);
    // For the request after the stream.
    let (_, over) = mpsc::channel(1);
    let (stop, stopped) = oneshot::channel::<()>();
    let service = Streams(Arc::new(Mutex::new(vec![over, stream])));
    let serving = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        listen::serve(listener, service, Limits::default(), stopped).await.unwrap();
    });
    Scene { address, pieces, stop, serving }
}

async fn send(scene: &Scene, head: &str) -> TcpStream {
    let mut client = TcpStream::connect(scene.address).await.unwrap();
    client.write_all(head.as_bytes()).await.unwrap();
    client
}

async fn read(client: &mut TcpStream, size: usize) -> String {
    let mut bytes = vec![0; size];
    client.read_exact(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

async fn head(client: &mut TcpStream) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push_str(&read(client, 1).await);
    }
    head
}

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[tokio::test]
async fn it_is_written_frame_by_frame_until_it_ends() {
    let scene = scene().await;
    let mut client = send(&scene, GET).await;
    // The head is sent before the first frame exists.
    let head = head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for field in ["content-type: text/event-stream", "x-one: 1", "transfer-encoding: chunked"] {
        assert!(head.contains(&format!("\r\n{field}\r\n")), "{field} in {head}");
    }
    assert!(head.contains("\r\ndate: "), "{head}");
    scene.pieces.send("hello".into()).await.unwrap();
    assert_eq!(read(&mut client, 10).await, "5\r\nhello\r\n");
    // An empty frame does not end the body.
    scene.pieces.send(Bytes::new()).await.unwrap();
    scene.pieces.send("x".repeat(300_000).into()).await.unwrap();
    assert_eq!(read(&mut client, 7 + 300_000 + 2).await.len(), 300_009);
    drop(scene.pieces);
    assert_eq!(read(&mut client, 5).await, "0\r\n\r\n");
    // Then the connection serves the next request.
    client.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    assert!(self::head(&mut client).await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn bytes_from_the_client_during_the_response_are_discarded() {
    let scene = scene().await;
    let mut client = send(&scene, GET).await;
    head(&mut client).await;
    client.write_all(GET.as_bytes()).await.unwrap();
    scene.pieces.send("hello".into()).await.unwrap();
    assert_eq!(read(&mut client, 10).await, "5\r\nhello\r\n");
    drop(scene.pieces);
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "0\r\n\r\n");
}

#[tokio::test]
async fn connection_close_is_honoured() {
    let scene = scene().await;
    let mut client = send(&scene, "GET / HTTP/1.1\r\nhost: a\r\nconnection: x, Close\r\n\r\n").await;
    let head = head(&mut client).await;
    assert!(head.contains("\r\nconnection: close\r\n"), "{head}");
    drop(scene.pieces);
    let mut rest = String::new();
    let read = client.read_to_string(&mut rest);
    tokio::time::timeout(Duration::from_secs(10), read).await.unwrap().unwrap();
    assert_eq!(rest, "0\r\n\r\n");
}

#[tokio::test]
async fn it_ends_when_the_client_disconnects() {
    let scene = scene().await;
    let mut client = send(&scene, GET).await;
    head(&mut client).await;
    drop(client);
    // Only a loop that does not notice reaches this timeout.
    tokio::time::timeout(Duration::from_secs(10), scene.pieces.closed()).await.unwrap();
}

#[tokio::test]
async fn a_stopping_loop_waits_for_it() {
    let scene = scene().await;
    let mut client = send(&scene, GET).await;
    head(&mut client).await;
    scene.stop.send(()).unwrap();
    scene.pieces.send("last".into()).await.unwrap();
    assert_eq!(read(&mut client, 9).await, "4\r\nlast\r\n");
    assert!(!scene.serving.is_finished());
    drop(scene.pieces);
    scene.serving.await.unwrap();
    let mut rest = String::new();
    client.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "0\r\n\r\n");
}

#[tokio::test]
async fn http_1_0_clients_get_no_chunks() {
    let scene = scene().await;
    let mut client = send(&scene, "GET / HTTP/1.0\r\n\r\n").await;
    let head = head(&mut client).await;
    assert!(!head.contains("chunked"), "{head}");
    scene.pieces.send("hello".into()).await.unwrap();
    assert_eq!(read(&mut client, 5).await, "hello");
}
