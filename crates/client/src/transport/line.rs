//! A connection that nobody drives but whoever uses it: a request, its connection and its answer are one task, so nothing has to be
//! handed from one to another and nobody has to be woken for it. While nothing comes it keeps no buffer: an answer may be silent
//! for hours, and hyper keeps 25 KiB for each.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Weak;
use std::task::{Context, Poll, Waker, ready};

use bytes::buf::Chain;
use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::rt::{Read, ReadBuf, Write};
use tokio::runtime::{Handle, Id};

use super::BrokenBody;
use super::framing::{Framing, Step};
use super::pool::Pool;

/// How much is read at a time; and while so much comes at once, a lot.
const READ: usize = 4 << 10;
const READ_A_LOT: usize = 64 << 10;

/// A body up to this goes out with its head in one piece.
const IN_ONE_PIECE: usize = 16 << 10;

/// Answers have fewer headers than this, nearly always.
const FEW_FIELDS: usize = 32;

/// What a connection has to be made of.
pub trait Io: Read + Write + Unpin + Send + 'static {}
impl<T: Read + Write + Unpin + Send + 'static> Io for T {}

/// One connection. It makes progress while it is polled, and only then.
#[derive(Debug)]
pub(super) struct Line<T: Io> {
    pub(super) host: String,
    /// The runtime that its socket tells its news to.
    pub(super) home: Id,
    io: T,
    /// Read, and not used yet.
    buffer: BytesMut,
    /// What was read last filled its space.
    has_more: bool,
}

/// What the head of an answer may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes: usize,
    pub(super) fields: usize,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// Nothing of it was sent.
    NotSent,
    Broken(String),
}

impl<T: Io> Line<T> {
    pub(super) fn new(host: String, io: T) -> Self {
        Self { host, home: Handle::current().id(), io, buffer: BytesMut::new(), has_more: false }
    }

    /// Whether the server has neither closed it nor said anything since the last answer.
    pub(super) fn is_usable(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.buffer.is_empty() && self.read_more(&mut context).is_pending()
    }

    /// Sends a request and waits for the head of its answer. After the end of the answer the connection goes to the pool, if there
    /// is to be one and both sides are done with it.
    pub(super) async fn exchange(
        mut self: Box<Self>,
        request: &Request<Bytes>,
        bounds: Bounds,
        pool: Option<Weak<Pool<T>>>,
    ) -> Result<Response<Answer<T>>, Failed> {
        let mut sending = Sending::new(request, &self.host);
        let head = std::future::poll_fn(|context| self.poll_head(&mut sending, bounds, context)).await?;
        let framing =
            Framing::of(head.status, &head.headers).map_err(|why| Failed::Broken(why.to_owned()))?;
        // A server may answer before it has heard all; what it has not heard is not part of the next request.
        let pool = pool.filter(|_| head.keeps_alive && !sending.rest.has_remaining());
        let mut response = Response::new(Answer { line: Some(self), framing, pool });
        (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
        Ok(response)
    }

    fn poll_head(
        &mut self,
        sending: &mut Sending,
        bounds: Bounds,
        context: &mut Context<'_>,
    ) -> Poll<Result<Head, Failed>> {
        sending.poll(&mut self.io, context);
        loop {
            match parse(&mut self.buffer, bounds) {
                // What comes before the answer is none.
                Ok(Some(head)) if head.is_provisional() => continue,
                Ok(Some(head)) => return Poll::Ready(Ok(head)),
                Ok(None) => {}
                Err(why) => return Poll::Ready(Err(Failed::Broken(why.to_owned()))),
            }
            let end = match ready!(self.read_more(context)) {
                Ok(0) => "the server closed the connection without an answer".to_owned(),
                Ok(_) => continue,
                Err(error) => error.to_string(),
            };
            return Poll::Ready(Err(match &sending.failed {
                _ if !sending.has_begun => Failed::NotSent,
                Some(error) => Failed::Broken(error.to_string()),
                None => Failed::Broken(end),
            }));
        }
    }

    /// How much more there is; 0 at the end.
    fn read_more(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let (mut few, mut many) = ([MaybeUninit::uninit(); READ], Vec::<u8>::new());
        let space = if self.has_more {
            many.reserve_exact(READ_A_LOT);
            many.spare_capacity_mut()
        } else {
            &mut few[..]
        };
        let room = space.len();
        let mut read = ReadBuf::uninit(space);
        ready!(Pin::new(&mut self.io).poll_read(context, read.unfilled()))?;
        if self.buffer.is_empty() {
            // Memory of what was read before is not kept for what may come.
            self.buffer = BytesMut::new();
        }
        self.buffer.extend_from_slice(read.filled());
        self.has_more = read.filled().len() == room;
        Poll::Ready(Ok(read.filled().len()))
    }
}

/// A request on its way.
struct Sending {
    rest: Chain<Bytes, Bytes>,
    has_begun: bool,
    is_flushed: bool,
    failed: Option<io::Error>,
}

impl Sending {
    fn new(request: &Request<Bytes>, host: &str) -> Self {
        let (mut head, mut body) = (head_of(request, host), request.body().clone());
        if body.len() <= IN_ONE_PIECE {
            head.extend_from_slice(&body);
            body = Bytes::new();
        }
        Self { rest: Bytes::from(head).chain(body), has_begun: false, is_flushed: false, failed: None }
    }

