//! Streams as logs: append with bounds, end, forget, read.

use bytes::Bytes;
use steadfast_wire::planted;

use crate::changes::{Appended, Changes};
use crate::command::{Append, AppendOutcome, Target};
use crate::crowd::Crowd;
use crate::ids::{StreamNo, Time};
use crate::limits::{Limit, Limits, Rules};
use crate::session::Session;
use crate::tables::{Ask, Class, Entry, Meta, Stream, StreamKind};

/// What an event costs beyond its payload: its place in the index, its row, its framing.
const EVENT_OVERHEAD: u64 = 64;

/// What a reader finds after a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    Slice(Slice),
    /// The stream has never had that event.
    UnknownEvent,
    /// The stream is not kept any more.
    Gone,
    NoSession,
}

/// A run of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    pub entries: Vec<Entry>,
    /// Events between the position and the end of this slice that were dropped for want of room.
    pub missing: u64,
    /// The position to go on from.
    pub through: u64,
    /// Nothing will follow.
    pub ended: bool,
}

impl Session {
    pub(crate) fn append(
        &mut self,
        command: Append,
        rules: &Rules,
        crowd: Crowd,
        changes: &mut Changes,
    ) -> AppendOutcome {
        if !self.is_open() {
            return AppendOutcome::NoSession;
        }
        if self.is_fenced(command.fence.as_ref()) || self.is_about_a_taken_call(command.target) {
            return AppendOutcome::Fenced;
        }
        let size = command.payload.len() as u64 + EVENT_OVERHEAD;
        let no_room = crowd.and(size).over(&rules.limits);
        if let Some(limit) = no_room.filter(|_| command.class == Class::Notice) {
            return AppendOutcome::Full(limit);
        }
        let stream = self.route(command.target, changes);
        if planted("broadcast") && command.target == Target::Standalone {
            let is_other = |no: &StreamNo, log: &Stream| *no != stream && log.kind == StreamKind::Standalone;
            let other = self.streams.iter().find(|(no, log)| is_other(no, log)).map(|(no, _)| *no);
            other.map(|no| self.push(no, command.class, command.payload.clone(), &rules.limits, changes));
        }
        let seq = if no_room.is_some() && command.class == Class::Chatter {
            self.skip(stream, changes)
        } else {
            self.push(stream, command.class, command.payload, &rules.limits, changes)
        };
        seq.map_or(AppendOutcome::Full(Limit::StreamBytes), |seq| AppendOutcome::Appended { stream, seq })
    }

    fn is_about_a_taken_call(&self, target: Target) -> bool {
        matches!(target, Target::Call(no) if !self.meta.taken.is_empty() && self.is_taken(no))
    }

