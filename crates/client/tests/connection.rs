//! What the client writes to a connection and reads from it. Connections are in memory, so that the
//! test controls the timing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io;
use std::task::{Context, Poll};

use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use steadfast_client::transport::{Body, Http, SendError, Transport as _};
use steadfast_client::{BoxFuture, Bytes, Limits};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tower_service::Service;

/// A connector that passes the server's end of each connection to the test.
#[derive(Clone)]
struct Network(mpsc::UnboundedSender<DuplexStream>);

impl Service<Uri> for Network {
    type Response = TokioIo<DuplexStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _server: Uri) -> Self::Future {
        let (near, far) = tokio::io::duplex(64 << 10);
        self.0.send(far).unwrap();
        Box::pin(std::future::ready(Ok(TokioIo::new(near))))
    }
}

/// Sends a GET to a server that responds with these bytes and then closes the connection. Returns
/// the bytes that the server received, and the response.
async fn get(bytes: &[u8]) -> (String, Result<Response<Body>, SendError>) {
    let (ends, mut connected) = mpsc::unbounded_channel();
    let limits = Limits { head_bytes: 16 << 10, headers: 8, ..Limits::default() };
    let http = Http::over(Network(ends), &limits);
    let request = Request::get("http://user:secret@server:80/mcp?a=b").header("x-one", "1");
    let serve = async {
        let mut end = connected.recv().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(end.read_u8().await.unwrap());
        }
        // A network may split the bytes anywhere.
        for piece in bytes.chunks(7) {
            if end.write_all(piece).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        String::from_utf8(head).unwrap()
    };
    tokio::join!(serve, http.send(request.body(Bytes::new()).unwrap()))
}

/// The complete body, or the error.
async fn body(bytes: &[u8]) -> Result<String, String> {
    let body = get(bytes).await.1.unwrap().into_body().collect().await;
    body.map(|body| String::from_utf8(body.to_bytes().to_vec()).unwrap()).map_err(|error| error.to_string())
}

