//! The connections that the transport keeps for the next request. They are in memory, so that the test decides what is seen
//! when, and time stands still.
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
use steadfast_client::{Boxed, Bytes, Limits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower_service::Service;

/// As long as a connection is kept, and as many.
const MAX_IDLE: Duration = Duration::from_secs(4);
const MAX_KEPT: usize = 1024;

/// Connects to whoever takes the other ends.
#[derive(Clone)]
struct Network {
    ends: mpsc::UnboundedSender<End>,
    sight: Sight,
}

/// When a connection that the server has closed is seen to be closed.
#[derive(Clone, Copy, PartialEq)]
enum Sight {
    Good,
    /// Not when it is looked at before it is used; only when it is used.
    Late,
    /// It is closed before anything is sent on it.
    Never,
}

/// The server's end of a connection.
struct End {
    stream: DuplexStream,
}

impl End {
    /// The path of the next request, once all of it is there; `None` if the client has closed the connection.
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

    /// Answers the next request with its own path.
    async fn echo(&mut self) {
        let path = self.request().await.expect("a request");
        self.answer(&path).await;
    }
}

/// The client's end.
struct Line {
    io: TokioIo<DuplexStream>,
    sight: Sight,
}

impl Read for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // Nobody is to be woken: it is only looked at.
        if self.sight == Sight::Late && context.waker().will_wake(Waker::noop()) {
            return Poll::Pending;
        }
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl Write for Line {
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
    type Response = Line;
    type Error = io::Error;
    type Future = Boxed<'static, io::Result<Line>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: Uri) -> Self::Future {
        let (mut here, there) = tokio::io::duplex(4096);
        self.ends.send(End { stream: there }).unwrap();
        if self.sight == Sight::Never {
            (here, _) = tokio::io::duplex(1);
        }
        Box::pin(std::future::ready(Ok(Line { io: TokioIo::new(here), sight: self.sight })))
    }
}

/// A client, and the servers' ends of its connections in the order in which they are made.
struct Scene {
    http: Http<Network>,
    ends: mpsc::UnboundedReceiver<End>,
}

impl Scene {
    fn new(sight: Sight) -> Self {
        let (sender, ends) = mpsc::unbounded_channel();
        Self { http: Http::over(Network { ends: sender, sight }, &Limits::default()), ends }
    }

    async fn send(&self, url: &str) -> Result<Response<Body>, SendError> {
        self.http.send(Request::post(url).body(Bytes::new()).unwrap()).await
    }

    async fn post(&self, url: &str) -> Result<String, SendError> {
        let body = soon(self.send(url)).await?.into_body();
        Ok(String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap())
    }

    /// A request that this end answers.
    async fn get_at(&self, end: &mut End, url: &str) {
        let (text, ()) = tokio::join!(self.post(url), end.echo());
        assert_eq!(text.as_deref(), Ok(Uri::try_from(url).unwrap().path()));
    }

