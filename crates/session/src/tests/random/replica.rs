//! A copy of the tables that is updated from the reported changes alone, as a store on disk does.
#![allow(clippy::borrowed_box, reason = "the maps hold boxed streams")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::{
    Call, CallNo, Changes, Meta, ServerRequest, ServerRequestNo, Session, SessionState, StoredEvent, Stream,
    StreamNo, Streams,
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Replica {
    meta: Meta,
    calls: BTreeMap<CallNo, Call>,
    server_requests: BTreeMap<ServerRequestNo, ServerRequest>,
    /// The streams without their events.
    streams: Streams,
    events: BTreeMap<(StreamNo, u64), StoredEvent>,
    state: SessionState,
}

fn row(stream: &Box<Stream>) -> Box<Stream> {
    Box::new(Stream { events: VecDeque::new(), ..Stream::clone(stream) })
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

impl Replica {
    pub(super) fn of(session: &Session) -> Self {
        let events = |(no, stream): (&StreamNo, &Box<Stream>)| {
            let no = *no;
            stream.events.iter().map(move |event| ((no, event.seq), event.clone())).collect::<Vec<_>>()
        };
        Self {
            meta: session.meta().clone(),
            calls: session.calls().clone(),
            server_requests: session.server_requests().clone(),
            streams: session.streams().iter().map(|(no, stream)| (*no, row(stream))).collect(),
            events: session.streams().iter().flat_map(events).collect(),
            state: session.state().clone(),
        }
    }

    pub(super) fn apply_changes(&mut self, changes: &Changes, session: &Session) {
        if changes.meta {
            self.meta = session.meta().clone();
        }
        copy(&changes.calls, session.calls(), &mut self.calls, Call::clone);
        copy(&changes.started, session.calls(), &mut self.calls, Call::clone);
        copy(
            &changes.server_requests,
            session.server_requests(),
            &mut self.server_requests,
            ServerRequest::clone,
        );
        copy(&changes.streams, session.streams(), &mut self.streams, row);
        copy(&changes.state, session.state(), &mut self.state, Box::clone);
        for appended in &changes.appended {
            let event = StoredEvent {
                seq: appended.seq,
                class: appended.class,
                size: appended.payload.len() as u32 + 64,
                payload: Some(appended.payload.clone()),
            };
            self.events.insert((appended.stream, appended.seq), event);
        }
        for dropped in &changes.dropped {
            assert!(self.events.remove(dropped).is_some(), "{dropped:?} was dropped twice");
        }
        self.events.retain(|(stream, _), _| self.streams.contains_key(stream));
    }

    pub(super) fn check(&self, session: &Session) {
        assert_eq!(*self, Self::of(session));
        let restored = self.restore(session);
        assert_eq!(restored.by_id, session.by_id);
        assert_eq!(restored.attached, session.attached);
        assert_eq!(restored.finished, session.finished);
        assert_eq!(restored.fully_delivered, session.fully_delivered);
        assert_eq!(restored.bytes, session.bytes);
        assert_eq!(restored.state_bytes, session.state_bytes);
        assert_eq!(restored.kept_answer_bytes, session.kept_answer_bytes);
        assert_eq!(restored.kept_request_bytes, session.kept_request_bytes);
    }

    pub(super) fn restore(&self, session: &Session) -> Session {
        let mut streams = self.streams.clone();
        for ((no, _), event) in &self.events {
            streams.get_mut(no).unwrap().events.push_back(event.clone());
        }
        let Self { meta, calls, server_requests, state, .. } = self.clone();
        Session::restore(Arc::clone(session.facts()), meta, calls, server_requests, streams, state)
    }
}
