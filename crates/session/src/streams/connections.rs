//! Connections: which HTTP response reads which stream. A new connection supersedes the older one.

use crate::changes::Changes;
use crate::command::{Attach, Attached, Deliver, Delivered, Detach, Detached, Position};
use crate::ids::{ConnNo, NodeId, StreamNo, Time};
use crate::lifecycle_events::Lifecycle;
use crate::limits::{Limit, Rules};
use crate::rows::{Stream, StreamKind};
use crate::session::Session;
use crate::streams::read::Read;

impl Session {
    pub(crate) fn attach(
        &mut self,
        command: &Attach,
        now: Time,
        rules: &Rules,
        changes: &mut Changes,
    ) -> Attached {
        if !self.is_open() {
            return Attached::NoSession;
        }
        let (stream, after) = match command.at {
            Position::After { stream, seq } => match self.read(stream, seq, 0) {
                Read::Slice(_) => (stream, seq),
                Read::Gone => return Attached::Gone,
                Read::UnknownEvent | Read::NoSession => return Attached::UnknownEvent,
            },
            Position::Standalone => match self.choose_standalone(rules, changes) {
                Some(stream) => (stream, self.streams[&stream].delivered),
                None => return Attached::OverLimit(Limit::StandaloneStreams),
            },
        };
        self.mark_active(now, rules, changes);
        let connection = ConnNo(self.meta.next_connection);
        self.meta.next_connection += 1;
        changes.meta = true;
        let Some(log) = self.streams.get_mut(&stream) else { return Attached::Gone };
        if log.attached.replace((connection, command.node)).is_some() {
            changes.superseded.push((stream, connection));
        } else if log.is_open() {
            self.attached += 1;
        }
        changes.streams.push(stream);
        self.mark_attached(changes);
        Attached::Attached { stream, connection, after }
    }

    /// Chooses a standalone stream for a new connection. Returns `None` if all of them are attached
    /// and the limit is reached.
    ///
    /// The order of preference: a detached stream with undelivered events, so that no event waits
    /// forever; the first standalone stream; a new stream; at the limit, any detached stream. An
    /// attached stream is never chosen, because clients that share a session must not supersede
    /// each other.
    fn choose_standalone(&mut self, rules: &Rules, changes: &mut Changes) -> Option<StreamNo> {
        let first = self.first_standalone(changes);
        let is_standalone = |stream: &Stream| stream.kind == StreamKind::Standalone;
        let is_detached = |stream: &Stream| is_standalone(stream) && stream.attached.is_none();
        let has_undelivered = |stream: &Stream| is_detached(stream) && stream.delivered < stream.last_seq();
        if let Some((no, _)) = self.streams.iter().find(|(_, stream)| has_undelivered(stream)) {
            return Some(*no);
        }
        if self.streams[&first].attached.is_none() {
            return Some(first);
        }
        if self.streams.values().filter(|stream| is_standalone(stream)).count()
            >= rules.limits.standalone_streams
        {
            return self.streams.iter().find(|(_, stream)| is_detached(stream)).map(|(no, _)| *no);
        }
        let no = StreamNo(self.meta.next_stream);
        self.meta.next_stream += 1;
        self.streams.insert(no, Box::new(Stream::new(StreamKind::Standalone)));
        Some(no)
    }

    pub(crate) fn detach(&mut self, command: &Detach, now: Time, changes: &mut Changes) -> Detached {
        let Some(stream) = self.streams.get_mut(&command.stream) else { return Detached::Stale };
        if stream.attached.is_none_or(|(connection, _)| connection != command.connection) {
            return Detached::Stale;
        }
        stream.attached = None;
        changes.streams.push(command.stream);
        let was_open = stream.is_open();
        self.mark_delivered(command.stream, command.through, changes);
        if was_open {
            self.connection_lost(now, changes);
        } else if self.facts().is_call_job() {
            // The stream is kept for some time after its delivery, so that time starts now.
            self.meta.last_active = now;
            changes.meta = true;
        }
        Detached::Detached
    }

    pub(crate) fn deliver(&mut self, command: &Deliver, changes: &mut Changes) -> Delivered {
        if !self.is_open() {
            return Delivered::NoSession;
        }
        let reader = self.streams.get(&command.stream).and_then(|stream| stream.attached);
        if reader.is_none_or(|(connection, _)| connection != command.connection) {
            return Delivered::Stale;
        }
        self.mark_delivered(command.stream, command.through, changes);
        Delivered::Delivered
    }

    pub(crate) fn detach_node(&mut self, node: NodeId, now: Time, changes: &mut Changes) {
        let lost: Vec<StreamNo> = self
            .streams
            .iter()
            .filter(|(_, stream)| stream.attached.is_some_and(|(_, owner)| owner == node))
            .map(|(no, _)| *no)
            .collect();
        for no in lost {
            let Some(stream) = self.streams.get_mut(&no) else { continue };
            stream.attached = None;
            changes.streams.push(no);
            if stream.is_open() {
                self.connection_lost(now, changes);
            }
        }
    }

    /// Counts a lost connection to an open stream. The last one detaches the session.
    fn connection_lost(&mut self, now: Time, changes: &mut Changes) {
        self.attached -= 1;
        if self.attached == 0 && self.is_open() && self.meta.detached_at.is_none() {
            self.meta.detached_at = Some(now);
            changes.meta = true;
            changes.lifecycle.push(Lifecycle::Detached);
        }
    }
}
