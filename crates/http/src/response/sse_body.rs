//! A stream of a session as an HTTP body: encodes what a cursor reads as server-sent events.

use std::fmt::Write as _;
use std::future::Future as _;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use steadfast_engine::{CallDriver, Cursor, CursorStatus, Event};
use steadfast_wire::sse::encode;
use steadfast_wire::{EventId, JobEventId, Reason, Revision, rpc};
use tokio::time::Instant;

use super::keep_alive::KeepAlive;
use crate::coarse_timer::{CoarseTimer, Wait};
use crate::config::Config;

/// How much is encoded before the connection must take it. A client that reads nothing costs no
/// more memory than this.
const MAX_BUFFERED_BYTES: usize = 64 << 10;

/// How long a restart takes after the drain: the rest of the flush, the end of the process, and the
/// start of the next one.
const RESTART: Duration = Duration::from_secs(6);

/// The longest `retry:` of a shutdown. Another node may serve the client at once, and it should not
/// have to wait much longer than that.
const MAX_SHUTDOWN_RETRY: Duration = Duration::from_secs(15);

/// The size of a stream with one short answer.
const TYPICAL_ANSWER_BYTES: usize = 512;

/// Writes one stream from a position on. If the stream is complete when the response starts, the
/// body is one frame of known length.
#[derive(Debug)]
pub(crate) struct SseBody {
    cursor: Cursor,
    ids: EventIds,
    /// Encoded bytes that the connection has not taken.
    ready: BytesMut,
    /// Whether nothing follows the encoded bytes.
    ended: bool,
    events: Vec<Event>,
    keep_alive: KeepAlive,
    retry_ms: u64,
    expires: Option<Instant>,
}

/// How a response attaches to its stream.
pub(crate) enum StreamStart {
    /// The client reads the stream for the first time. These calls append to it.
    New(Vec<CallDriver>),
    /// The client resumes the stream with `Last-Event-ID`.
    Resumed,
}

/// How the ids of the events are written.
#[derive(Debug)]
pub(crate) enum EventIds {
    /// The client sends the session with the event id.
    OfSession,
    /// The event id alone leads to the job of a stateless request. Only the position in `id`
    /// changes. `text` is a buffer for the ids.
    OfJob { id: JobEventId, text: String },
}

impl EventIds {
    /// Calls `write` with the text of an id.
    fn with_text(&mut self, id: EventId, write: impl FnOnce(&str)) {
        match self {
            Self::OfSession => write(&id.text()),
            Self::OfJob { id: of_job, text } => {
                of_job.seq = id.seq;
                text.clear();
                // Writing to a string cannot fail.
                let _ = write!(text, "{of_job}");
                write(text);
            }
        }
    }
}

impl SseBody {
    /// Creates a body. In revisions with priming events the body begins with one: the id of the
    /// cursor's position. For a resumed stream that is the client's own `Last-Event-ID`. It must be
    /// repeated, because some clients forget their position with each connection and take it from
    /// the events of the next (typescript-sdk #2499).
    pub(crate) fn new(mut cursor: Cursor, revision: Revision, mut ids: EventIds, config: &Config) -> Self {
        cursor.take_unstored();
        let retry_ms = u64::try_from(config.retry.as_millis()).unwrap_or(u64::MAX);
        let mut ready = BytesMut::new();
        if revision.primes_streams() {
            ready.reserve(TYPICAL_ANSWER_BYTES);
            ids.with_text(cursor.position(), |id| encode::priming(&mut ready, id, retry_ms));
        }
        Self {
            cursor,
            ids,
            ready,
            ended: false,
            events: Vec::new(),
            keep_alive: KeepAlive::new(config.keep_alive),
            retry_ms,
            expires: config.max_connection_age.map(|age| Instant::now() + age),
        }
    }

    /// Encodes what can be sent together with the head of the response.
    pub(crate) async fn open(&mut self, start: StreamStart, timer: &CoarseTimer) {
        match start {
            StreamStart::New(calls) => self.collect(calls, timer).await,
            StreamStart::Resumed => self.catch_up().await,
        }
        if self.ready.is_empty() && !self.ended {
            // Some proxies withhold the head of the response until the first byte of the body.
            encode::comment(&mut self.ready, "open");
        }
    }

    /// Waits until the store has reported what is left of a resumed stream. If nothing is left and
    /// the stream has ended, the priming event is removed: it would invite the client to resume
    /// again. TypeScript SDK 1.x resumes the stream of a call that was answered with an error, and
    /// would do so endlessly.
    async fn catch_up(&mut self) {
        let primed = self.ready.len();
        std::future::poll_fn(|context| match self.poll_first(context) {
            Poll::Pending if self.cursor.is_reading_store() => Poll::Pending,
            _ => Poll::Ready(()),
        })
        .await;
        if self.ended && self.ready.len() == primed {
            self.ready.clear();
        }
    }

