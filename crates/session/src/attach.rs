//! Connections: which response reads which stream. The newest wins.

use steadfast_wire::planted;

use crate::changes::Changes;
use crate::command::{Attach, Attached, Deliver, Delivered, Detach, Detached, Position};
use crate::ids::{ConnNo, NodeId, StreamNo, Time};
use crate::lifecycle::Lifecycle;
use crate::limits::{Limit, Rules};
use crate::log::Read;
use crate::session::Session;
use crate::tables::{Stream, StreamKind};

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
            Position::Standalone => match self.standalone_for_a_newcomer(rules, changes) {
                Some(stream) => (stream, self.streams[&stream].delivered),
                None => return Attached::OverLimit(Limit::StandaloneStreams),
            },
        };
        let after = match command.at {
            Position::After { .. } if planted("replay-from-itself") => after.saturating_sub(1),
            Position::After { .. } if planted("replay-too-late") => {
                self.streams.get(&stream).map_or(after, |log| log.last_seq().min(after + 1))
            }
            _ => after,
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

    /// A deserted stream in which something waits, else the first standalone stream if nobody reads it, else a new
    /// one, or any deserted one if there are too many: clients that share a session must not throw each other out, and nothing may wait for ever.
    fn standalone_for_a_newcomer(&mut self, rules: &Rules, changes: &mut Changes) -> Option<StreamNo> {
        let first = self.first_standalone(changes);
        let standalone = |stream: &Stream| stream.kind == StreamKind::Standalone;
        let deserted = |stream: &Stream| standalone(stream) && stream.attached.is_none();
        let waits = |stream: &Stream| deserted(stream) && stream.delivered < stream.last_seq();
        if let Some((no, _)) = self.streams.iter().find(|(_, stream)| waits(stream)) {
            return Some(*no);
        }
        if self.streams[&first].attached.is_none() {
            return Some(first);
        }
        if self.streams.values().filter(|stream| standalone(stream)).count()
            >= rules.limits.standalone_streams
        {
            return self.streams.iter().find(|(_, stream)| deserted(stream)).map(|(no, _)| *no);
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
            self.lost_a_connection(now, changes);
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
                self.lost_a_connection(now, changes);
            }
        }
    }

    fn lost_a_connection(&mut self, now: Time, changes: &mut Changes) {
        self.attached -= 1;
        if self.attached == 0 && self.is_open() && self.meta.detached_at.is_none() {
            self.meta.detached_at = Some(now);
            changes.meta = true;
            changes.lifecycle.push(Lifecycle::Detached);
        }
    }
}
