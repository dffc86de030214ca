//! A cursor: the position of one connection in a stream, and the wait for more events.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use steadfast_session::{ConnNo, Read, StreamNo};
use steadfast_store::{Reply, StoreError};
use steadfast_wire::EventId;

use crate::backend::Denial;
use crate::delivery::{Tail, TailRead};
use crate::engine::Engine;
use crate::sessions::LiveSession;
use crate::shutdown::InFlightGuard;

/// After how many written events the position is reported to the store, so that it can drop them
/// from a long stream.
const REPORT_EVERY: u64 = 64;

/// One event for a connection to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `None` for an event that is not in the log. A client cannot resume after it.
    pub id: Option<EventId>,
    pub payload: Bytes,
}

/// What a cursor returns to its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CursorStatus {
    /// Events were added to the caller's list. `missing` events before them were dropped because
    /// the stream was full.
    Events { missing: u64 },
    /// The stream has ended, and all its events were read.
    Ended,
    /// A newer connection reads this stream.
    Superseded,
    /// The node is draining, or the stream is gone: the client should reconnect with the last event
    /// id.
    Reconnect,
    /// The store failed. The client can reconnect with its last event id.
    Failed(StoreError),
}

/// Why a cursor reads the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadReason {
    /// The tail does not reach back to the position.
    Behind,
    /// Another node may have written to the stream.
    Poll,
}

/// Reads one stream from a position on: old events from the store, new ones from the `Tail`. The
/// reader sees no difference.
pub struct Cursor {
    engine: Arc<Engine>,
    session: Arc<LiveSession>,
    tail: Arc<Tail>,
    stream: StreamNo,
    connection: ConnNo,
    /// The position at which the connection attached.
    start: u64,
    /// The last event that was read.
    after: u64,
    /// The last event that the connection has written.
    written: u64,
    /// The last event that was reported to the store as written.
    reported: u64,
    reading: Option<(ReadReason, Reply<Read>)>,
    batch: Vec<(u64, Bytes)>,
    /// When to read the store again, because another node may have written to the stream.
    poll_timeout: Option<Pin<Box<tokio::time::Sleep>>>,
    /// The stream has ended, and the connection has got all of its events.
    is_delivered: bool,
    /// The connection can send notifications that are not in the log.
    takes_unstored: bool,
    /// Counts as a call in flight, because the client cannot reconnect.
    in_flight: Option<InFlightGuard>,
}

impl Cursor {
    pub(crate) fn new(
        engine: Arc<Engine>,
        session: Arc<LiveSession>,
        tail: Arc<Tail>,
        stream: StreamNo,
        connection: ConnNo,
        after: u64,
    ) -> Self {
        Self {
            engine,
            session,
            tail,
            stream,
            connection,
            start: after,
            after,
            written: after,
            reported: after,
            reading: None,
            batch: Vec::new(),
            poll_timeout: None,
            is_delivered: false,
            takes_unstored: false,
            in_flight: None,
        }
    }

    /// Lets a drain wait for this cursor.
    pub(crate) fn hold_drain(&mut self, in_flight: InFlightGuard) {
        self.in_flight = Some(in_flight);
    }

    /// The connection sends events one by one, so it can also send notifications that are not in
    /// the log.
    pub fn take_unstored(&mut self) {
        self.takes_unstored = true;
    }

    /// Returns the id of the last event that was read, or of the start position.
    pub fn position(&self) -> EventId {
        self.event_id(self.after)
    }

    /// Returns true while the cursor waits for the store, not for new events.
    pub fn is_reading_store(&self) -> bool {
        self.reading.is_some()
    }

    /// Returns how much longer this node may run before it exits, if it is draining.
    pub fn drain_left(&self) -> Option<Duration> {
        self.engine.admission.drain_left(self.engine.now())
    }

    /// Waits for events and adds them to `out`. No events follow any status other than
    /// [`CursorStatus::Events`].
    pub fn poll_events(&mut self, context: &mut Context<'_>, out: &mut Vec<Event>) -> Poll<CursorStatus> {
        loop {
            if self.reading.is_some() {
                match ready!(self.poll_read(context, out)) {
                    Some(status) => return Poll::Ready(status),
                    None => continue,
                }
            }
            match self.tail.take_events(self.connection, self.after, &mut self.batch, context.waker()) {
                TailRead::Events { through } => return Poll::Ready(self.deliver_batch(through, out)),
                TailRead::Unlogged(answers) => {
                    out.extend(answers.into_iter().map(|payload| Event { id: None, payload }));
                    return Poll::Ready(CursorStatus::Events { missing: 0 });
                }
                TailRead::Behind => self.start_read(ReadReason::Behind),
                TailRead::Ended => return Poll::Ready(self.finish(CursorStatus::Ended)),
                TailRead::Superseded => return Poll::Ready(self.finish(CursorStatus::Superseded)),
                TailRead::Reconnect => return Poll::Ready(self.finish(CursorStatus::Reconnect)),
                TailRead::Empty => {
                    let unstored = self.takes_unstored.then(|| self.tail.take_unstored(self.connection));
                    if let Some(payload) = unstored.flatten() {
                        out.push(Event { id: None, payload });
                        return Poll::Ready(CursorStatus::Events { missing: 0 });
                    }
                    ready!(self.poll_timer(context));
                    self.start_read(ReadReason::Poll);
                }
            }
        }
    }

