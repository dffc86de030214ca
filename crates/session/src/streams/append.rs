//! Appends messages to streams, and finishes and removes streams.

use bytes::Bytes;

use crate::changes::{Appended, Changes};
use crate::command::{Append, AppendOutcome, Target};
use crate::ids::{StreamNo, Time};
use crate::limits::{Limit, Limits, Rules};
use crate::rows::{Class, StoredEvent, Stream, StreamKind};
use crate::session::Session;
use crate::shared_usage::SharedUsage;

/// What an event costs beyond its payload: its index entry, its database row, its SSE framing.
const EVENT_OVERHEAD: u64 = 64;

impl Session {
    pub(crate) fn append(
        &mut self,
        command: Append,
        rules: &Rules,
        shared_usage: SharedUsage,
        changes: &mut Changes,
    ) -> AppendOutcome {
        if !self.is_open() {
            return AppendOutcome::NoSession;
        }
        if self.is_fenced(command.fence.as_ref()) || self.targets_ended_call(command.target) {
            return AppendOutcome::Fenced;
        }
        let size = command.payload.len() as u64 + EVENT_OVERHEAD;
        let exceeded = shared_usage.plus(size).exceeded_limit(&rules.limits);
        if let Some(limit) = exceeded.filter(|_| command.class == Class::Notification) {
            return AppendOutcome::Full(limit);
        }
        let stream = self.route(command.target, changes);
        let seq = if exceeded.is_some() && command.class == Class::Droppable {
            self.skip(stream, changes)
        } else {
            self.push(stream, command.class, command.payload, &rules.limits, changes)
        };
        seq.map_or(AppendOutcome::Full(Limit::StreamBytes), |seq| AppendOutcome::Appended { stream, seq })
    }

    /// Returns true if the target is a call that was revoked from its node, or the call of a job
    /// that has ended. In other sessions a message of an ended call goes to a standalone stream,
    /// but no client can read such a stream of a job.
    fn targets_ended_call(&self, target: Target) -> bool {
        let Target::Call(no) = target else { return false };
        self.is_revoked(no) || self.facts().is_call_job() && !self.calls.contains_key(&no)
    }

    /// Returns the stream that a message goes to. There is always exactly one.
    pub(crate) fn route(&mut self, target: Target, changes: &mut Changes) -> StreamNo {
        if let Target::Call(no) = target
            && let Some(call) = self.calls.get(&no)
            && !call.response_only
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

    /// Returns the first standalone stream, and creates it if necessary.
    pub(crate) fn first_standalone(&mut self, changes: &mut Changes) -> StreamNo {
        let first = StreamNo::FIRST_STANDALONE;
        self.streams.entry(first).or_insert_with(|| {
            changes.streams.push(first);
            Box::new(Stream::new(StreamKind::Standalone))
        });
        first
    }

    /// Appends a message to a stream, and evicts events or streams if there is no space.
    ///
    /// Returns the sequence number, or `None` if the message is refused. Nothing is evicted for a
    /// refused message. If the whole session is full, fully delivered streams are removed, except
    /// for a progress or log message.
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
        let is_accepted = self.make_room(no, class, size, limits, changes);
        let stream = self.streams.get_mut(&no)?;
        if is_accepted {
            self.bytes += size;
            return Some(stream.append(no, class, size, payload, changes));
        }
        if class == Class::Droppable { self.skip(no, changes) } else { None }
    }

    /// Drops a progress or log message that does not fit. It still uses a sequence number, so that
    /// readers see the gap.
    fn skip(&mut self, no: StreamNo, changes: &mut Changes) -> Option<u64> {
        Some(self.streams.get_mut(&no)?.take_seq(no, changes))
    }

    /// Marks a stream as finished: no more events follow.
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
        if stream.is_fully_delivered() {
            self.fully_delivered.insert((now, no));
        }
        changes.streams.push(no);
        changes.ended.push(no);
    }

    /// Records that the events up to `through` were written to a connection.
    pub(crate) fn mark_delivered(&mut self, no: StreamNo, through: u64, changes: &mut Changes) {
        let Some(stream) = self.streams.get_mut(&no) else { return };
        let through = through.min(stream.last_seq());
        if through <= stream.delivered {
            return;
        }
        stream.delivered = through;
        changes.streams.push(no);
        if let Some(at) = stream.finished_at
            && stream.is_fully_delivered()
        {
            self.fully_delivered.insert((at, no));
        }
    }

    pub(crate) fn remove_stream(&mut self, no: StreamNo, changes: &mut Changes) {
        let Some(stream) = self.streams.remove(&no) else { return };
        let before = self.meta.forwarded_begins.len();
        self.meta.forwarded_begins.retain(|begin| begin.stream != no);
        changes.meta |= self.meta.forwarded_begins.len() != before;
        self.bytes -= stream.bytes;
        if stream.is_open() && stream.attached.is_some() {
            self.attached -= 1;
        }
        if let Some(at) = stream.finished_at {
            self.finished.remove(&(at, no));
            self.fully_delivered.remove(&(at, no));
        }
        changes.streams.push(no);
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
        let seq = self.take_seq(no, changes);
        self.bytes += size;
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.events.push_back(StoredEvent { seq, class, size, payload: Some(payload.clone()) });
        changes.appended.push(Appended { stream: no, seq, class, payload });
        seq
    }

    fn take_seq(&mut self, no: StreamNo, changes: &mut Changes) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        changes.streams.push(no);
        seq
    }
}
