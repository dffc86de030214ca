//! A connection: a position in a stream, and the wait for more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use steadfast_session::{ConnNo, Read, StreamNo};
use steadfast_store::{Reply, StoreError};
use steadfast_wire::EventId;

use crate::admission::Counted;
use crate::backend::Denial;
use crate::engine::Engine;
use crate::live::LiveSession;
use crate::tail::{Look, Tail};

/// How many events a connection takes before the store is told, so that a long stream can shed what was read.
const REPORT_EVERY: u64 = 64;

/// One event for a connection to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `None` for an event that is in no log: it cannot be resumed from.
    pub id: Option<EventId>,
    pub payload: Bytes,
}

/// What a reader gets next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CursorStatus {
    /// Events were added to the caller's list. `missing` ones before them were dropped for want of room.
    Events { missing: u64 },
    /// The stream is complete and everything has been read.
    Ended,
    /// A newer connection reads this stream now.
    Superseded,
    /// The node is going away: come back, with the last event id.
    ComeBack,
    /// The store failed. The client can come back with its last event id.
    Failed(StoreError),
}

/// Reads one stream from a position on. Replay and live delivery are the same thing to it.
pub struct Cursor {
    engine: Arc<Engine>,
    session: Arc<LiveSession>,
    tail: Arc<Tail>,
    stream: StreamNo,
    connection: ConnNo,
    /// Where it started.
    start: u64,
    /// The last event that was read.
    after: u64,
    /// The last event that the connection has taken.
    written: u64,
    /// The last event that the store knows to be taken.
    reported: u64,
    reading: Option<Reply<Read>>,
    taken: Vec<(u64, Bytes)>,
    /// Wakes a reader of a stream that another process may be writing.
    poll: Option<Pin<Box<tokio::time::Sleep>>>,
    over: bool,
    /// It counts as a call: its client cannot come back.
    counted: Option<Counted>,
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
            taken: Vec::new(),
            poll: None,
            over: false,
            counted: None,
        }
    }

    /// A node that drains is to wait for it.
    pub(crate) fn count(&mut self, counted: Counted) {
        self.counted = Some(counted);
    }

    /// The id of the last event that was read, or of the position it started from.
    pub fn position(&self) -> EventId {
        self.event_id(self.after)
    }

    /// Whether it waits for the store, and not for something to happen in its stream.
    pub fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Waits for events and adds them to `out`. After anything but [`CursorStatus::Events`] there is no more.
    pub fn poll_events(&mut self, context: &mut Context<'_>, out: &mut Vec<Event>) -> Poll<CursorStatus> {
        loop {
            if self.reading.is_some() {
                match ready!(self.poll_read(context, out)) {
                    Some(status) => return Poll::Ready(status),
                    None => continue,
                }
            }
            match self.tail.look(self.connection, self.after, &mut self.taken, context.waker()) {
                Look::Events { through } => return Poll::Ready(self.deliver_taken(through, out)),
                Look::Unlogged(answers) => {
                    out.extend(answers.into_iter().map(|payload| Event { id: None, payload }));
                    return Poll::Ready(CursorStatus::Events { missing: 0 });
                }
                Look::Behind => self.start_read(),
                Look::Ended => return Poll::Ready(self.finish(CursorStatus::Ended)),
                Look::Superseded => return Poll::Ready(self.finish(CursorStatus::Superseded)),
                Look::ToldToLeave => return Poll::Ready(self.finish(CursorStatus::ComeBack)),
                Look::Nothing => {
                    ready!(self.poll_timer(context));
                    self.start_read();
                }
            }
        }
    }

    /// Waits for the server's word on the credentials of the client whose one call this stream is of. `None` if it has nothing
    /// against them, or something else comes first.
    pub fn poll_denial(&mut self, context: &mut Context<'_>) -> Poll<Option<Denial>> {
        self.tail.denial(self.connection, context.waker()).map_or(Poll::Pending, Poll::Ready)
    }

    /// Goes back to where it started, to read everything again.
    pub fn rewind(&mut self) {
        self.after = self.start;
        self.over = false;
        self.tail.distrust();
    }

    /// Reads to the end, for a stream that nobody else reads.
    pub async fn read_out(mut self) {
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

    /// The connection has taken everything that was read.
    pub fn mark_written(&mut self) {
        self.written = self.after;
        if self.written - self.reported >= REPORT_EVERY {
            self.reported = self.written;
            self.engine.deliver_later(&self.session, self.stream, self.connection, self.written);
        }
    }

    /// What was read last was not written: somebody has to come back for it.
    pub fn abandon(&mut self) {
        self.over = false;
    }

    fn start_read(&mut self) {
        let engine = &self.engine;
        self.reading = Some(engine.store().read(
            self.session.id(),
            self.stream,
            self.after,
            engine.options().read_bytes,
        ));
    }

    /// `None` if the store had nothing new.
    fn poll_read(&mut self, context: &mut Context<'_>, out: &mut Vec<Event>) -> Poll<Option<CursorStatus>> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let read = ready!(Pin::new(reading).poll(context));
        self.reading = None;
        Poll::Ready(match read {
            Ok(Read::Slice(slice)) => {
                if slice.ended {
                    self.tail.end();
                }
                if slice.ended || slice.entries.is_empty() {
                    // Read to the end while the tail was listening, or for good: that costs no other read, which may fail.
                    self.tail.caught_up(slice.through);
                }
                self.after = slice.through;
                let nothing = slice.entries.is_empty() && slice.missing == 0;
                for entry in slice.entries {
                    let id = Some(self.event_id(entry.seq));
                    out.extend(entry.payload.map(|payload| Event { id, payload }));
                }
                (!nothing).then_some(CursorStatus::Events { missing: slice.missing })
            }
            // Forgotten while it was being read. Whoever comes back is told so; this is no proper end.
            Ok(Read::Gone | Read::NoSession | Read::UnknownEvent) => {
                Some(self.finish(CursorStatus::ComeBack))
            }
            Err(error) => Some(self.finish(CursorStatus::Failed(error))),
        })
    }

    fn deliver_taken(&mut self, through: u64, out: &mut Vec<Event>) -> CursorStatus {
        let missing = through - self.after - self.taken.len() as u64;
        self.after = through;
        let (stream, tag) = (self.stream.0, self.session.tag());
        out.extend(
            self.taken
                .drain(..)
                .map(|(seq, payload)| Event { id: Some(EventId { stream, seq, tag }), payload }),
        );
        CursorStatus::Events { missing }
    }

    /// Ready when it is time to look whether another process has written.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(interval) = self.engine.store().poll_interval() else { return Poll::Pending };
        let timer = self.poll.get_or_insert_with(|| Box::pin(tokio::time::sleep(interval)));
        ready!(timer.as_mut().poll(context));
        let next = tokio::time::Instant::now() + interval.max(Duration::from_millis(1));
        timer.as_mut().reset(next);
        Poll::Ready(())
    }

    fn event_id(&self, seq: u64) -> EventId {
        EventId { stream: self.stream.0, seq, tag: self.session.tag() }
    }

    fn finish(&mut self, status: CursorStatus) -> CursorStatus {
        self.over = status == CursorStatus::Ended;
        status
    }
}

/// Losing a connection loses a cursor, never a message.
impl Drop for Cursor {
    fn drop(&mut self) {
        if self.over {
            self.session.delivered(self.stream, self.connection);
        } else {
            self.session.drop_tail(self.stream, self.connection);
            self.engine.detach_later(&self.session, self.stream, self.connection, self.written);
        }
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor").field("session", &self.session.id()).field("at", &self.position()).finish()
    }
}
