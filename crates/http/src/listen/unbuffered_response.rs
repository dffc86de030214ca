//! Writes a long-lived response (an event stream to a GET) without hyper. hyper keeps 16 KiB of
//! buffers per connection, and a client that listens for hours needs none.

use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::SystemTime;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_TYPE, DATE, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Response, Version};
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

/// Buffer size for bytes that a client sends during the response. They are discarded.
const DISCARD_READ_SIZE: usize = 256;

/// Returns true if the response may be long-lived: an event stream of unknown length that can be
/// sent in chunks.
pub(super) fn is_long_lived<B: Body>(request: &RequestTraits, response: &Response<B>) -> bool {
    let is_stream = |value: &HeaderValue| value.as_bytes().starts_with(b"text/event-stream");
    request.may_be_long_lived
        && response.status().is_success()
        && response.body().size_hint().exact().is_none()
        && !response.body().is_end_stream()
        && response.headers().get(CONTENT_TYPE).is_some_and(is_stream)
}

/// What is needed of a request after the service has consumed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestTraits {
    /// Whether the response may be written by this module.
    may_be_long_lived: bool,
    /// Whether the client allows the connection to be reused.
    pub(super) keep_alive: bool,
}

impl RequestTraits {
    pub(super) fn of(request: &Request<impl Body>) -> Self {
        let is_plain = request.method() == Method::GET && request.version() == Version::HTTP_11;
        let mut options =
            request.headers().get_all(CONNECTION).iter().flat_map(|value| {
                value.as_bytes().split(|byte| *byte == b',').map(|option| option.trim_ascii())
            });
        Self {
            may_be_long_lived: is_plain && request.body().is_end_stream(),
            keep_alive: !options.any(|option| option.eq_ignore_ascii_case(b"close")),
        }
    }
}

/// Writes the response. Fails as soon as the client closes the connection. Returns the connection
/// if it can be reused: `keep_alive` is true, and the client has sent nothing during the response,
/// because such bytes were discarded.
pub(super) fn write<T, B>(
    stream: T,
    response: Response<B>,
    keep_alive: bool,
) -> impl Future<Output = io::Result<Option<T>>>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    // Only the encoded head and the body stay in memory.
    let head = head(&response, keep_alive);
    write_parts(stream, head, Box::pin(response.into_body()), keep_alive)
}

async fn write_parts<T, B>(
    mut stream: T,
    head: Bytes,
    mut body: Pin<Box<B>>,
    mut keep_alive: bool,
) -> io::Result<Option<T>>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    stream.write_all(&head).await?;
    // TLS may buffer the head otherwise, and the first event may be far away.
    stream.flush().await?;
    drop(head);
    while let Some(frame) = next(&mut stream, body.as_mut(), &mut keep_alive).await? {
        let Ok(data) = frame.into_data() else { continue };
        if data.is_empty() {
            // An empty chunk would end the body.
            continue;
        }
        let size = format!("{:x}\r\n", data.len());
        let mut chunk = size.as_bytes().chain(data).chain(&b"\r\n"[..]);
        stream.write_all_buf(&mut chunk).await?;
        stream.flush().await?;
    }
    stream.write_all(b"0\r\n\r\n").await?;
    if keep_alive {
        stream.flush().await?;
        return Ok(Some(stream));
    }
    stream.shutdown().await?;
    Ok(None)
}

/// Returns the next frame of the body. Fails if the client closes the connection first.
async fn next<T, B>(
    stream: &mut T,
    mut body: Pin<&mut B>,
    keep_alive: &mut bool,
) -> io::Result<Option<Frame<Bytes>>>
where
    T: AsyncRead + Unpin,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    std::future::poll_fn(|context| {
        // Poll the body first: the poll tells it that the previous frame was written, even if the
        // client has closed the connection since.
        if let Poll::Ready(frame) = body.as_mut().poll_frame(context) {
            return Poll::Ready(frame.transpose().map_err(|error| io::Error::other(error.to_string())));
        }
        let mut space = [0; DISCARD_READ_SIZE];
        loop {
            let mut discarded = ReadBuf::new(&mut space);
            match Pin::new(&mut *stream).poll_read(context, &mut discarded) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if discarded.filled().is_empty() => {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                Poll::Ready(Ok(())) => *keep_alive = false,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    })
    .await
}

fn head<B>(response: &Response<B>, keep_alive: bool) -> Bytes {
    let mut head = BytesMut::with_capacity(512);
    head.put_slice(b"HTTP/1.1 ");
    head.put_slice(response.status().as_str().as_bytes());
    head.put_slice(b" ");
    head.put_slice(response.status().canonical_reason().unwrap_or_default().as_bytes());
    head.put_slice(b"\r\n");
    let ours = [CONNECTION, DATE, TRANSFER_ENCODING];
    for (name, value) in response.headers().iter().filter(|(name, _)| !ours.contains(name)) {
        field(&mut head, name.as_str(), value.as_bytes());
    }
    #[allow(clippy::disallowed_methods, reason = "only for the Date header; no decision depends on it")]
    let now = SystemTime::now();
    field(&mut head, DATE.as_str(), httpdate::fmt_http_date(now).as_bytes());
    field(&mut head, TRANSFER_ENCODING.as_str(), b"chunked");
    if !keep_alive {
        field(&mut head, CONNECTION.as_str(), b"close");
    }
    head.put_slice(b"\r\n");
    head.freeze()
}

fn field(head: &mut BytesMut, name: &str, value: &[u8]) {
    head.put_slice(name.as_bytes());
    head.put_slice(b": ");
    head.put_slice(value);
    head.put_slice(b"\r\n");
}
