//! The transport's pool of idle connections. Connections are in memory and time is paused, so that
//! the test controls the timing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use steadfast_client::transport::{Body, Http, SendError, Transport as _};
use steadfast_client::{BoxFuture, Bytes, Limits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower_service::Service;

/// How long an idle connection stays in the pool, and how many idle connections it holds.
const MAX_IDLE_TIME: Duration = Duration::from_secs(4);
const MAX_IDLE_CONNECTIONS: usize = 1024;

/// A connector that passes the server's end of each connection to the test.
#[derive(Clone)]
struct Network {
    ends: mpsc::UnboundedSender<ServerEnd>,
    visibility: CloseVisibility,
}

/// When the client can see that the server has closed a connection.
#[derive(Clone, Copy, PartialEq)]
enum CloseVisibility {
    Good,
    /// Not during the check before reuse, only during use.
    Late,
    /// The server closes the connection before the client sends anything.
    Never,
}

/// The server's end of a connection.
struct ServerEnd {
    stream: DuplexStream,
}

impl ServerEnd {
    /// The path of the next complete request. `None` if the client has closed the connection.
    async fn request(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon(self.stream.read_u8()).await.ok()?);
        }
        let head = String::from_utf8(head).unwrap();
        Some(head.split(' ').nth(1).unwrap().to_owned())
    }

    async fn answer(&mut self, text: &str) {
        let text = format!("HTTP/1.1 200 x\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Responds to the next request with its path.
    async fn echo(&mut self) {
        let path = self.request().await.expect("a request");
        self.answer(&path).await;
    }
}

/// The client's end of a connection.
struct ClientEnd {
    io: TokioIo<DuplexStream>,
    visibility: CloseVisibility,
}

impl Read for ClientEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // A poll with the no-op waker is the check before reuse.
        if self.visibility == CloseVisibility::Late && context.waker().will_wake(Waker::noop()) {
            return Poll::Pending;
        }
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for ClientEnd {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl Service<Uri> for Network {
    type Response = ClientEnd;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<ClientEnd>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        let (mut here, there) = tokio::io::duplex(4096);
        self.ends.send(ServerEnd { stream: there }).unwrap();
        if self.visibility == CloseVisibility::Never {
            (here, _) = tokio::io::duplex(1);
        }
        Box::pin(std::future::ready(Ok(ClientEnd { io: TokioIo::new(here), visibility: self.visibility })))
    }
}

/// A client, and the server's ends of its connections in the order of connecting.
struct Scene {
    http: Http<Network>,
    ends: mpsc::UnboundedReceiver<ServerEnd>,
}

impl Scene {
    fn new(visibility: CloseVisibility) -> Self {
        let (sender, ends) = mpsc::unbounded_channel();
        Self { http: Http::over(Network { ends: sender, visibility }, &Limits::default()), ends }
    }

    async fn send(&self, url: &str) -> Result<Response<Body>, SendError> {
        self.http.send(Request::post(url).body(Bytes::new()).unwrap()).await
    }

    async fn post(&self, url: &str) -> Result<String, SendError> {
        let body = soon(self.send(url)).await?.into_body();
        Ok(String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }

    /// Sends a request that this end answers.
    async fn send_at(&self, end: &mut ServerEnd, url: &str) {
        let (text, ()) = tokio::join!(self.post(url), end.echo());
        assert_eq!(text.as_deref(), Ok(Uri::try_from(url).unwrap().path()));
    }

    /// Sends a request that opens a new connection, and returns the server's end.
    async fn send_on_new_connection(&mut self, url: &str) -> ServerEnd {
        let Self { http, ends } = self;
        let request = Request::post(url).body(Bytes::new()).unwrap();
        let answered = async {
            let mut end = soon(ends.recv()).await.unwrap();
            end.echo().await;
            end
        };
        let (response, end) = tokio::join!(http.send(request), answered);
        response.unwrap().into_body().collect().await.unwrap();
        end
    }

    fn has_connected(&mut self) -> bool {
        self.ends.try_recv().is_ok()
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_reused() {
    let mut scene = Scene::new(CloseVisibility::Good);
    let mut end = scene.send_on_new_connection("http://a/0").await;
    for no in 1..10 {
        scene.send_at(&mut end, &format!("http://a/{no}")).await;
    }
    assert!(!scene.has_connected());
}

/// Concurrent requests use separate connections, and the most recently used idle connection is
/// reused first.
#[tokio::test(start_paused = true)]
async fn concurrent_requests_use_separate_connections() {
    let mut scene = Scene::new(CloseVisibility::Good);
    let ends = async {
        let (mut first, mut second) =
            (soon(scene.ends.recv()).await.unwrap(), soon(scene.ends.recv()).await.unwrap());
        second.echo().await;
        first.echo().await;
        (first, second)
    };
    let http = &scene.http;
    let send = |url: &'static str| http.send(Request::post(url).body(Bytes::new()).unwrap());
    let (a, b, (mut first, mut second)) = tokio::join!(send("http://a/1"), send("http://a/2"), ends);
    b.unwrap().into_body().collect().await.unwrap();
    a.unwrap().into_body().collect().await.unwrap();
    scene.send_at(&mut first, "http://a/3").await;
    drop(first);
    scene.send_at(&mut second, "http://a/4").await;
    assert!(!scene.has_connected());
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_for_one_host() {
    let mut scene = Scene::new(CloseVisibility::Good);
    let mut a = scene.send_on_new_connection("http://a/1").await;
    let _same_name_another_port = scene.send_on_new_connection("http://a:81/1").await;
    let _b = scene.send_on_new_connection("http://b/1").await;
    scene.send_at(&mut a, "http://a/2").await;
}

/// A response that was not read completely cannot be skipped, so the client closes the connection,
/// and the server notices.
#[tokio::test(start_paused = true)]
async fn dropping_a_response_closes_its_connection() {
    let mut scene = Scene::new(CloseVisibility::Good);
    let mut end = scene.send_on_new_connection("http://a/1").await;
    let begun = async {
        end.request().await.unwrap();
        end.stream.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 99\r\n\r\nhalf").await.unwrap();
    };
    let (response, ()) = tokio::join!(scene.send("http://a/2"), begun);
    let mut body = response.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    drop(body);
    assert_eq!(end.request().await, None);
    scene.send_on_new_connection("http://a/3").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_may_close_an_idle_connection() {
    let mut scene = Scene::new(CloseVisibility::Good);
    for no in 0..5 {
        drop(scene.send_on_new_connection(&format!("http://a/{no}")).await);
    }
}

/// The server closes pooled connections at the moment of reuse. Nothing of the request was sent, so
/// the client tries the other pooled connections and finally a new one.
#[tokio::test(start_paused = true)]
async fn an_unsent_request_is_retried() {
    let mut scene = Scene::new(CloseVisibility::Late);
    let first = scene.send_on_new_connection("http://a/1").await;
    // Two concurrent requests open two connections.
    let mut first = first;
    let held = async {
        first.request().await.unwrap();
        let mut second = soon(scene.ends.recv()).await.unwrap();
        second.echo().await;
        first.answer("late").await;
        second
    };
    let http = &scene.http;
    let send = |url: &'static str| http.send(Request::post(url).body(Bytes::new()).unwrap());
    let (a, b, second) = tokio::join!(send("http://a/2"), send("http://a/3"), held);
    for response in [a, b] {
        response.unwrap().into_body().collect().await.unwrap();
    }
    drop((first, second));
    scene.send_on_new_connection("http://a/4").await;
    assert!(!scene.has_connected());
}

/// A request that the server may have read is not sent on another connection.
#[tokio::test(start_paused = true)]
async fn a_request_that_may_have_been_sent_is_not_retried() {
    let mut scene = Scene::new(CloseVisibility::Good);
    let mut end = scene.send_on_new_connection("http://a/1").await;
    let read = async {
        end.request().await.unwrap();
        drop(end);
    };
    let (outcome, ()) = tokio::join!(scene.post("http://a/2"), read);
    assert!(matches!(outcome, Err(SendError::Broken(_))), "{outcome:?}");
    assert!(!scene.has_connected());
    // Not even if only half of it was sent.
    let mut end = scene.send_on_new_connection("http://a/3").await;
    let read = async {
        end.stream.read_u8().await.unwrap();
        drop(end);
    };
    let (outcome, ()) = tokio::join!(scene.post("http://a/4"), read);
    assert!(matches!(outcome, Err(SendError::Broken(_))), "{outcome:?}");
    assert!(!scene.has_connected());
}

/// A new connection that the server closes immediately is not retried.
#[tokio::test(start_paused = true)]
async fn a_new_connection_is_the_last_attempt() {
    let mut scene = Scene::new(CloseVisibility::Never);
    let why = "the server closed a new connection immediately".to_owned();
    assert_eq!(scene.post("http://a/1").await, Err(SendError::Connect(why)));
    assert!(scene.has_connected());
    assert!(!scene.has_connected());
}

/// The sweeper closes the connection without another request, and the server notices.
#[tokio::test(start_paused = true)]
async fn an_idle_connection_expires() {
    let mut scene = Scene::new(CloseVisibility::Good);
    let mut end = scene.send_on_new_connection("http://a/1").await;
    let begun = Instant::now();
    assert_eq!(end.request().await, None);
    let took = begun.elapsed();
    assert!(took >= MAX_IDLE_TIME && took < MAX_IDLE_TIME + Duration::from_millis(10), "{took:?}");
    // A connection that was used meanwhile stays, and expires later.
    let mut end = scene.send_on_new_connection("http://a/2").await;
    tokio::time::sleep(MAX_IDLE_TIME * 3 / 4).await;
    scene.send_at(&mut end, "http://a/3").await;
    let begun = Instant::now();
    tokio::time::sleep(MAX_IDLE_TIME * 3 / 4).await;
    scene.send_at(&mut end, "http://a/4").await;
    assert!(begun.elapsed() >= MAX_IDLE_TIME * 3 / 4);
    assert_eq!(end.request().await, None);
    assert!(begun.elapsed() < MAX_IDLE_TIME * 3, "{:?}", begun.elapsed());
}

/// An expired connection is not reused even before the sweeper has run.
#[tokio::test(start_paused = true)]
async fn an_expired_connection_is_not_reused() {
    let mut scene = Scene::new(CloseVisibility::Good);
    // The sweeper first runs when this connection is about to expire.
    let mut end = scene.send_on_new_connection("http://a/1").await;
    tokio::time::sleep(MAX_IDLE_TIME / 4).await;
    scene.send_at(&mut end, "http://a/2").await;
    tokio::time::sleep(MAX_IDLE_TIME - Duration::from_millis(1)).await;
    scene.send_at(&mut end, "http://a/3").await;
    tokio::time::sleep(MAX_IDLE_TIME).await;
    scene.send_on_new_connection("http://a/4").await;
    assert_eq!(end.request().await, None);
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_bounded() {
    for (count, closed) in [(MAX_IDLE_CONNECTIONS, 0), (MAX_IDLE_CONNECTIONS + 1, 1)] {
        let mut scene = Scene::new(CloseVisibility::Good);
        let mut responses = Vec::new();
        let mut ends = Vec::new();
        for no in 0..count {
            let url = format!("http://a/{no}");
            let request = Request::post(&url).body(Bytes::new()).unwrap();
            let Scene { http, ends: new } = &mut scene;
            let answered = async {
                let mut end = soon(new.recv()).await.unwrap();
                end.echo().await;
                end
            };
            // The body is unread, so the connection is in use.
            let (response, end) = tokio::join!(http.send(request), answered);
            responses.push(response.unwrap());
            ends.push(end);
        }
        for response in responses {
            response.into_body().collect().await.unwrap();
        }
        let mut over = 0;
        for end in &mut ends {
            // Whether the client has closed it yet.
            let next = std::pin::pin!(end.request());
            over += usize::from(poll_once(next).is_some());
        }
        assert_eq!(over, closed, "{count}");
    }
}

/// Waits for something that must happen. Time is paused, so the timeout elapses only when nothing
/// else can happen.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), work).await.expect("it does not come")
}

/// The output of a future, if one poll completes it.
fn poll_once<F: Future>(work: Pin<&mut F>) -> Option<F::Output> {
    match work.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
