//! The calls and streams of one session that this node works on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::{CallNo, ConnNo, StreamNo, Time};
use steadfast_wire::RequestId;
use tokio_util::sync::CancellationToken;

use crate::delivery::Tail;

/// Bounds the delivered streams that are remembered until a command reports them to the store.
pub(super) const MAX_DELIVERED: usize = 4096;

/// The calls and streams of one session that this node works on.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) tails: BTreeMap<StreamNo, (ConnNo, Arc<Tail>)>,
    pub(super) calls: BTreeMap<CallNo, RunningCall>,
    /// Forwarded calls that this node has accepted and that the store listed when this node last
    /// polled it.
    pub(super) known_forwarded: BTreeSet<CallNo>,
    /// Answers that the store did not accept. Their calls are still in flight; the sweeper retries.
    pub(super) unstored_answers: BTreeMap<CallNo, Bytes>,
    /// Streams that were delivered completely. The next begin command reports them to the store.
    pub(super) delivered_streams: Vec<StreamNo>,
    /// Begin commands in flight. The store may signal updates of their calls before this node knows
    /// the calls.
    pub(super) begins_in_flight: usize,
    pub(super) attaches_in_flight: usize,
    /// Begin and attach commands that were ever sent.
    pub(super) operations_started: u64,
    /// Updates of calls and streams that this node does not know yet.
    pub(super) early: EarlyUpdates,
}

/// A call that runs on this node.
#[derive(Clone, Debug)]
pub(crate) struct RunningCall {
    pub(crate) id: RequestId,
    pub(crate) stream: StreamNo,
    pub(crate) deadline: Time,
    /// The client can resume the stream and get the answer later, because the stream began with an
    /// event id.
    pub(crate) resumable: bool,
    /// Another node received the call and forwarded it to this node.
    pub(crate) is_forwarded: bool,
    /// Another node may run the call if this node stops.
    pub(crate) is_reassignable: bool,
    /// The call was forwarded to this node, and this node must not run it any more.
    pub(crate) is_route_outdated: bool,
    /// This node is draining and has given the call up. Another node will run it and answer it.
    pub(crate) is_released: bool,
    pub(crate) cancel: CancellationToken,
}

/// Updates that arrived before the begin command that they belong to had returned.
#[derive(Debug, Default)]
pub(super) struct EarlyUpdates {
    pub(super) streams: BTreeSet<StreamNo>,
    pub(super) stopped_calls: BTreeSet<CallNo>,
    /// There were more updates than the bound. Each new tail then reads the store first.
    pub(super) overflowed: bool,
}

/// Bounds the early updates. They are rare: a call has to be ended while its begin command is in
/// flight.
const MAX_EARLY_UPDATES: usize = 1024;

impl Work {
    /// Cancels and removes the call. Returns false if it does not run here.
    pub(super) fn stop(&mut self, call: CallNo) -> bool {
        self.unstored_answers.remove(&call);
        let running = self.calls.remove(&call);
        running.inspect(|running| running.cancel.cancel()).is_some()
    }

    pub(super) fn record_early(&mut self, stream: Option<StreamNo>, call: Option<CallNo>) {
        if self.begins_in_flight == 0 {
            return;
        }
        self.early.streams.extend(stream);
        self.early.stopped_calls.extend(call);
        if self.early.streams.len() + self.early.stopped_calls.len() > MAX_EARLY_UPDATES {
            self.early = EarlyUpdates { overflowed: true, ..EarlyUpdates::default() };
        }
    }

    pub(super) fn end_begin(&mut self) {
        self.begins_in_flight -= 1;
        if self.begins_in_flight == 0 {
            self.early = EarlyUpdates::default();
        }
    }
}