    /// Encodes what is available. If a call is in progress, waits briefly: a call that ends within
    /// that time is answered in one frame, with one write, and needs no task of its own. Other
    /// calls continue in their own tasks.
    async fn collect(&mut self, mut calls: Vec<CallDriver>, timer: &CoarseTimer) {
        let is_there = std::future::poll_fn(|context| Poll::Ready(self.poll_first(context).is_ready())).await;
        if !is_there && !calls.is_empty() {
            let mut over = std::pin::pin!(timer.wait(Wait::Short));
            // `Engine::run` has polled the calls in this task, so they wake it when they can
            // proceed.
            let mut are_new = true;
            // If the calls take longer, the stream delivers their answers.
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

    /// Ready when there is something to send, or when the stream has ended.
    fn poll_first(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut poll = Poll::Pending;
        while !self.ended && self.ready.len() < MAX_BUFFERED_BYTES && self.poll_cursor(context).is_ready() {
            poll = Poll::Ready(());
        }
        if self.ended { Poll::Ready(()) } else { poll }
    }

    pub(crate) fn is_written(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    /// The length of the whole body, if it is known already.
    pub(crate) fn known_size(&self) -> Option<u64> {
        self.ended.then_some(self.ready.len() as u64)
    }

    pub(crate) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ready.is_empty() {
            // The connection asks for more, so it has written what it was given.
            self.cursor.mark_written();
        }
        if self.ready.is_empty() && !self.ended && self.poll_cursor(context).is_pending() {
            std::task::ready!(self.poll_keep_alive(context));
        }
        if self.ready.is_empty() {
            return Poll::Ready(None);
        }
        self.keep_alive.reset();
        // Gives the memory away as well, so that a stream that waits for hours holds none.
        Poll::Ready(Some(std::mem::take(&mut self.ready).freeze()))
    }

    /// Ready when something was encoded or the stream has ended.
    fn poll_cursor(&mut self, context: &mut Context<'_>) -> Poll<()> {
        match std::task::ready!(self.cursor.poll_events(context, &mut self.events)) {
            CursorStatus::Events { missing } => {
                self.encode_events(missing);
                self.end_if_expired();
            }
            CursorStatus::Ended | CursorStatus::Superseded => self.ended = true,
            CursorStatus::Reconnect | CursorStatus::Failed(_) => {
                let wait = self.cursor.drain_left().map_or(0, shutdown_retry_ms);
                encode::retry(&mut self.ready, wait.max(self.retry_ms));
                self.ended = true;
            }
        }
        Poll::Ready(())
    }

    fn encode_events(&mut self, missing: u64) {
        if missing > 0 {
            let data = format!(r#"{{"reason":"{}","dropped":{missing}}}"#, Reason::Overflow);
            encode::event_without_id(&mut self.ready, &rpc::warning(&data));
        }
        let size = self.events.iter().map(|event| event.payload.len() + 96).sum();
        self.ready.reserve(size);
        for event in self.events.drain(..) {
            match event.id {
                Some(id) => {
                    self.ids.with_text(id, |id| encode::event(&mut self.ready, id, &event.payload));
                }
                None => encode::event_without_id(&mut self.ready, &event.payload),
            }
        }
    }

    /// Ends the body with a `retry:` hint if the connection has reached its maximum age.
    fn end_if_expired(&mut self) {
        if self.expires.is_some_and(|at| Instant::now() >= at) {
            encode::retry(&mut self.ready, self.retry_ms);
            self.ended = true;
        }
    }

    /// Ready when the stream was silent for too long and a comment, or a `retry:` hint, was
    /// encoded.
    fn poll_keep_alive(&mut self, context: &mut Context<'_>) -> Poll<()> {
        std::task::ready!(self.keep_alive.poll_due(context));
        self.end_if_expired();
        if !self.ended {
            encode::comment(&mut self.ready, "keep-alive");
        }
        Poll::Ready(())
    }
}

/// Returns the `retry:` of a node that shuts down. The TypeScript and the Python SDK try twice,
/// with this pause before each attempt. The second attempt must find the restarted process.
fn shutdown_retry_ms(drain_left: Duration) -> u64 {
    let pause = (drain_left.saturating_add(RESTART) / 2).min(MAX_SHUTDOWN_RETRY);
    u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)
}

/// Bytes that were encoded but never given to the connection have not been delivered.
impl Drop for SseBody {
    fn drop(&mut self) {
        if !self.ready.is_empty() {
            self.cursor.mark_incomplete();
        }
    }
}
