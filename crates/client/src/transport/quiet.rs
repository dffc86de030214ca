//! A connection for one GET, whose answer may be silent for hours. Hyper keeps 25 KiB for each; this keeps nothing while nothing
//! comes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body::Frame;
use hyper::rt::ReadBuf;

use super::framing::{Framing, Step};
use super::pool::Io;
use super::{BrokenBody, SendError};

/// How much is read at a time.
const READ: usize = 4 << 10;

/// What the head of an answer may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) fields: usize,
}

/// Sends a request that has no body, and waits for the head of its answer.
pub(super) async fn exchange<T: Io>(
    mut io: T,
    request: &Request<Bytes>,
    bounds: Bounds,
) -> Result<Response<Answer<T>>, SendError> {
    let broken = |error: io::Error| SendError::Broken(error.to_string());
    write_all(&mut io, &head_of(request)).await.map_err(broken)?;
    let mut buffer = BytesMut::new();
    loop {
        let found = parse(&mut buffer, bounds).map_err(|why| SendError::Broken(why.to_owned()))?;
        if let Some((status, headers)) = found {
            // What comes before the answer is none.
            if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
                continue;
            }
            let framing = Framing::of(status, &headers).map_err(|why| SendError::Broken(why.to_owned()))?;
            let mut response = Response::new(Answer { io, buffer, framing });
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            return Ok(response);
        }
        let mut read = |context: &mut Context<'_>| read_more(&mut io, &mut buffer, context);
        if std::future::poll_fn(|context| read(context)).await.map_err(broken)? == 0 {
            return Err(SendError::Broken("the server closed the connection without an answer".to_owned()));
        }
    }
}

fn head_of(request: &Request<Bytes>) -> Vec<u8> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut head = format!("{} {path} HTTP/1.1\r\n", request.method()).into_bytes();
    for (name, value) in request.headers() {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Takes a whole head out of the buffer, if one is there. What is kept of it is copied: a header that shares the buffer would keep
/// all of it.
fn parse(buffer: &mut BytesMut, bounds: Bounds) -> Result<Option<(StatusCode, HeaderMap)>, &'static str> {
    let mut fields = vec![httparse::EMPTY_HEADER; bounds.fields];
    let mut head = httparse::Response::new(&mut fields);
    let size = match head.parse(buffer) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) if buffer.len() < bounds.bytes => return Ok(None),
        Ok(httparse::Status::Partial) => return Err("the head of its answer is too long"),
        Err(httparse::Error::TooManyHeaders) => return Err("its answer has too many headers"),
        Err(_) => return Err("its answer is not HTTP"),
    };
    let unusable = "its answer has a header that cannot be";
    let status =
        head.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or("its answer is not HTTP")?;
    let mut headers = HeaderMap::new();
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| unusable)?;
        headers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| unusable)?);
    }
    buffer.advance(size);
    Ok(Some((status, headers)))
}

async fn write_all(io: &mut impl Io, mut bytes: &[u8]) -> io::Result<()> {
    std::future::poll_fn(|context| {
        while !bytes.is_empty() {
            let written = ready!(Pin::new(&mut *io).poll_write(context, bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            bytes = &bytes[written..];
        }
        Pin::new(&mut *io).poll_flush(context)
    })
    .await
}

/// How much more there is; 0 at the end.
fn read_more(io: &mut impl Io, buffer: &mut BytesMut, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
    let mut space = [0; READ];
    let mut read = ReadBuf::new(&mut space);
    ready!(Pin::new(io).poll_read(context, read.unfilled()))?;
    if buffer.is_empty() {
        // Memory of what was read before is not kept for what may come.
        *buffer = BytesMut::new();
    }
    buffer.extend_from_slice(read.filled());
    Poll::Ready(Ok(read.filled().len()))
}

/// The body of the answer. Its connection ends with it.
#[derive(Debug)]
pub(super) struct Answer<T: Io> {
    io: T,
    buffer: BytesMut,
    framing: Framing,
}

impl<T: Io> http_body::Body for Answer<T> {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        let Self { io, buffer, framing } = self.get_mut();
        loop {
            match framing.step(buffer) {
                Ok(Step::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Step::End) => return Poll::Ready(None),
                Ok(Step::More) => {}
                Err(why) => return Poll::Ready(Some(Err(BrokenBody(why.to_owned())))),
            }
            let why = match ready!(read_more(io, buffer, context)) {
                Ok(0) if framing.may_end() => return Poll::Ready(None),
                Ok(0) => "the connection was closed before the end of the answer".to_owned(),
                Ok(_) => continue,
                Err(error) => error.to_string(),
            };
            return Poll::Ready(Some(Err(BrokenBody(why))));
        }
    }
}
