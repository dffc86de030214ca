//! A stream as an HTTP body: a cursor, encoded as server-sent events.

use std::future::Future as _;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use steadfast_engine::{Cursor, CursorStatus, Event, Unfinished};
use steadfast_wire::sse::encode;
use steadfast_wire::{Revision, rpc};
use tokio::time::Instant;

use crate::config::Config;
use crate::moment::Moments;
use crate::silence::Silence;

/// How much is taken in before the response starts. What is longer is read as the connection takes it, so that a
/// client that reads nothing costs no more than this.
const AT_ONCE: usize = 64 << 10;

/// What a stream with its one short answer takes.
const SHORT_ANSWER: usize = 512;

/// Writes one stream from a position on. What is complete when the response starts goes out as one piece with a
/// known length; the rest as it comes.
#[derive(Debug)]
pub(crate) struct SseBody {
    cursor: Cursor,
    /// Encoded and not yet given away.
    ready: BytesMut,
    /// Nothing follows what is ready.
    ended: bool,
    events: Vec<Event>,
    silence: Silence,
    retry_ms: u64,
    expires: Option<Instant>,
}

/// How a response comes to its stream.
pub(crate) enum Opening {
    /// The client reads it for the first time. These calls feed it.
    Fresh(Vec<Unfinished>),
    /// The client comes back with the id of an event.
    Resumed,
}

impl SseBody {
    /// Where the revision has priming events, the body begins with one: the id of the position that the cursor starts
    /// from. For a resumed stream that is the client's own `Last-Event-ID`. It has to be repeated, because some clients
    /// forget their position with each connection and take it from the events of the next (typescript-sdk #2499).
    pub(crate) fn new(cursor: Cursor, revision: Revision, config: &Config) -> Self {
        let retry_ms = u64::try_from(config.retry.as_millis()).unwrap_or(u64::MAX);
        let mut ready = BytesMut::new();
        if revision.primes_streams() {
            ready.reserve(SHORT_ANSWER);
            encode::priming(&mut ready, &cursor.position().text(), retry_ms);
        }
        Self {
            cursor,
            ready,
            ended: false,
            events: Vec::new(),
            silence: Silence::new(config.keep_alive),
            retry_ms,
            expires: config.max_connection_age.map(|age| Instant::now() + age),
        }
    }

    /// Takes in what can be sent together with the head of the response.
    pub(crate) async fn open(&mut self, opening: Opening, moments: &Moments) {
        match opening {
            Opening::Fresh(calls) => self.collect(calls, moments).await,
            Opening::Resumed => self.catch_up().await,
        }
        if self.ready.is_empty() && !self.ended {
            // Some proxies hold the response head back until the first byte of the body.
            encode::comment(&mut self.ready, "open");
        }
    }

    /// Waits until the store has said what is left of a resumed stream. If that is nothing, and the stream is over, the priming
    /// event is taken back: it would ask the client to come again, and TypeScript SDK 1.x, which resumes the stream of a call that
    /// was answered with an error, would come again for ever.
    async fn catch_up(&mut self) {
        let primed = self.ready.len();
        std::future::poll_fn(|context| match self.poll_first(context) {
            Poll::Pending if self.cursor.is_reading() => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
        if self.ended && self.ready.len() == primed {
            self.ready.clear();
        }
    }

    /// Takes in what is there, and waits a moment for it if a call is on its way: one that is done by then is answered in one piece,
    /// with one write, and needs no task of its own. What is not done goes on without us.
    async fn collect(&mut self, mut calls: Vec<Unfinished>, moments: &Moments) {
        let is_there = std::future::poll_fn(|context| Poll::Ready(self.poll_first(context).is_ready())).await;
        if !is_there && !calls.is_empty() {
            let mut over = std::pin::pin!(moments.begin());
            // Whoever started the calls has polled them, in this task: they wake it when there is more to be done.
            let mut are_new = true;
            // If it takes longer, nothing is lost: the stream goes on.
            std::future::poll_fn(|context| {
                if !std::mem::take(&mut are_new) {
                    calls.iter_mut().for_each(|call| call.poll(context));
                    if self.poll_first(context).is_ready() {
                        return Poll::Ready(());
                    }
                }
                over.as_mut().poll(context)
            })
            .await;
        }
    }

    /// Ready when there is something to send, or nothing more will be.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut poll = Poll::Pending;
        while !self.ended && self.ready.len() < AT_ONCE && self.poll_cursor(context).is_ready() {
            poll = Poll::Ready(());
        }
        if self.ended { Poll::Ready(()) } else { poll }
    }

    pub(crate) fn is_written(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    /// How long the whole body is, if that is known already.
    pub(crate) fn known_size(&self) -> Option<u64> {
        self.ended.then_some(self.ready.len() as u64)
    }

    pub(crate) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ready.is_empty() {
            // Asked for more, so the connection has room: it has taken what it was given.
            self.cursor.mark_written();
        }
        if self.ready.is_empty() && !self.ended && self.poll_cursor(context).is_pending() {
            std::task::ready!(self.poll_silence(context));
        }
        if self.ready.is_empty() {
            return Poll::Ready(None);
        }
        self.silence.end();
        // With all its memory: a stream that waits for hours keeps none.
        Poll::Ready(Some(std::mem::take(&mut self.ready).freeze()))
    }

    /// Ready when something was encoded or the stream ended.
    fn poll_cursor(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match std::task::ready!(self.cursor.poll_events(context, &mut self.events)) {
            CursorStatus::Events { missing } => {
                self.encode_events(missing);
                self.end_if_expired();
            }
            CursorStatus::Ended | CursorStatus::Superseded => self.ended = true,
            CursorStatus::ComeBack | CursorStatus::Failed(_) => {
                encode::retry(&mut self.ready, self.retry_ms);
                self.ended = true;
            }
        }
        Poll::Ready(())
    }

    fn encode_events(&mut self, missing: u64) {
        if missing > 0 {
            let data = format!(r#"{{"reason":"overflow","dropped":{missing}}}"#);
            encode::event_without_id(&mut self.ready, &rpc::warning(&data));
        }
        let size = self.events.iter().map(|event| event.payload.len() + 96).sum();
        self.ready.reserve(size);
        for event in self.events.drain(..) {
            match event.id {
                Some(id) => encode::event(&mut self.ready, &id.text(), &event.payload),
                None => encode::event_without_id(&mut self.ready, &event.payload),
            }
        }
    }

    /// Sends the client away if the connection is old enough, between two events.
    fn end_if_expired(&mut self) {
        if self.expires.is_some_and(|at| Instant::now() >= at) {
            encode::retry(&mut self.ready, self.retry_ms);
            self.ended = true;
        }
    }

    /// Ready when the stream has been silent for too long and a comment, or an advice to come back, was encoded.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        std::task::ready!(self.silence.poll_over(context));
        self.end_if_expired();
        if !self.ended {
            encode::comment(&mut self.ready, "keep-alive");
        }
        Poll::Ready(())
    }
}

/// What was encoded and never given to the connection has not been delivered.
impl Drop for SseBody {
    fn drop(&mut self) {
        if !self.ready.is_empty() {
            self.cursor.abandon();
        }
    }
}