    /// Sends what can be sent. If that fails the server may have said why, so it is heard out.
    fn poll(&mut self, io: &mut impl Io, context: &mut Context<'_>) {
        while self.failed.is_none() && self.rest.has_remaining() {
            match Pin::new(&mut *io).poll_write(context, self.rest.chunk()) {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => self.failed = Some(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => {
                    self.rest.advance(written);
                    self.has_begun = true;
                }
                Poll::Ready(Err(error)) => self.failed = Some(error),
            }
        }
        if self.failed.is_none() && !self.is_flushed {
            match Pin::new(io).poll_flush(context) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.is_flushed = true,
                Poll::Ready(Err(error)) => self.failed = Some(error),
            }
        }
    }
}

fn head_of(request: &Request<Bytes>, host: &str) -> Vec<u8> {
    let mut head = Vec::with_capacity(512 + request.body().len().min(IN_ONE_PIECE));
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let is_ours = |name: &HeaderName| [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(name);
    head.extend_from_slice(request.method().as_str().as_bytes());
    for part in [" ", path, " HTTP/1.1\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    if !request.headers().contains_key(HOST) {
        field(&mut head, HOST.as_str(), host.as_bytes());
    }
    for (name, value) in request.headers().iter().filter(|(name, _)| !is_ours(name)) {
        field(&mut head, name.as_str(), value.as_bytes());
    }
    if !request.body().is_empty() || request.method() == Method::POST {
        field(&mut head, CONTENT_LENGTH.as_str(), request.body().len().to_string().as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    head
}

fn field(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        head.extend_from_slice(part);
    }
}

/// The head of an answer.
struct Head {
    status: StatusCode,
    headers: HeaderMap,
    /// The server has no objection to another request.
    keeps_alive: bool,
}

impl Head {
    fn is_provisional(&self) -> bool {
        self.status.is_informational() && self.status != StatusCode::SWITCHING_PROTOCOLS
    }
}

/// Takes a whole head out of the buffer, if one is there. What is kept of it is copied: a header that shares the buffer would keep
/// all of it.
fn parse(buffer: &mut BytesMut, bounds: Bounds) -> Result<Option<Head>, &'static str> {
    if buffer.is_empty() {
        return Ok(None);
    }
    let (mut few, mut many) = ([httparse::EMPTY_HEADER; FEW_FIELDS], Vec::new());
    let mut head = httparse::Response::new(&mut few[..bounds.fields.min(FEW_FIELDS)]);
    let mut parsed = head.parse(buffer);
    if parsed == Err(httparse::Error::TooManyHeaders) && bounds.fields > FEW_FIELDS {
        many.resize(bounds.fields, httparse::EMPTY_HEADER);
        head = httparse::Response::new(&mut many);
        parsed = head.parse(buffer);
    }
    let size = match parsed {
        Ok(httparse::Status::Complete(size)) if size <= bounds.bytes => size,
        Ok(httparse::Status::Partial) if buffer.len() < bounds.bytes => return Ok(None),
        Ok(_) => return Err("the head of its answer is too long"),
        Err(httparse::Error::TooManyHeaders) => return Err("its answer has too many headers"),
        Err(_) => return Err("its answer is not HTTP"),
    };
    let unusable = "its answer has a header that cannot be";
    let status =
        head.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or("its answer is not HTTP")?;
    let mut headers = HeaderMap::with_capacity(head.headers.len());
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| unusable)?;
        headers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| unusable)?);
    }
    let keeps_alive = head.version == Some(1) && !closes(&headers);
    buffer.advance(size);
    Ok(Some(Head { status, headers, keeps_alive }))
}

fn closes(headers: &HeaderMap) -> bool {
    let mut options =
        headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// The body of an answer. Read to its end, it gives its connection back; dropped before, it closes it.
#[derive(Debug)]
pub(super) struct Answer<T: Io> {
    /// Gone when it has ended.
    line: Option<Box<Line<T>>>,
    framing: Framing,
    /// Where the connection goes afterwards, if it can be used again.
    pool: Option<Weak<Pool<T>>>,
}

impl<T: Io> Answer<T> {
    fn end(&mut self) {
        let pool = self.pool.take().and_then(|pool| pool.upgrade());
        if let (Some(line), Some(pool)) = (self.line.take(), pool)
            && line.buffer.is_empty()
        {
            pool.put(line);
        }
    }

    fn break_off(&mut self, why: String) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        self.line = None;
        Poll::Ready(Some(Err(BrokenBody(why))))
    }
}

impl<T: Io> http_body::Body for Answer<T> {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        let this = self.get_mut();
        while let Some(line) = &mut this.line {
            match this.framing.step(&mut line.buffer) {
                Ok(Step::Data(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(Step::End) => {
                    this.end();
                    break;
                }
                Ok(Step::More) => {}
                Err(why) => return this.break_off(why.to_owned()),
            }
            match ready!(line.read_more(context)) {
                Ok(0) if this.framing.may_end() => this.line = None,
                Ok(0) => {
                    let why = "the connection was closed before the end of the answer";
                    return this.break_off(why.to_owned());
                }
                Ok(_) => {}
                Err(error) => return this.break_off(error.to_string()),
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        // Not before it was asked for what follows: that is when it gives its connection back.
        self.line.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.framing.left().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