    /// The one stream that a message goes to.
    pub(crate) fn route(&mut self, target: Target, changes: &mut Changes) -> StreamNo {
        if let Target::Call(no) = target
            && let Some(call) = self.calls.get(&no)
            && !call.answer_only
        {
            return call.stream;
        }
        let newest = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.kind == StreamKind::Standalone && stream.is_open())
            .filter_map(|(no, stream)| stream.attached.map(|(connection, _)| (connection, *no)))
            .max();
        match newest {
            Some((_, stream)) => stream,
            None => self.first_standalone(changes),
        }
    }

    pub(crate) fn first_standalone(&mut self, changes: &mut Changes) -> StreamNo {
        let first = StreamNo::FIRST_STANDALONE;
        self.streams.entry(first).or_insert_with(|| {
            changes.streams.push(first);
            Box::new(Stream::new(StreamKind::Standalone))
        });
        first
    }

    /// Appends to a stream. `None` if there is no room and the message can be refused; nothing is dropped for a
    /// message that is not taken. When the whole session is short of room, finished streams that were written out
    /// give way to anything but progress and log messages.
    pub(crate) fn push(
        &mut self,
        no: StreamNo,
        class: Class,
        payload: Bytes,
        limits: &Limits,
        changes: &mut Changes,
    ) -> Option<u64> {
        let size = payload.len() as u64 + EVENT_OVERHEAD;
        let stream = self.streams.get_mut(&no)?;
        if stream.bytes + size <= limits.stream_bytes && self.bytes + size <= limits.session_bytes {
            self.bytes += size;
            return Some(stream.append(no, class, size, payload, changes));
        }
        let taken = self.make_room(no, class, size, limits, changes);
        let stream = self.streams.get_mut(&no)?;
        if taken {
            self.bytes += size;
            return Some(stream.append(no, class, size, payload, changes));
        }
        if class == Class::Chatter { self.skip(no, changes) } else { None }
    }

    /// A progress or log message that does not fit is dropped like any other: its number is used up, so the reader sees that
    /// something is missing.
    fn skip(&mut self, no: StreamNo, changes: &mut Changes) -> Option<u64> {
        Some(self.streams.get_mut(&no)?.next_number(no, changes))
    }

    /// Drops what gives way to a message of this size. `false` if the message is not taken; then nothing is dropped.
    #[cold]
    fn make_room(
        &mut self,
        no: StreamNo,
        class: Class,
        size: u64,
        limits: &Limits,
        changes: &mut Changes,
    ) -> bool {
        // Progress and log messages make room for themselves in their own stream, and for nothing elsewhere.
        let short =
            |bytes: u64| if class == Class::Chatter { 0 } else { bytes.saturating_sub(limits.session_bytes) };
        let spent = self.spent_room(short(self.bytes + size));
        let left = self.bytes + size - spent.freed;
        let is_open = |seq| {
            let waits = |ask: &Ask| ask.answer.is_none() && ask.stream == no && ask.seq == seq;
            self.asks.values().any(waits)
        };
        let Some(stream) = self.streams.get_mut(&no) else { return false };
        let room = room_for(size, stream, is_open, short(left), limits);
        let taken = class >= Class::Withdrawal
            || room.as_ref().is_some_and(|room| left - room.freed <= limits.session_bytes);
        if !taken {
            return false;
        }
        let Room { freed, victims } = room.unwrap_or_default();
        for seq in victims {
            let at = stream.entries.partition_point(|entry| entry.seq < seq);
            stream.entries.remove(at);
            changes.dropped.push((no, seq));
        }
        stream.bytes -= freed;
        self.bytes -= freed;
        for no in spent.victims {
            self.remove_stream(StreamNo(no), changes);
        }
        true
    }

    pub(crate) fn end_stream(&mut self, no: StreamNo, now: Time, changes: &mut Changes) {
        let Some(stream) = self.streams.get_mut(&no) else { return };
        if !stream.is_open() {
            return;
        }
        stream.finished_at = Some(now);
        if stream.attached.is_some() {
            self.attached -= 1;
        }
        self.finished.insert((now, no));
        if stream.is_spent() {
            self.spent.insert((now, no));
        }
        changes.streams.push(no);
        changes.ended.push(no);
    }

    /// Records that a stream has been written out up to `through`.
    pub(crate) fn mark_delivered(&mut self, no: StreamNo, through: u64, changes: &mut Changes) {
        let Some(stream) = self.streams.get_mut(&no) else { return };
        let through = through.min(stream.last_seq());
        if through <= stream.delivered {
            return;
        }
        stream.delivered = through;
        changes.streams.push(no);
        if let Some(at) = stream.finished_at
            && stream.is_spent()
        {
            self.spent.insert((at, no));
        }
    }

    /// Removes finished streams that have been written out, oldest first, until the bounds hold. Gives what all sessions
    /// hold then.
    pub(crate) fn evict_spent(&mut self, limits: &Limits, mut crowd: Crowd, changes: &mut Changes) -> Crowd {
        while let Some(&(_, no)) = self.spent.first()
            && (self.spent.len() > limits.delivered_streams
                || self.bytes > limits.session_bytes
                || crowd.is_dense(limits))
        {
            let before = self.bytes;
            self.remove_stream(no, changes);
            crowd = crowd.without(before - self.bytes);
        }
        crowd
    }

    /// Which of them to remove, oldest first, so that so many bytes get free: as many as there are if that is not enough.
    fn spent_room(&self, excess: u64) -> Room {
        let mut room = Room::default();
        for (_, no) in &self.spent {
            if room.freed >= excess {
                break;
            }
            room.freed += self.streams.get(no).map_or(0, |stream| stream.bytes);
            room.victims.push(no.0);
        }
        room
    }

    pub(crate) fn remove_stream(&mut self, no: StreamNo, changes: &mut Changes) {
        let Some(stream) = self.streams.remove(&no) else { return };
        let mailed = self.meta.mailed.len();
        self.meta.mailed.retain(|mailed| mailed.stream != no);
        changes.meta |= self.meta.mailed.len() != mailed;
        self.bytes -= stream.bytes;
        if stream.is_open() && stream.attached.is_some() {
            self.attached -= 1;
        }
        if let Some(at) = stream.finished_at {
            self.finished.remove(&(at, no));
            self.spent.remove(&(at, no));
        }
        changes.streams.push(no);
    }

    /// Reads on after a position, at most about `budget` bytes but always at least one event.
    pub fn read(&self, stream: StreamNo, after: u64, budget: u64) -> Read {
        match self.streams.get(&stream) {
            Some(log) => log.read(after, budget),
            None => self.meta.read_absent(stream),
        }
    }
}