    /// Waits for the result of the credential check of the call that this stream belongs to.
    /// Returns `None` if the credentials were accepted or the stream got its first event.
    pub fn poll_denial(&mut self, context: &mut Context<'_>) -> Poll<Option<Denial>> {
        self.tail.denial(self.connection, context.waker()).map_or(Poll::Pending, Poll::Ready)
    }

    /// Moves the cursor back to its start position.
    pub fn rewind(&mut self) {
        self.after = self.start;
        self.is_delivered = false;
        self.tail.mark_incomplete();
    }

    /// Reads all events of a stream that has no other reader, until it ends.
    pub async fn read_to_end(mut self) {
        let mut events = Vec::new();
        std::future::poll_fn(|context| {
            loop {
                match ready!(self.poll_events(context, &mut events)) {
                    CursorStatus::Events { .. } => events.clear(),
                    _ => return Poll::Ready(()),
                }
            }
        })
        .await;
        self.mark_written();
    }

    /// The connection has written everything that was read.
    pub fn mark_written(&mut self) {
        self.written = self.after;
        if self.written - self.reported >= REPORT_EVERY {
            self.reported = self.written;
            self.engine.deliver_later(&self.session, self.stream, self.connection, self.written);
        }
    }

    /// The connection failed to write what was read last. The stream then does not count as
    /// delivered.
    pub fn mark_incomplete(&mut self) {
        self.is_delivered = false;
    }

    fn start_read(&mut self, reason: ReadReason) {
        let read_bytes = self.engine.options().read_bytes;
        let read = self.engine.store().read(self.session.id(), self.stream, self.after, read_bytes);
        self.reading = Some((reason, read));
    }

    /// Returns `None` if the store had no new events.
    fn poll_read(&mut self, context: &mut Context<'_>, out: &mut Vec<Event>) -> Poll<Option<CursorStatus>> {
        let Some((reason, reading)) = &mut self.reading else { return Poll::Ready(None) };
        let (reason, read) = (*reason, ready!(Pin::new(reading).poll(context)));
        self.reading = None;
        Poll::Ready(match read {
            Ok(Read::Slice(slice)) => {
                if slice.ended {
                    self.tail.end();
                }
                if slice.ended || slice.events.is_empty() {
                    // The read reached the end of the log while the tail was registered, so the
                    // tail continues from here. Without this the next poll would read the store
                    // again.
                    self.tail.caught_up(slice.through);
                }
                self.after = slice.through;
                let nothing = slice.events.is_empty() && slice.missing == 0;
                for entry in slice.events {
                    let id = Some(self.event_id(entry.seq));
                    out.extend(entry.payload.map(|payload| Event { id, payload }));
                }
                (!nothing).then_some(CursorStatus::Events { missing: slice.missing })
            }
            // The stream was deleted while it was read, so it has no end event. A client that
            // reconnects gets an explicit error.
            Ok(Read::Gone | Read::NoSession | Read::UnknownEvent) => {
                Some(self.finish(CursorStatus::Reconnect))
            }
            // The tail has all events of this node. The next poll looks for those of other nodes.
            Err(_) if reason == ReadReason::Poll => None,
            Err(error) => Some(self.finish(CursorStatus::Failed(error))),
        })
    }

    fn deliver_batch(&mut self, through: u64, out: &mut Vec<Event>) -> CursorStatus {
        let missing = through - self.after - self.batch.len() as u64;
        self.after = through;
        let (stream, tag) = (self.stream.0, self.session.tag());
        out.extend(
            self.batch
                .drain(..)
                .map(|(seq, payload)| Event { id: Some(EventId { stream, seq, tag }), payload }),
        );
        CursorStatus::Events { missing }
    }

    /// Ready when it is time to check whether another node has written to the stream.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(interval) = self.engine.store().poll_interval() else { return Poll::Pending };
        let timer = self.poll_timeout.get_or_insert_with(|| Box::pin(tokio::time::sleep(interval)));
        ready!(timer.as_mut().poll(context));
        let next = tokio::time::Instant::now() + interval.max(Duration::from_millis(1));
        timer.as_mut().reset(next);
        Poll::Ready(())
    }

    fn event_id(&self, seq: u64) -> EventId {
        EventId { stream: self.stream.0, seq, tag: self.session.tag() }
    }

    fn finish(&mut self, status: CursorStatus) -> CursorStatus {
        self.is_delivered = status == CursorStatus::Ended;
        status
    }
}

/// A broken connection loses its cursor, not its messages: they stay in the store.
impl Drop for Cursor {
    fn drop(&mut self) {
        if self.is_delivered && self.session.facts().is_call_job() {
            // No later command of this session could report the delivery.
            self.session.remove_tail(self.stream, self.connection);
            self.engine.detach_later(&self.session, self.stream, self.connection, self.after);
        } else if self.is_delivered {
            self.session.stream_delivered(self.stream, self.connection);
        } else {
            self.session.remove_tail(self.stream, self.connection);
            self.engine.detach_later(&self.session, self.stream, self.connection, self.written);
        }
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("session", &self.session.id()).field("at", &self.position()).finish()
    }
}
