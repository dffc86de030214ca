//! [`CachedSession`]: a session in the writer's memory, and which of its rows must be written.

use steadfast_session::{CallNo, Changes, NodeId, ServerRequestNo, Session, StreamNo, Time};

/// Rough estimates of the memory that an idle session and each of its streams take, beyond what the
/// session counts itself.
const SESSION_BYTES: u64 = 1024;
const STREAM_BYTES: u64 = 256;

#[derive(Debug)]
pub(super) struct CachedSession {
    /// The key of the session in the file.
    pub(super) key: i64,
    pub(super) session: Session,
    /// When the session is swept next, as in the file.
    pub(super) check_at: Option<Time>,
    /// Nodes whose presence in the session is in the file.
    pub(super) nodes: Vec<NodeId>,
    pub(super) dirty: Dirty,
    /// The size that the cache counts for the session.
    pub(super) counted_bytes: u64,
}

/// Rows that differ from the file. These are lists with duplicates, sorted when they are written: a
/// group of commands changes the few rows of a session many times, and each row is written once.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    /// True if the session is in the writer's list of sessions to write.
    pub(super) listed: bool,
    pub(super) meta: bool,
    pub(super) streams: Vec<StreamNo>,
    pub(super) calls: Vec<CallNo>,
    pub(super) started: Vec<CallNo>,
    pub(super) server_requests: Vec<ServerRequestNo>,
    pub(super) state: Vec<Box<str>>,
}

impl CachedSession {
    pub(super) fn new(key: i64, session: Session, check_at: Option<Time>) -> Self {
        Self { key, session, check_at, nodes: Vec::new(), dirty: Dirty::default(), counted_bytes: 0 }
    }

    pub(super) fn memory_size(&self) -> u64 {
        let streams = self.session.streams().len() as u64;
        // Payloads count although they are not in memory: the session maintains this sum anyway,
        // and it is an upper bound.
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
        self.server_requests.extend_from_slice(&changes.server_requests);
        self.state.extend_from_slice(&changes.state);
    }
}