impl Meta {
    /// What a reader finds in place of a stream that is not there.
    pub fn read_absent(&self, stream: StreamNo) -> Read {
        if stream.0 < self.next_stream && stream != StreamNo::FIRST_STANDALONE {
            Read::Gone
        } else {
            Read::UnknownEvent
        }
    }
}

impl Stream {
    fn append(
        &mut self,
        no: StreamNo,
        class: Class,
        size: u64,
        payload: Bytes,
        changes: &mut Changes,
    ) -> u64 {
        let seq = self.next_number(no, changes);
        self.bytes += size;
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.entries.push_back(Entry { seq, class, size, payload: Some(payload.clone()) });
        changes.appended.push(Appended { stream: no, seq, class, payload });
        seq
    }

    fn next_number(&mut self, no: StreamNo, changes: &mut Changes) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        changes.streams.push(no);
        seq
    }

    /// Reads on after a position. A store that keeps the entries elsewhere may hold here those after the
    /// position only, and of these no more than one beyond the budget.
    pub fn read(&self, after: u64, budget: u64) -> Read {
        if after > self.last_seq() {
            return Read::UnknownEvent;
        }
        let from = self.entries.partition_point(|entry| entry.seq <= after);
        let mut size = 0;
        let entries: Vec<Entry> = self
            .entries
            .range(from..)
            .take_while(|entry| {
                let fits = size == 0 || size + u64::from(entry.size) <= budget;
                size += u64::from(entry.size);
                fits
            })
            .cloned()
            .collect();
        let complete = from + entries.len() == self.entries.len();
        let through = match entries.last() {
            Some(last) if !complete => last.seq,
            _ => self.last_seq(),
        };
        let missing = through - after - entries.len() as u64;
        Read::Slice(Slice { entries, missing, through, ended: complete && !self.is_open() })
    }
}

/// What has to go so that a message fits.
#[derive(Default)]
struct Room {
    freed: u64,
    /// Numbers of events or streams, in the order in which they go.
    victims: Vec<u64>,
}

/// What to drop so that a stream can hold `size` more bytes: first requests that are not open any more, which nobody
/// needs; then the oldest progress and log messages and withdrawals, and on a standalone stream what has been written
/// out, which nobody but a resuming client could miss. `None` if all of that is not enough. Requests that are history
/// give way to the needs of the whole session, too, as far as they go.
fn room_for(
    size: u64,
    stream: &Stream,
    is_open: impl Fn(u64) -> bool,
    short_in_session: u64,
    limits: &Limits,
) -> Option<Room> {
    let short_here = (stream.bytes + size).saturating_sub(limits.stream_bytes);
    let mut room = Room::default();
    if short_here == 0 && short_in_session == 0 {
        return Some(room);
    }
    let history = |entry: &&Entry| entry.class == Class::Ask && !is_open(entry.seq);
    room.take(stream.entries.iter().filter(history), short_here.max(short_in_session));
    let delivered = if stream.kind == StreamKind::Standalone { stream.delivered } else { 0 };
    let spare = |entry: &&Entry| match entry.class {
        Class::Chatter | Class::Withdrawal => true,
        Class::Notice => entry.seq <= delivered,
        Class::Ask | Class::Response => false,
    };
    room.take(stream.entries.iter().filter(spare), short_here);
    (room.freed >= short_here).then_some(room)
}

impl Room {
    /// As many as are needed, from the first on.
    fn take<'a>(&mut self, mut entries: impl Iterator<Item = &'a Entry>, needed: u64) {
        while self.freed < needed
            && let Some(entry) = entries.next()
        {
            self.freed += u64::from(entry.size);
            self.victims.push(entry.seq);
        }
    }
}
