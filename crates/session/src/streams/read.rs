//! Reads the events of a stream after a position.

use crate::ids::StreamNo;
use crate::rows::{Meta, StoredEvent, Stream};
use crate::session::Session;

/// The result of a read after a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    Slice(Slice),
    /// The stream never had the event at the position.
    UnknownEvent,
    /// The stream has finished and was removed.
    Gone,
    NoSession,
}

/// A run of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub events: Vec<StoredEvent>,
    /// The number of events between the position and the end of this slice that were dropped to
    /// free space.
    pub missing: u64,
    /// The position to continue from.
    pub through: u64,
    /// The stream has finished, and this slice contains its last event.
    pub ended: bool,
}

impl Session {
    /// Reads events after a position: at most about `budget` bytes, but at least one event if there
    /// is one.
    pub fn read(&self, stream: StreamNo, after: u64, budget: u64) -> Read {
        match self.streams.get(&stream) {
            Some(stream) => stream.read(after, budget),
            None => self.meta.read_absent(stream),
        }
    }
}

impl Meta {
    /// Returns the result of a read from a stream that does not exist: it was removed, or it never
    /// existed.
    pub fn read_absent(&self, stream: StreamNo) -> Read {
        if stream.0 < self.next_stream && stream != StreamNo::FIRST_STANDALONE {
            Read::Gone
        } else {
            Read::UnknownEvent
        }
    }
}

impl Stream {
    /// Reads events after a position: at most about `budget` bytes, but at least one event if there
    /// is one.
    ///
    /// A store that holds the events elsewhere may call this function with fewer events in
    /// [`Stream::events`]: those after the position, up to and including the first one beyond the
    /// budget.
    pub fn read(&self, after: u64, budget: u64) -> Read {
        if after > self.last_seq() {
            return Read::UnknownEvent;
        }
        let from = self.events.partition_point(|event| event.seq <= after);
        let mut size = 0;
        let events: Vec<StoredEvent> = self
            .events
            .range(from..)
            .take_while(|event| {
                let fits = size == 0 || size + u64::from(event.size) <= budget;
                size += u64::from(event.size);
                fits
            })
            .cloned()
            .collect();
        let complete = from + events.len() == self.events.len();
        let through = match events.last() {
            Some(last) if !complete => last.seq,
            _ => self.last_seq(),
        };
        let missing = through - after - events.len() as u64;
        Read::Slice(Slice { events, missing, through, ended: complete && !self.is_open() })
    }
}
