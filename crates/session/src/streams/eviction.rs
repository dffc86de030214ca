//! Eviction: drops events and removes finished streams when a stream, the session or the store is
//! full.

use crate::changes::Changes;
use crate::ids::StreamNo;
use crate::limits::Limits;
use crate::rows::{Class, ServerRequest, StoredEvent, Stream, StreamKind};
use crate::session::Session;
use crate::shared_usage::SharedUsage;

impl Session {
    /// Frees space for a message of this size. Returns false if the message must be refused or
    /// dropped. Then nothing is evicted.
    #[cold]
    pub(super) fn make_room(
        &mut self,
        no: StreamNo,
        class: Class,
        size: u64,
        limits: &Limits,
        changes: &mut Changes,
    ) -> bool {
        // A progress or log message evicts events of its own stream only.
        let excess = |bytes: u64| {
            if class == Class::Droppable { 0 } else { bytes.saturating_sub(limits.session_bytes) }
        };
        let streams = self.plan_stream_eviction(excess(self.bytes + size));
        let left = self.bytes + size - streams.freed_bytes;
        let is_open = |seq| {
            let waits = |server_request: &ServerRequest| {
                server_request.answer.is_none() && server_request.stream == no && server_request.seq == seq
            };
            self.server_requests.values().any(waits)
        };
        let Some(stream) = self.streams.get_mut(&no) else { return false };
        let events = plan_event_eviction(size, stream, is_open, excess(left), limits);
        let is_accepted = class >= Class::Withdrawal
            || events.as_ref().is_some_and(|plan| left - plan.freed_bytes <= limits.session_bytes);
        if !is_accepted {
            return false;
        }
        let EvictionPlan { freed_bytes, victims } = events.unwrap_or_default();
        for seq in victims {
            let at = stream.events.partition_point(|event| event.seq < seq);
            stream.events.remove(at);
            changes.dropped.push((no, seq));
        }
        stream.bytes -= freed_bytes;
        self.bytes -= freed_bytes;
        for no in streams.victims {
            self.remove_stream(StreamNo(no), changes);
        }
        true
    }

    /// Removes fully delivered streams, oldest first, until the limits hold. Returns the shared
    /// usage after that.
    pub(crate) fn evict_delivered_streams(
        &mut self,
        limits: &Limits,
        mut shared_usage: SharedUsage,
        changes: &mut Changes,
    ) -> SharedUsage {
        while let Some(&(_, no)) = self.fully_delivered.first()
            && (self.fully_delivered.len() > limits.delivered_streams
                || self.bytes > limits.session_bytes
                || shared_usage.is_nearly_full(limits))
        {
            let before = self.bytes;
            self.remove_stream(no, changes);
            shared_usage = shared_usage.minus(before - self.bytes);
        }
        shared_usage
    }

    /// Chooses fully delivered streams, oldest first, until `excess` bytes are free. If that is
    /// impossible, chooses all of them.
    fn plan_stream_eviction(&self, excess: u64) -> EvictionPlan {
        let mut plan = EvictionPlan::default();
        for (_, no) in &self.fully_delivered {
            if plan.freed_bytes >= excess {
                break;
            }
            plan.freed_bytes += self.streams.get(no).map_or(0, |stream| stream.bytes);
            plan.victims.push(no.0);
        }
        plan
    }
}

/// What to evict so that a message fits.
#[derive(Default)]
struct EvictionPlan {
    freed_bytes: u64,
    /// Sequence numbers of events, or numbers of streams, in the order of their eviction.
    victims: Vec<u64>,
}

/// Chooses events to drop so that `stream` can hold `size` more bytes. Returns `None` if that is
/// impossible.
///
/// Server requests that are no longer open are chosen first, because no reader needs them. They are
/// also dropped to free space for the whole session, as far as they suffice. Then follow the oldest
/// progress messages, log messages and withdrawals, and on a standalone stream the delivered
/// notifications. Only a client that resumes from an older position can miss a delivered event.
fn plan_event_eviction(
    size: u64,
    stream: &Stream,
    is_open: impl Fn(u64) -> bool,
    session_excess: u64,
    limits: &Limits,
) -> Option<EvictionPlan> {
    let stream_excess = (stream.bytes + size).saturating_sub(limits.stream_bytes);
    let mut plan = EvictionPlan::default();
    if stream_excess == 0 && session_excess == 0 {
        return Some(plan);
    }
    let is_closed_request = |event: &&StoredEvent| event.class == Class::ServerRequest && !is_open(event.seq);
    plan.choose(stream.events.iter().filter(is_closed_request), stream_excess.max(session_excess));
    let delivered = if stream.kind == StreamKind::Standalone { stream.delivered } else { 0 };
    let is_evictable = |event: &&StoredEvent| match event.class {
        Class::Droppable | Class::Withdrawal => true,
        Class::Notification => event.seq <= delivered,
        Class::ServerRequest | Class::Response => false,
    };
    plan.choose(stream.events.iter().filter(is_evictable), stream_excess);
    (plan.freed_bytes >= stream_excess).then_some(plan)
}

impl EvictionPlan {
    /// Adds events in their order, until `needed` bytes are free.
    fn choose<'a>(&mut self, mut events: impl Iterator<Item = &'a StoredEvent>, needed: u64) {
        while self.freed_bytes < needed
            && let Some(event) = events.next()
        {
            self.freed_bytes += u64::from(event.size);
            self.victims.push(event.seq);
        }
    }
}