/// The text of the error.
async fn refused(bytes: &[u8]) -> String {
    match get(bytes).await.1 {
        Err(SendError::Broken(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn requests_have_the_expected_form() {
    let (head, answer) =
        get(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-two: 2\r\ncontent-length: 0\r\n\r\n")
            .await;
    assert_eq!(head, "GET /mcp?a=b HTTP/1.1\r\nhost: server:80\r\nx-one: 1\r\n\r\n");
    let answer = answer.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["x-two"], "2");
}

#[tokio::test]
async fn bodies_are_read_completely_in_every_framing() {
    let expected = Ok(":\n\ndata: 1\n\n".to_owned());
    let chunked =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n:\n\n\r\n9\r\ndata: 1\n\n\r\n0\r\n\r\n";
    assert_eq!(body(chunked).await, expected);
    assert_eq!(body(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n:\n\ndata: 1\n\nrest").await, expected);
    assert_eq!(body(b"HTTP/1.0 200 OK\r\n\r\n:\n\ndata: 1\n\n").await, expected);
    // An interim response is not the response.
    let hint = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx";
    assert_eq!(body(hint).await, Ok("x".to_owned()));
    assert_eq!(body(b"HTTP/1.1 204 No Content\r\n\r\n").await, Ok(String::new()));
}

#[tokio::test]
async fn a_truncated_body_is_an_error() {
    let short = "the server closed the connection before the end of the response";
    let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n:\n\n\r\n";
    assert_eq!(body(chunked).await, Err(short.to_owned()));
    assert_eq!(body(b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nx").await, Err(short.to_owned()));
    let amiss = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n";
    assert_eq!(body(amiss).await, Err("a chunk of the response is longer than its size".to_owned()));
}

#[tokio::test]
async fn invalid_responses_are_errors() {
    assert_eq!(refused(b"").await, "the server closed the connection without a response");
    assert_eq!(
        refused(b"HTTP/1.1 200 OK\r\nx-half").await,
        "the server closed the connection without a response"
    );
    assert_eq!(refused(b"SSH-2.0-OpenSSH_9.2p1\r\n").await, "the response is not valid HTTP");
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: 1\r\n".repeat(9));
    assert_eq!(refused(many.as_bytes()).await, "the response has too many headers");
    let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n", "x".repeat(16 << 10));
    assert_eq!(refused(long.as_bytes()).await, "the head of the response is too long");
    let lengths = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n";
    assert_eq!(refused(lengths).await, "the response has several different Content-Length values");
}

#[tokio::test]
async fn dropping_a_stream_closes_its_connection() {
    let (ends, mut connected) = mpsc::unbounded_channel();
    let http = Http::over(Network(ends), &Limits::default());
    let serve = async {
        let mut end: DuplexStream = connected.recv().await.unwrap();
        end.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        end
    };
    let request = Request::get("http://server/").body(Bytes::new()).unwrap();
    let (mut end, answer) = tokio::join!(serve, http.send(request));
    drop(answer.unwrap());
    let mut rest = Vec::new();
    end.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"\r\n\r\n"));
}

/// Posts a body to a server that reads `reads` bytes of it and then responds with these bytes.
/// Returns the response body, whether the next request used the same connection, and the bytes that
/// the server received.
async fn post(size: usize, reads: usize, bytes: &[u8]) -> (String, bool, Vec<u8>) {
    let (ends, mut connected) = mpsc::unbounded_channel();
    let http = Http::over(Network(ends), &Limits::default());
    let request = || {
        let request = Request::post("http://server/mcp").header("content-length", "7").header("x-one", "1");
        request.body(Bytes::from(vec![b'x'; size])).unwrap()
    };
    let serve = async {
        let mut end: DuplexStream = connected.recv().await.unwrap();
        let mut heard = vec![0; reads];
        end.read_exact(&mut heard).await.unwrap();
        end.write_all(bytes).await.unwrap();
        (end, heard)
    };
    let ((mut end, heard), answer) = tokio::join!(serve, http.send(request()));
    let text = answer.unwrap().into_body().collect().await.unwrap().to_bytes();
    let again = tokio::select! {
        biased;
        _ = http.send(request()) => unreachable!("the server does not respond"),
        _ = connected.recv() => false,
        read = end.read_u8() => read.is_ok(),
    };
    (String::from_utf8(text.to_vec()).unwrap(), again, heard)
}

#[tokio::test]
async fn the_client_sets_content_length_itself() {
    let head = b"POST /mcp HTTP/1.1\r\nhost: server\r\nx-one: 1\r\ncontent-length: 3\r\n\r\nxxx";
    let (text, again, heard) = post(3, head.len(), b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    assert_eq!((&*text, again), ("ok", true));
    assert_eq!(String::from_utf8_lossy(&heard), String::from_utf8_lossy(head));
    // A body that exceeds all buffers also arrives completely.
    let head = "POST /mcp HTTP/1.1\r\nhost: server\r\nx-one: 1\r\ncontent-length: 1000000\r\n\r\n";
    let all = head.len() + 1_000_000;
    let (text, again, heard) = post(1_000_000, all, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    assert_eq!((&*text, again), ("ok", true));
    assert!(heard.starts_with(head.as_bytes()) && heard[head.len()..].iter().all(|byte| *byte == b'x'));
}

#[tokio::test]
async fn a_server_may_respond_before_it_has_read_the_request() {
    let refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 4\r\n\r\nlong";
    assert_eq!(post(1_000_000, 10, refusal).await.0, "long");
    assert!(!post(1_000_000, 10, refusal).await.1, "the rest of the request would be taken for another");
}

#[tokio::test]
async fn an_unusable_connection_is_not_reused() {
    let close = b"HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 2\r\n\r\nok";
    let old = b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let more = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP";
    for bytes in [&close[..], old, more] {
        let (text, again, _) = post(3, 10, bytes).await;
        assert_eq!((&*text, again), ("ok", false), "{}", String::from_utf8_lossy(bytes));
    }
}

#[tokio::test]
async fn a_response_may_have_many_headers() {
    let many = format!("HTTP/1.1 200 OK\r\n{}content-length: 2\r\n\r\nok", "x: 1\r\n".repeat(60));
    assert_eq!(post(3, 10, many.as_bytes()).await.0, "ok");
}
