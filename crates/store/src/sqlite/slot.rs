//! A session in the writer's hands, and what of it is not in the file yet.

use steadfast_session::{AskNo, CallNo, Changes, NodeId, Session, StreamNo, Time};

/// What an idle session, and each of its streams, costs in memory beyond what it counts itself. Rough.
const SESSION_BYTES: u64 = 1024;
const STREAM_BYTES: u64 = 256;

#[derive(Debug)]
pub(super) struct Slot {
    /// Its key in the file.
    pub(super) key: i64,
    pub(super) session: Session,
    /// Where it stands in the agenda, in the file.
    pub(super) check_at: Option<Time>,
    /// Nodes whose presence is in the file for certain.
    pub(super) nodes: Vec<NodeId>,
    pub(super) dirty: Dirty,
    /// What it counts for in the cache.
    pub(super) weight: u64,
}

/// Rows that differ from the file. Kept as lists, with repetitions, and sorted when they are written: a group of
/// commands names a session's few rows many times and writes each once.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    /// Whether the session is on the list of those to be written.
    pub(super) listed: bool,
    pub(super) meta: bool,
    pub(super) streams: Vec<StreamNo>,
    pub(super) calls: Vec<CallNo>,
    pub(super) started: Vec<CallNo>,
    pub(super) asks: Vec<AskNo>,
    pub(super) state: Vec<Box<str>>,
}

impl Slot {
    pub(super) fn new(key: i64, session: Session, check_at: Option<Time>) -> Self {
        Self { key, session, check_at, nodes: Vec::new(), dirty: Dirty::default(), weight: 0 }
    }

    pub(super) fn weigh(&self) -> u64 {
        let streams = self.session.streams().len() as u64;
        // Payloads are shed, yet they count: the sum is an upper bound, and free.
        SESSION_BYTES
            + streams * STREAM_BYTES
            + self.session.bytes()
            + self.session.state_bytes()
            + self.session.kept_answer_bytes()
            + self.session.kept_request_bytes()
    }
}

impl Dirty {
    pub(super) fn add(&mut self, changes: &Changes) {
        self.meta |= changes.meta;
        self.streams.extend_from_slice(&changes.streams);
        self.calls.extend_from_slice(&changes.calls);
        self.started.extend_from_slice(&changes.started);
        self.asks.extend_from_slice(&changes.asks);
        self.state.extend_from_slice(&changes.state);
    }
}
