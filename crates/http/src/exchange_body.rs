//! The replies to a stateless request as an HTTP body. Dropped, it cancels the request.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use steadfast_engine::backend::response;
use steadfast_engine::{Replies, Reply};
use steadfast_wire::sse::encode;

use crate::silence::Silence;

/// How much is encoded before the connection has to take it.
const AT_ONCE: usize = 64 << 10;

/// Server-sent events without ids: there is nothing to come back to.
#[derive(Debug)]
pub(crate) struct ExchangeBody {
    replies: Replies,
    /// Encoded and not yet given away.
    ready: BytesMut,
    ended: bool,
    silence: Silence,
}

impl ExchangeBody {
    pub(crate) fn new(replies: Replies, first: Option<Reply>, keep_alive: Duration) -> Self {
        let silence = Silence::new(keep_alive);
        let mut body = Self { replies, ready: BytesMut::new(), ended: false, silence };
        match first {
            Some(reply) => body.encode(reply),
            // Some proxies hold the response head back until the first byte of the body.
            None => encode::comment(&mut body.ready, "open"),
        }
        body
    }

    /// Takes in what is there already.
    pub(crate) async fn collect_ready(&mut self) {
        std::future::poll_fn(|context| {
            while !self.ended && self.ready.len() < AT_ONCE && self.poll_reply(context).is_ready() {}
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
        while !self.ended && self.ready.len() < AT_ONCE && self.poll_reply(context).is_ready() {}
        if self.ready.is_empty() && !self.ended {
            std::task::ready!(self.poll_silence(context));
        }
        if self.ready.is_empty() {
            return Poll::Ready(None);
        }
        self.silence.end();
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
            Reply::Message(message) => encode::event_without_id(&mut self.ready, &message),
            Reply::Answer(answer) => {
                encode::event_without_id(&mut self.ready, &response(self.replies.id(), &answer));
                self.ended = true;
            }
        }
    }

    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        std::task::ready!(self.silence.poll_over(context));
        encode::comment(&mut self.ready, "keep-alive");
        Poll::Ready(())
    }
}
