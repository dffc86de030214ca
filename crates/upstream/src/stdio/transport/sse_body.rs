//! The event stream of a stdio process as the body of an HTTP response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use steadfast_client::transport::BrokenBody;
use steadfast_wire::sse::encode;

use crate::stdio::process::lifecycle::PendingRequest;
use crate::stdio::routing::outbox::{End, Item, OutboxReader};

/// An event stream. Its events have no ids, because a process that has ended cannot resume a
/// stream.
#[derive(Debug)]
pub(crate) struct SseBody {
    source: Source,
    done: bool,
}

#[derive(Debug)]
pub(crate) enum Source {
    /// The messages of a request, until its answer.
    Request(PendingRequest),
    /// The messages that belong to no request.
    Session(OutboxReader),
}

impl SseBody {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, done: false }
    }
}

impl Body for SseBody {
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
            Source::Request(request) => &mut request.reader,
            Source::Session(reader) => reader,
        };
        let message = match ready!(reader.poll_next(cx)) {
            Item::Message(message) => message,
            Item::End(end) => {
                self.done = true;
                match end {
                    End::Answer(answer) => answer,
                    End::Broken(why) => return Poll::Ready(Some(Err(BrokenBody(why)))),
                    End::Closed => return Poll::Ready(None),
                }
            }
        };
        let mut frame = Vec::with_capacity(encode::event_len(0, &message));
        encode::event_without_id(&mut frame, &message);
        Poll::Ready(Some(Ok(Frame::data(frame.into()))))
    }
}
