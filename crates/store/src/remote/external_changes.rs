//! What the nodes of this process hold in a session, to detect changes that other processes made.
//!
//! A database says that a session has another version, but not what has changed. The difference
//! between what local nodes held before and what they hold now is what they must be notified of.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_session::{CallNo, Changes, ConnNo, NodeId, ServerRequestNo, Session, SessionId, StreamNo};

use crate::signal::SessionUpdate;

/// What local nodes hold in one session.
#[derive(Debug, Default)]
pub(crate) struct LocalHoldings {
    /// Open streams that a local connection reads.
    streams: BTreeMap<StreamNo, Reader>,
    calls: BTreeMap<CallNo, NodeId>,
    /// Server requests that a local node owns, and whether the store keeps an answer.
    server_requests: BTreeMap<ServerRequestNo, (NodeId, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reader {
    connection: ConnNo,
    /// The last event that local nodes were notified of.
    last_seq: u64,
}

/// Changes that other processes made and that concern local nodes.
#[derive(Debug, Default)]
pub(crate) struct ExternalChanges {
    grown: Vec<StreamNo>,
    ended: Vec<StreamNo>,
    superseded: Vec<(StreamNo, ConnNo)>,
    stopped: Vec<(CallNo, NodeId)>,
    withdrawn: Vec<(ServerRequestNo, NodeId)>,
    kept: Vec<(ServerRequestNo, NodeId)>,
    forwarded: Vec<(CallNo, NodeId)>,
}

impl ExternalChanges {
    /// Returns the changes as an update for the subscriber.
    pub(crate) fn update(&self, session: SessionId) -> SessionUpdate<'_> {
        SessionUpdate {
            session,
            appended: &[],
            grown: &self.grown,
            ended: &self.ended,
            superseded: &self.superseded,
            stopped: &self.stopped,
            withdrawn: &self.withdrawn,
            answers_stored: &self.kept,
            forwarded: &self.forwarded,
        }
    }
}

impl LocalHoldings {
    pub(crate) fn of(session: &Session, local_nodes: &[NodeId]) -> Self {
        let mut holdings = Self::default();
        if !local_nodes.is_empty() {
            session.streams().keys().for_each(|no| holdings.track_stream(session, *no, local_nodes));
            session.calls().keys().for_each(|no| holdings.track_call(session, *no, local_nodes));
            session
                .server_requests()
                .keys()
                .for_each(|no| holdings.track_server_request(session, *no, local_nodes));
        }
        holdings
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.calls.is_empty() && self.server_requests.is_empty()
    }

    /// Updates the holdings after a command of this process.
    pub(crate) fn track(&mut self, session: &Session, changes: &Changes, local_nodes: &[NodeId]) {
        changes.streams.iter().for_each(|no| self.track_stream(session, *no, local_nodes));
        changes.calls.iter().for_each(|no| self.track_call(session, *no, local_nodes));
        changes.server_requests.iter().for_each(|no| self.track_server_request(session, *no, local_nodes));
    }

    fn track_stream(&mut self, session: &Session, no: StreamNo, local_nodes: &[NodeId]) {
        let stream = session.streams().get(&no).filter(|stream| stream.is_open());
        match stream.and_then(|stream| Some((stream, stream.attached?))) {
            Some((stream, (connection, node))) if local_nodes.contains(&node) => {
                self.streams.insert(no, Reader { connection, last_seq: stream.last_seq() });
            }
            _ => drop(self.streams.remove(&no)),
        }
    }

    fn track_call(&mut self, session: &Session, no: CallNo, local_nodes: &[NodeId]) {
        match session.calls().get(&no) {
            Some(call) if local_nodes.contains(&call.owner) => drop(self.calls.insert(no, call.owner)),
            _ => drop(self.calls.remove(&no)),
        }
    }

    fn track_server_request(&mut self, session: &Session, no: ServerRequestNo, local_nodes: &[NodeId]) {
        match session.server_requests().get(&no) {
            Some(server_request) if local_nodes.contains(&server_request.owner) => {
                self.server_requests.insert(no, (server_request.owner, server_request.answer.is_some()));
            }
            _ => drop(self.server_requests.remove(&no)),
        }
    }

    /// Returns what has changed since these holdings were recorded. `session` is `None` if the
    /// session does not exist any more.
    pub(crate) fn compare(&self, session: Option<&Session>, local_nodes: &[NodeId]) -> ExternalChanges {
        let mut found = ExternalChanges::default();
        for (no, reader) in &self.streams {
            let Some(stream) = session.and_then(|session| session.streams().get(no)) else {
                found.ended.push(*no);
                continue;
            };
            if stream.last_seq() > reader.last_seq {
                found.grown.push(*no);
            }
            if let Some((connection, _)) = stream.attached
                && connection != reader.connection
            {
                found.superseded.push((*no, connection));
            }
            if !stream.is_open() {
                found.ended.push(*no);
            }
        }
        let calls: BTreeSet<CallNo> = session.into_iter().flat_map(|s| s.calls().keys().copied()).collect();
        let gone = self.calls.iter().filter(|(no, _)| !calls.contains(no));
        found.stopped.extend(gone.map(|(no, owner)| (*no, *owner)));
        for (no, call) in session.into_iter().flat_map(Session::calls) {
            if call.is_forwarded() && local_nodes.contains(&call.owner) && !self.calls.contains_key(no) {
                found.forwarded.push((*no, call.owner));
            }
        }
        for (no, (owner, was_kept)) in &self.server_requests {
            match session.and_then(|session| session.server_requests().get(no)) {
                None => found.withdrawn.push((*no, *owner)),
                Some(server_request) if server_request.answer.is_some() && !was_kept => {
                    found.kept.push((*no, *owner));
                }
                Some(_) => {}
            }
        }
        found
    }
}
