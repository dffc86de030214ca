//! What a program says, as the body of an HTTP response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use steadfast_client::transport::BrokenBody;
use steadfast_wire::sse::encode;

use super::mail::{End, Next, Reader};
use super::process::Flight;

/// An event stream. Its events have no ids: a program that is gone cannot be asked again.
#[derive(Debug)]
pub(super) struct Events {
    source: Source,
    done: bool,
}

#[derive(Debug)]
pub(super) enum Source {
    /// Up to the answer.
    Flight(Flight),
    /// What belongs to no request.
    Session(Reader),
}

impl Events {
    pub(super) fn new(source: Source) -> Self {
        Self { source, done: false }
    }
}

impl Body for Events {
    type Data = Bytes;
    type Error = BrokenBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenBody>>> {
        if self.done {
            return Poll::Ready(None);
        }
        let reader = match &mut self.source {
            Source::Flight(flight) => &mut flight.reader,
            Source::Session(reader) => reader,
        };
        let message = match ready!(reader.poll_next(cx)) {
            Next::Message(message) => message,
            Next::End(end) => {
                self.done = true;
                match end {
                    End::Answer(answer) => answer,
                    End::Broken(why) => return Poll::Ready(Some(Err(BrokenBody(why)))),
                    End::Over => return Poll::Ready(None),
                }
            }
        };
        let mut frame = Vec::with_capacity(encode::event_len(0, &message));
        encode::event_without_id(&mut frame, &message);
        Poll::Ready(Some(Ok(Frame::data(frame.into()))))
    }
}
