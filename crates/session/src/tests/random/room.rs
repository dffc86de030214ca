//! What has to give way to a message, and what may not.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::super::bench::OVERHEAD;
use super::history::{Expected, History, StreamStory, withdrawn_by};
use crate::{AskNo, Changes, Class, StreamNo};

impl StreamStory {
    fn may_drop(&self, seq: u64, asked: bool) -> bool {
        let had = self.standalone && seq <= self.delivered;
        match self.events[&seq].0 {
            Class::Chatter => true,
            Class::Notice => had,
            Class::Ask => had && !asked,
            Class::Response => false,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.kept.iter().map(|seq| self.size(*seq)).sum()
    }
}

impl History {
    /// Whether an ask is open on a stream.
    pub(super) fn asked(&self, no: StreamNo) -> bool {
        self.asks.values().any(|ask| ask.stream == no && !ask.over)
    }

    /// What must be dropped for a message: the oldest of what may go, and no more than it needs. `None` if the
    /// message is not taken.
    pub(super) fn victims(
        &self,
        no: StreamNo,
        class: Class,
        payload: &Bytes,
        asked: bool,
    ) -> Option<Vec<u64>> {
        let limits = &self.rules.limits;
        let size = payload.len() as u64 + OVERHEAD;
        let stream = &self.streams[&no];
        let mut left = stream.bytes() + size;
        let mut whole = self.held().map(|(_, stream)| stream.bytes()).sum::<u64>() + size;
        let mut victims = vec![];
        for seq in stream.kept.iter().filter(|seq| stream.may_drop(**seq, asked)) {
            if left > limits.stream_bytes {
                victims.push(*seq);
                left -= stream.size(*seq);
                whole -= stream.size(*seq);
            }
        }
        if left > limits.stream_bytes {
            victims.clear();
        }
        let fits = left <= limits.stream_bytes && whole <= limits.session_bytes;
        (fits || class >= Class::Ask).then_some(victims)
    }

    /// Each message of a step finds the room that the ones before it have left, and drops for itself alone.
    pub(super) fn note_room(&mut self, changes: &Changes, expected: &Expected) {
        if let Some((no, class, payload)) = &expected.message {
            let taken = changes.appended.iter().any(|event| event.payload == *payload);
            let asked = self.asked_before(*no, expected, &BTreeSet::new());
            assert_eq!(taken, self.victims(*no, *class, payload, asked).is_some());
        }
        let mut withdrawn = BTreeSet::new();
        let mut dropped = vec![];
        for event in &changes.appended {
            if event.class == Class::Ask {
                withdrawn.extend(withdrawn_by(&event.payload));
            }
            let asked = self.asked_before(event.stream, expected, &withdrawn);
            let victims = self.victims(event.stream, event.class, &event.payload, asked).unwrap();
            let stream = self.streams.get_mut(&event.stream).unwrap();
            for seq in victims {
                stream.kept.remove(&seq);
                dropped.push((event.stream, seq));
            }
            stream.kept.insert(event.seq);
            stream.events.insert(event.seq, (event.class, event.payload.clone()));
        }
        assert_eq!(changes.dropped, dropped);
    }

    /// Whether an ask was open on a stream in the middle of a step that has `withdrawn` these so far. An ask that is
    /// about to be sent is not open yet.
    fn asked_before(&self, no: StreamNo, expected: &Expected, withdrawn: &BTreeSet<AskNo>) -> bool {
        self.asks.iter().filter(|(_, ask)| ask.stream == no).any(|(ask, story)| {
            let was_open = !story.over || expected.withdrawn.contains(ask);
            was_open && !withdrawn.contains(ask) && expected.opened != Some(*ask)
        })
    }
}
