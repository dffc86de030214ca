//! A response that lasts, written without hyper: that keeps 16 KiB of buffers for every connection, and a client that
//! listens for hours needs none.

use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::SystemTime;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_TYPE, DATE, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Response, Version};
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

/// How much is read at a time of what a client says while it ought to listen. It is thrown away.
const DEAF_READ: usize = 256;

/// Whether somebody may listen for long: a stream of events was asked for, nobody knows its length, and chunks are understood.
pub(super) fn lasts<B: Body>(request: &Asked, response: &Response<B>) -> bool {
    let is_stream = |value: &HeaderValue| value.as_bytes().starts_with(b"text/event-stream");
    request.may_last
        && response.status().is_success()
        && response.body().size_hint().exact().is_none()
        && !response.body().is_end_stream()
        && response.headers().get(CONTENT_TYPE).is_some_and(is_stream)
}

/// What has to be known of a request once it is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// Whether its answer may be written here.
    may_last: bool,
    /// Whether its connection is to be used again.
    pub(super) goes_on: bool,
}

impl Asked {
    pub(super) fn of(request: &Request<impl Body>) -> Self {
        let is_plain = request.method() == Method::GET && request.version() == Version::HTTP_11;
        let mut options =
            request.headers().get_all(CONNECTION).iter().flat_map(|value| {
                value.as_bytes().split(|byte| *byte == b',').map(|option| option.trim_ascii())
            });
        Self {
            may_last: is_plain && request.body().is_end_stream(),
            goes_on: !options.any(|option| option.eq_ignore_ascii_case(b"close")),
        }
    }
}

/// Writes all of it; or stops as soon as the client has gone. Gives the connection back if it `goes_on` afterwards, which it does
/// not if its client has said something meanwhile: that was not heard.
pub(super) fn write<T, B>(
    stream: T,
    response: Response<B>,
    goes_on: bool,
) -> impl Future<Output = io::Result<Option<T>>>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    // Nothing of the response is kept but what is to be written.
    let head = head(&response, goes_on);
    write_parts(stream, head, Box::pin(response.into_body()), goes_on)
}

async fn write_parts<T, B>(
    mut stream: T,
    head: Bytes,
    mut body: Pin<Box<B>>,
    mut goes_on: bool,
) -> io::Result<Option<T>>
where
    T: AsyncRead + AsyncWrite + Unpin,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    stream.write_all(&head).await?;
    // TLS may hold it back otherwise, and the first event may be far away.
    stream.flush().await?;
    drop(head);
    while let Some(frame) = next(&mut stream, body.as_mut(), &mut goes_on).await? {
        let Ok(data) = frame.into_data() else { continue };
        if data.is_empty() {
            // An empty chunk is the last one.
            continue;
        }
        let size = format!("{:x}\r\n", data.len());
        let mut chunk = size.as_bytes().chain(data).chain(&b"\r\n"[..]);
        stream.write_all_buf(&mut chunk).await?;
        stream.flush().await?;
    }
    stream.write_all(b"0\r\n\r\n").await?;
    if goes_on {
        stream.flush().await?;
        return Ok(Some(stream));
    }
    stream.shutdown().await?;
    Ok(None)
}

/// What comes next; an error if the client goes first.
async fn next<T, B>(
    stream: &mut T,
    mut body: Pin<&mut B>,
    goes_on: &mut bool,
) -> io::Result<Option<Frame<Bytes>>>
where
    T: AsyncRead + Unpin,
    B: Body<Data = Bytes>,
    B::Error: std::fmt::Display,
{
    std::future::poll_fn(|context| {
        // First, so that it learns that what it gave before was written, even if the client has gone as soon as it had that.
        if let Poll::Ready(frame) = body.as_mut().poll_frame(context) {
            return Poll::Ready(frame.transpose().map_err(|error| io::Error::other(error.to_string())));
        }
        let mut space = [0; DEAF_READ];
        loop {
            let mut heard = ReadBuf::new(&mut space);
            match Pin::new(&mut *stream).poll_read(context, &mut heard) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if heard.filled().is_empty() => {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                Poll::Ready(Ok(())) => *goes_on = false,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    })
    .await
}

fn head<B>(response: &Response<B>, goes_on: bool) -> Bytes {
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
    #[allow(clippy::disallowed_methods, reason = "what time it is in the world; nothing is decided by it")]
    let now = SystemTime::now();
    field(&mut head, DATE.as_str(), httpdate::fmt_http_date(now).as_bytes());
    field(&mut head, TRANSFER_ENCODING.as_str(), b"chunked");
    if !goes_on {
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
