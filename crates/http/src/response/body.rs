//! The body type of all responses.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::response::exchange_body::ExchangeBody;
use crate::response::sse_body::SseBody;

/// The body of every response of an endpoint.
#[derive(Debug)]
pub struct ResponseBody(Kind);

#[derive(Debug)]
enum Kind {
    Full(Option<Bytes>),
    Stream(Box<SseBody>),
    Exchange(Box<ExchangeBody>),
}

impl ResponseBody {
    pub fn empty() -> Self {
        Self(Kind::Full(None))
    }

    pub fn full(bytes: Bytes) -> Self {
        Self(Kind::Full(Some(bytes)))
    }

    pub(crate) fn stream(body: SseBody) -> Self {
        Self(Kind::Stream(Box::new(body)))
    }

    pub(crate) fn exchange(body: ExchangeBody) -> Self {
        Self(Kind::Exchange(Box::new(body)))
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Stream(body) => {
                body.poll_chunk(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
            }
            Kind::Exchange(body) => {
                body.poll_chunk(context).map(|chunk| chunk.map(|bytes| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(bytes) => bytes.is_none(),
            Kind::Stream(body) => body.is_written(),
            Kind::Exchange(body) => body.is_written(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Stream(body) => known(body.known_size()),
            Kind::Exchange(body) => known(body.known_size()),
        }
    }
}

fn known(size: Option<u64>) -> SizeHint {
    size.map_or_else(SizeHint::default, SizeHint::with_exact)
}
