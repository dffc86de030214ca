//! The model of eviction: what must be dropped for a message, and what must not.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::super::fixture::OVERHEAD;
use super::model::{Expected, Model, ModelStream, withdrawn_by};
use crate::{Changes, Class, Limit, ServerRequestNo, StreamNo};

/// What is evicted for a message that is accepted.
#[derive(Debug, Default)]
pub(super) struct EvictionPlan {
    streams: Vec<StreamNo>,
    events: Vec<u64>,
}

impl ModelStream {
    /// Server requests that are no longer open are dropped first, if the stream or the whole
    /// session is full.
    fn is_closed_request(&self, seq: u64, open: &BTreeSet<u64>) -> bool {
        self.events[&seq].0 == Class::ServerRequest && !open.contains(&seq)
    }

    /// These events are dropped next, if the stream is full.
    fn is_evictable(&self, seq: u64) -> bool {
        match self.events[&seq].0 {
            Class::Droppable | Class::Withdrawal => true,
            Class::Notification => self.standalone && seq <= self.delivered,
            Class::ServerRequest | Class::Response => false,
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.kept.iter().map(|seq| self.size(*seq)).sum()
    }
}

impl Model {
    /// Returns the events of a stream that are open server requests.
    pub(super) fn open_requests(&self, no: StreamNo) -> BTreeSet<u64> {
        self.server_requests
            .values()
            .filter(|server_request| server_request.stream == no && server_request.is_open())
            .map(|server_request| server_request.seq)
            .collect()
    }

    /// Returns the limit of the whole store that a message would exceed, if the message can be
    /// dropped or refused.
    pub(super) fn exceeded_limit_for(&self, class: Class, payload: &Bytes) -> Option<Limit> {
        let size = payload.len() as u64 + OVERHEAD;
        self.shared_usage.plus(size).exceeded_limit(&self.rules.limits).filter(|_| class < Class::Withdrawal)
    }

    /// Returns what must be evicted for a message: the oldest candidates, and no more than
    /// necessary. Returns `None` if the message is refused or dropped.
    pub(super) fn plan_eviction(
        &self,
        no: StreamNo,
        class: Class,
        payload: &Bytes,
        open: &BTreeSet<u64>,
    ) -> Option<EvictionPlan> {
        if self.exceeded_limit_for(class, payload).is_some() {
            return None;
        }
        let limits = &self.rules.limits;
        let size = payload.len() as u64 + OVERHEAD;
        let mut session_bytes = self.held().map(|(_, stream)| stream.bytes()).sum::<u64>() + size;
        let mut plan = EvictionPlan::default();
        let droppable = class == Class::Droppable;
        let mut fully_delivered: Vec<_> =
            self.held().filter(|(_, stream)| stream.is_fully_delivered()).collect();
        fully_delivered.sort_by_key(|(no, stream)| (stream.ended, *no));
        for (no, stream) in fully_delivered {
            if session_bytes > limits.session_bytes && !droppable {
                session_bytes -= stream.bytes();
                plan.streams.push(no);
            }
        }
        let stream = &self.streams[&no];
        let mut stream_bytes = stream.bytes() + size;
        let closed_requests = stream.kept.iter().filter(|seq| stream.is_closed_request(**seq, open));
        let evictable = stream.kept.iter().filter(|seq| stream.is_evictable(**seq));
        for (seq, is_closed_request) in
            closed_requests.map(|seq| (seq, true)).chain(evictable.map(|seq| (seq, false)))
        {
            let frees_session = is_closed_request && session_bytes > limits.session_bytes && !droppable;
            if frees_session || stream_bytes > limits.stream_bytes {
                plan.events.push(*seq);
                stream_bytes -= stream.size(*seq);
                session_bytes -= stream.size(*seq);
            }
        }
        if stream_bytes > limits.stream_bytes {
            plan.events.clear();
        }
        let fits = stream_bytes <= limits.stream_bytes && session_bytes <= limits.session_bytes;
        (fits || class >= Class::Withdrawal).then_some(plan)
    }

    /// Checks the evictions of a command, message by message: each message may evict only what it
    /// needs itself.
    pub(super) fn observe_evictions(&mut self, changes: &Changes, expected: &Expected) {
        if let Some((no, class, payload)) = &expected.message {
            let accepted = changes.appended.iter().any(|event| event.payload == *payload);
            let open = self.open_requests_before(*no, expected, &BTreeSet::new());
            assert_eq!(accepted, self.plan_eviction(*no, *class, payload, &open).is_some());
        }
        let mut withdrawn = BTreeSet::new();
        let mut dropped = vec![];
        for event in &changes.appended {
            if event.class == Class::Withdrawal {
                withdrawn.extend(withdrawn_by(&event.payload));
            }
            let open = self.open_requests_before(event.stream, expected, &withdrawn);
            let plan = self.plan_eviction(event.stream, event.class, &event.payload, &open).unwrap();
            for no in plan.streams {
                self.streams.get_mut(&no).unwrap().gone = true;
            }
            let stream = self.streams.get_mut(&event.stream).unwrap();
            for seq in plan.events {
                stream.kept.remove(&seq);
                dropped.push((event.stream, seq));
            }
            stream.kept.insert(event.seq);
            stream.events.insert(event.seq, (event.class, event.payload.clone()));
        }
        assert_eq!(changes.dropped, dropped);
    }

    /// Returns the server requests that were open on a stream in the middle of a command, when
    /// those in `withdrawn` had been withdrawn. A server request that is about to be sent is not
    /// open yet.
    fn open_requests_before(
        &self,
        no: StreamNo,
        expected: &Expected,
        withdrawn: &BTreeSet<ServerRequestNo>,
    ) -> BTreeSet<u64> {
        let of_stream = self
            .server_requests
            .iter()
            .filter(|(_, server_request)| server_request.stream == no && server_request.stored.is_none());
        let open = of_stream.filter(|(no, server_request)| {
            let was_open = !server_request.over || expected.withdrawn.contains(no);
            was_open && !withdrawn.contains(no) && expected.opened != Some(**no)
        });
        open.map(|(_, server_request)| server_request.seq).collect()
    }
}
