//! The replies to a stateless request that is not in the store, as an HTTP body. Dropping the body
//! cancels the request.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use steadfast_engine::backend::response;
use steadfast_engine::{Replies, Reply};
use steadfast_wire::sse::encode;

use super::keep_alive::KeepAlive;

/// How much is encoded before the connection must take it.
const MAX_BUFFERED_BYTES: usize = 64 << 10;

/// Server-sent events without ids: the client cannot resume the stream.
#[derive(Debug)]
pub(crate) struct ExchangeBody {
    replies: Replies,
    /// Encoded bytes that the connection has not taken.
    ready: BytesMut,
    ended: bool,
    keep_alive: KeepAlive,
}

impl ExchangeBody {
    pub(crate) fn new(replies: Replies, first: Option<Reply>, keep_alive: Duration) -> Self {
        let keep_alive = KeepAlive::new(keep_alive);
        let mut body = Self { replies, ready: BytesMut::new(), ended: false, keep_alive };
        match first {
            Some(reply) => body.encode(reply),
            // Some proxies withhold the head of the response until the first byte of the body.
            None => encode::comment(&mut body.ready, "open"),
        }
        body
    }

    /// Encodes the replies that are available already.
    pub(crate) async fn collect_ready(&mut self) {
        std::future::poll_fn(|context| {
            while !self.ended && self.ready.len() < MAX_BUFFERED_BYTES && self.poll_reply(context).is_ready()
            {
            }
            Poll::Ready(())
        })
        .await;
    }

    pub(crate) fn is_written(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    pub(crate) fn known_size(&self) -> Option<u64> {
        self.ended.then_some(self.ready.len() as u64)
    }

    pub(crate) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        while !self.ended && self.ready.len() < MAX_BUFFERED_BYTES && self.poll_reply(context).is_ready() {}
        if self.ready.is_empty() && !self.ended {
            std::task::ready!(self.poll_keep_alive(context));
        }
        if self.ready.is_empty() {
            return Poll::Ready(None);
        }
        self.keep_alive.reset();
        Poll::Ready(Some(self.ready.split().freeze()))
    }

    fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match std::task::ready!(self.replies.poll_next(context)) {
            Some(reply) => self.encode(reply),
            None => self.ended = true,
        }
        Poll::Ready(())
    }

    fn encode(&mut self, reply: Reply) {
        match reply {
            Reply::Message(_, message) => encode::event_without_id(&mut self.ready, &message),
            Reply::Answer(answer) => {
                encode::event_without_id(&mut self.ready, &response(self.replies.id(), &answer));
                self.ended = true;
            }
        }
    }

    fn poll_keep_alive(&mut self, context: &mut Context<'_>) -> Poll<()> {
        std::task::ready!(self.keep_alive.poll_due(context));
        encode::comment(&mut self.ready, "keep-alive");
        Poll::Ready(())
    }
}
