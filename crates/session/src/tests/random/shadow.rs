//! A copy of the tables kept from the reported changes alone, as a store on disk would.
#![allow(clippy::borrowed_box, reason = "as the map has it")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::{Ask, AskNo, Call, CallNo, Changes, Entry, Meta, Session, Stream, StreamNo};
use crate::{State, Streams};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shadow {
    meta: Meta,
    calls: BTreeMap<CallNo, Call>,
    asks: BTreeMap<AskNo, Ask>,
    /// Rows without entries.
    streams: Streams,
    entries: BTreeMap<(StreamNo, u64), Entry>,
    state: State,
}

fn row(stream: &Box<Stream>) -> Box<Stream> {
    Box::new(Stream { entries: VecDeque::new(), ..Stream::clone(stream) })
}

fn copy<K: Ord + Clone, V: Clone>(
    keys: &[K],
    from: &BTreeMap<K, V>,
    to: &mut BTreeMap<K, V>,
    row: impl Fn(&V) -> V,
) {
    for key in keys {
        match from.get(key) {
            Some(value) => to.insert(key.clone(), row(value)),
            None => to.remove(key),
        };
    }
}

impl Shadow {
    pub(super) fn of(session: &Session) -> Self {
        let entries = |(no, stream): (&StreamNo, &Box<Stream>)| {
            let no = *no;
            stream.entries.iter().map(move |entry| ((no, entry.seq), entry.clone())).collect::<Vec<_>>()
        };
        Self {
            meta: session.meta().clone(),
            calls: session.calls().clone(),
            asks: session.asks().clone(),
            streams: session.streams().iter().map(|(no, stream)| (*no, row(stream))).collect(),
            entries: session.streams().iter().flat_map(entries).collect(),
            state: session.state().clone(),
        }
    }

    pub(super) fn follow(&mut self, changes: &Changes, session: &Session) {
        if changes.meta {
            self.meta = session.meta().clone();
        }
        copy(&changes.calls, session.calls(), &mut self.calls, Call::clone);
        copy(&changes.started, session.calls(), &mut self.calls, Call::clone);
        copy(&changes.asks, session.asks(), &mut self.asks, Ask::clone);
        copy(&changes.streams, session.streams(), &mut self.streams, row);
        copy(&changes.state, session.state(), &mut self.state, Box::clone);
        for appended in &changes.appended {
            let entry = Entry {
                seq: appended.seq,
                class: appended.class,
                size: appended.payload.len() as u32 + 64,
                payload: Some(appended.payload.clone()),
            };
            self.entries.insert((appended.stream, appended.seq), entry);
        }
        for dropped in &changes.dropped {
            assert!(self.entries.remove(dropped).is_some(), "{dropped:?} was dropped twice");
        }
        self.entries.retain(|(stream, _), _| self.streams.contains_key(stream));
    }

    pub(super) fn check(&self, session: &Session) {
        assert_eq!(*self, Self::of(session));
        let again = self.restore(session);
        assert_eq!(again.by_id, session.by_id);
        assert_eq!(again.attached, session.attached);
        assert_eq!(again.finished, session.finished);
        assert_eq!(again.spent, session.spent);
        assert_eq!(again.bytes, session.bytes);
        assert_eq!(again.state_bytes, session.state_bytes);
        assert_eq!(again.kept_answer_bytes, session.kept_answer_bytes);
        assert_eq!(again.request_bytes, session.request_bytes);
    }

    pub(super) fn restore(&self, session: &Session) -> Session {
        let mut streams = self.streams.clone();
        for ((no, _), entry) in &self.entries {
            streams.get_mut(no).unwrap().entries.push_back(entry.clone());
        }
        let Self { meta, calls, asks, state, .. } = self.clone();
        Session::restore(Arc::clone(session.facts()), meta, calls, asks, streams, state)
    }
}