    /// A request for which a new connection is made, and its end.
    async fn get_anew(&mut self, url: &str) -> End {
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
async fn a_connection_is_used_again() {
    let mut scene = Scene::new(Sight::Good);
    let mut end = scene.get_anew("http://a/0").await;
    for no in 1..10 {
        scene.get_at(&mut end, &format!("http://a/{no}")).await;
    }
    assert!(!scene.has_connected());
}

/// As many as there are requests at a time, and the one that was used last is the next.
#[tokio::test(start_paused = true)]
async fn requests_at_a_time_have_connections_of_their_own() {
    let mut scene = Scene::new(Sight::Good);
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
    scene.get_at(&mut first, "http://a/3").await;
    drop(first);
    scene.get_at(&mut second, "http://a/4").await;
    assert!(!scene.has_connected());
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_for_one_host() {
    let mut scene = Scene::new(Sight::Good);
    let mut a = scene.get_anew("http://a/1").await;
    let _same_name_another_port = scene.get_anew("http://a:81/1").await;
    let _b = scene.get_anew("http://b/1").await;
    scene.get_at(&mut a, "http://a/2").await;
}

/// What is not read to its end may be anything: the connection is closed, and so the server learns of it.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_let_go_closes_its_connection() {
    let mut scene = Scene::new(Sight::Good);
    let mut end = scene.get_anew("http://a/1").await;
    let begun = async {
        end.request().await.unwrap();
        end.stream.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 99\r\n\r\nhalf").await.unwrap();
    };
    let (response, ()) = tokio::join!(scene.send("http://a/2"), begun);
    let mut body = response.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "half");
    drop(body);
    assert_eq!(end.request().await, None);
    scene.get_anew("http://a/3").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_closes_what_nobody_uses_does_no_harm() {
    let mut scene = Scene::new(Sight::Good);
    for no in 0..5 {
        drop(scene.get_anew(&format!("http://a/{no}")).await);
    }
}

/// The server closes the connections just when they are wanted again. Nothing of the request went there, so it goes to one
/// after the other, and in the end to a new one.
#[tokio::test(start_paused = true)]
async fn what_was_not_sent_is_sent_again() {
    let mut scene = Scene::new(Sight::Late);
    let first = scene.get_anew("http://a/1").await;
    // It takes two requests at a time to have two connections.
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
    scene.get_anew("http://a/4").await;
    assert!(!scene.has_connected());
}

/// A request that the server may have read is not sent anywhere else.
#[tokio::test(start_paused = true)]
async fn what_may_have_been_sent_is_not() {
    let mut scene = Scene::new(Sight::Good);
    let mut end = scene.get_anew("http://a/1").await;
    let read = async {
        end.request().await.unwrap();
        drop(end);
    };
    let (outcome, ()) = tokio::join!(scene.post("http://a/2"), read);
    assert!(matches!(outcome, Err(SendError::Broken(_))), "{outcome:?}");
    assert!(!scene.has_connected());
    // Not even half of it.
    let mut end = scene.get_anew("http://a/3").await;
    let read = async {
        end.stream.read_u8().await.unwrap();
        drop(end);
    };
    let (outcome, ()) = tokio::join!(scene.post("http://a/4"), read);
    assert!(matches!(outcome, Err(SendError::Broken(_))), "{outcome:?}");
    assert!(!scene.has_connected());
}

/// A new connection that is closed at once is tried no second time.
#[tokio::test(start_paused = true)]
async fn a_new_connection_is_the_last_attempt() {
    let mut scene = Scene::new(Sight::Never);
    let why = "the server closed the connection at once".to_owned();
    assert_eq!(scene.post("http://a/1").await, Err(SendError::Connect(why)));
    assert!(scene.has_connected());
    assert!(!scene.has_connected());
}

/// Nobody has to ask for it: the server sees the connection closed.
#[tokio::test(start_paused = true)]
async fn a_connection_is_let_go_after_its_time() {
    let mut scene = Scene::new(Sight::Good);
    let mut end = scene.get_anew("http://a/1").await;
    let begun = Instant::now();
    assert_eq!(end.request().await, None);
    let took = begun.elapsed();
    assert!(took >= MAX_IDLE && took < MAX_IDLE + Duration::from_millis(10), "{took:?}");
    // What was used meanwhile stays, and goes in its turn.
    let mut end = scene.get_anew("http://a/2").await;
    tokio::time::sleep(MAX_IDLE * 3 / 4).await;
    scene.get_at(&mut end, "http://a/3").await;
    let begun = Instant::now();
    tokio::time::sleep(MAX_IDLE * 3 / 4).await;
    scene.get_at(&mut end, "http://a/4").await;
    assert!(begun.elapsed() >= MAX_IDLE * 3 / 4);
    assert_eq!(end.request().await, None);
    assert!(begun.elapsed() < MAX_IDLE * 3, "{:?}", begun.elapsed());
}

/// One that is too old and that nobody has looked after yet is not used.
#[tokio::test(start_paused = true)]
async fn a_connection_that_is_too_old_is_not_used() {
    let mut scene = Scene::new(Sight::Good);
    // The first look is when this one has waited for as long as it may.
    let mut end = scene.get_anew("http://a/1").await;
    tokio::time::sleep(MAX_IDLE / 4).await;
    scene.get_at(&mut end, "http://a/2").await;
    tokio::time::sleep(MAX_IDLE - Duration::from_millis(1)).await;
    scene.get_at(&mut end, "http://a/3").await;
    tokio::time::sleep(MAX_IDLE).await;
    scene.get_anew("http://a/4").await;
    assert_eq!(end.request().await, None);
}

#[tokio::test(start_paused = true)]
async fn no_more_are_kept_than_the_bound() {
    for (count, closed) in [(MAX_KEPT, 0), (MAX_KEPT + 1, 1)] {
        let mut scene = Scene::new(Sight::Good);
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
            // Its body is not read yet, so the connection is in use.
            let (response, end) = tokio::join!(http.send(request), answered);
            responses.push(response.unwrap());
            ends.push(end);
        }
        for response in responses {
            response.into_body().collect().await.unwrap();
        }
        let mut over = 0;
        for end in &mut ends {
            // It is closed already, or it is not.
            let next = std::pin::pin!(end.request());
            over += usize::from(now(next).is_some());
        }
        assert_eq!(over, closed, "{count}");
    }
}

/// What must come. It is waited for in vain only as long as nothing else happens, and that takes no time.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), work).await.expect("it does not come")
}

/// What a future gives when it is looked at once.
fn now<F: Future>(work: Pin<&mut F>) -> Option<F::Output> {
    match work.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
