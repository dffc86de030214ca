//! What has to give way to a message, and what may not.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::super::bench::OVERHEAD;
use super::history::{Expected, History, StreamStory, withdrawn_by};
use crate::{AskNo, Changes, Class, Limit, StreamNo};

/// What gives way to a message that is taken.
#[derive(Debug, Default)]
pub(super) struct Room {
    streams: Vec<StreamNo>,
    events: Vec<u64>,
}

impl StreamStory {
    /// Requests that nobody waits for any more go first, whether their stream is full or the whole session.
    fn is_history(&self, seq: u64, open: &BTreeSet<u64>) -> bool {
        self.events[&seq].0 == Class::Ask && !open.contains(&seq)
    }

    /// What goes next if their stream is full.
    fn is_spare(&self, seq: u64) -> bool {
        match self.events[&seq].0 {
            Class::Chatter | Class::Withdrawal => true,
            Class::Notice => self.standalone && seq <= self.delivered,
            Class::Ask | Class::Response => false,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.kept.iter().map(|seq| self.size(*seq)).sum()
    }
}

impl History {
    /// The events of a stream that are asks without an answer.
    pub(super) fn asked(&self, no: StreamNo) -> BTreeSet<u64> {
        self.asks.values().filter(|ask| ask.stream == no && ask.is_open()).map(|ask| ask.seq).collect()
    }

    /// The bound of all sessions together that a message which can be spared or refused would break.
    pub(super) fn no_room_beside(&self, class: Class, payload: &Bytes) -> Option<Limit> {
        let size = payload.len() as u64 + OVERHEAD;
        self.crowd.and(size).over(&self.rules.limits).filter(|_| class < Class::Withdrawal)
    }

    /// What must be dropped for a message: the oldest of what may go, and no more than it needs. `None` if the
    /// message is not taken.
    pub(super) fn room(
        &self,
        no: StreamNo,
        class: Class,
        payload: &Bytes,
        open: &BTreeSet<u64>,
    ) -> Option<Room> {
        if self.no_room_beside(class, payload).is_some() {
            return None;
        }
        let limits = &self.rules.limits;
        let size = payload.len() as u64 + OVERHEAD;
        let mut whole = self.held().map(|(_, stream)| stream.bytes()).sum::<u64>() + size;
        let mut room = Room::default();
        let modest = class == Class::Chatter;
        let mut spent: Vec<_> = self.held().filter(|(_, stream)| stream.is_spent()).collect();
        spent.sort_by_key(|(no, stream)| (stream.ended, *no));
        for (no, stream) in spent {
            if whole > limits.session_bytes && !modest {
                whole -= stream.bytes();
                room.streams.push(no);
            }
        }
        let stream = &self.streams[&no];
        let mut left = stream.bytes() + size;
        let history = stream.kept.iter().filter(|seq| stream.is_history(**seq, open));
        let spare = stream.kept.iter().filter(|seq| stream.is_spare(**seq));
        for (seq, is_history) in history.map(|seq| (seq, true)).chain(spare.map(|seq| (seq, false))) {
            let short = is_history && whole > limits.session_bytes && !modest;
            if short || left > limits.stream_bytes {
                room.events.push(*seq);
                left -= stream.size(*seq);
                whole -= stream.size(*seq);
            }
        }
        if left > limits.stream_bytes {
            room.events.clear();
        }
        let fits = left <= limits.stream_bytes && whole <= limits.session_bytes;
        (fits || class >= Class::Withdrawal).then_some(room)
    }

    /// Each message of a step finds the room that the ones before it have left, and drops for itself alone.
    pub(super) fn note_room(&mut self, changes: &Changes, expected: &Expected) {
        if let Some((no, class, payload)) = &expected.message {
            let taken = changes.appended.iter().any(|event| event.payload == *payload);
            let open = self.asked_before(*no, expected, &BTreeSet::new());
            assert_eq!(taken, self.room(*no, *class, payload, &open).is_some());
        }
        let mut withdrawn = BTreeSet::new();
        let mut dropped = vec![];
        for event in &changes.appended {
            if event.class == Class::Withdrawal {
                withdrawn.extend(withdrawn_by(&event.payload));
            }
            let open = self.asked_before(event.stream, expected, &withdrawn);
            let room = self.room(event.stream, event.class, &event.payload, &open).unwrap();
            for no in room.streams {
                self.streams.get_mut(&no).unwrap().gone = true;
            }
            let stream = self.streams.get_mut(&event.stream).unwrap();
            for seq in room.events {
                stream.kept.remove(&seq);
                dropped.push((event.stream, seq));
            }
            stream.kept.insert(event.seq);
            stream.events.insert(event.seq, (event.class, event.payload.clone()));
        }
        assert_eq!(changes.dropped, dropped);
    }

    /// The asks that were open on a stream in the middle of a step that has `withdrawn` these so far. An ask that is
    /// about to be sent is not open yet.
    fn asked_before(&self, no: StreamNo, expected: &Expected, withdrawn: &BTreeSet<AskNo>) -> BTreeSet<u64> {
        let of_stream = self.asks.iter().filter(|(_, ask)| ask.stream == no && ask.kept.is_none());
        let open = of_stream.filter(|(ask, story)| {
            let was_open = !story.over || expected.withdrawn.contains(ask);
            was_open && !withdrawn.contains(ask) && expected.opened != Some(**ask)
        });
        open.map(|(_, story)| story.seq).collect()
    }
}
