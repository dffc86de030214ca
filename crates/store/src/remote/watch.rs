//! What this process holds of a session, so that changes that others made can be told to whom they concern.
//!
//! A database says that a session has another version, not what has happened. The difference between what nodes of this
//! process held and what they hold now is what they have to hear of.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_session::{AskNo, CallNo, Changes, ConnNo, NodeId, Session, SessionId, StreamNo};

use crate::signal::News;

#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Streams that a connection here reads: which, and up to what event anybody here has heard of them.
    streams: BTreeMap<StreamNo, Reader>,
    calls: BTreeMap<CallNo, NodeId>,
    /// And whether an answer is kept for it.
    asks: BTreeMap<AskNo, (NodeId, bool)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reader {
    connection: ConnNo,
    last_seq: u64,
}

/// What others have done, as far as it concerns nodes of this process.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    grown: Vec<StreamNo>,
    ended: Vec<StreamNo>,
    superseded: Vec<(StreamNo, ConnNo)>,
    stopped: Vec<(CallNo, NodeId)>,
    withdrawn: Vec<(AskNo, NodeId)>,
    kept: Vec<(AskNo, NodeId)>,
    errands: Vec<(CallNo, NodeId)>,
}

impl Difference {
    pub(crate) fn news(&self, session: SessionId) -> News<'_> {
        News {
            session,
            appended: &[],
            grown: &self.grown,
            ended: &self.ended,
            superseded: &self.superseded,
            stopped: &self.stopped,
            withdrawn: &self.withdrawn,
            kept: &self.kept,
            errands: &self.errands,
        }
    }
}

impl Watch {
    pub(crate) fn of(session: &Session, own: &[NodeId]) -> Self {
        let mut watch = Self::default();
        if !own.is_empty() {
            session.streams().keys().for_each(|no| watch.see_stream(session, *no, own));
            session.calls().keys().for_each(|no| watch.see_call(session, *no, own));
            session.asks().keys().for_each(|no| watch.see_ask(session, *no, own));
        }
        watch
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.calls.is_empty() && self.asks.is_empty()
    }

    /// Follows a change that was made here.
    pub(crate) fn follow(&mut self, session: &Session, changes: &Changes, own: &[NodeId]) {
        changes.streams.iter().for_each(|no| self.see_stream(session, *no, own));
        changes.calls.iter().for_each(|no| self.see_call(session, *no, own));
        changes.asks.iter().for_each(|no| self.see_ask(session, *no, own));
    }

    fn see_stream(&mut self, session: &Session, no: StreamNo, own: &[NodeId]) {
        let stream = session.streams().get(&no).filter(|stream| stream.is_open());
        match stream.and_then(|stream| Some((stream, stream.attached?))) {
            Some((stream, (connection, node))) if own.contains(&node) => {
                self.streams.insert(no, Reader { connection, last_seq: stream.last_seq() });
            }
            _ => drop(self.streams.remove(&no)),
        }
    }

    fn see_call(&mut self, session: &Session, no: CallNo, own: &[NodeId]) {
        match session.calls().get(&no) {
            Some(call) if own.contains(&call.owner) => drop(self.calls.insert(no, call.owner)),
            _ => drop(self.calls.remove(&no)),
        }
    }

    fn see_ask(&mut self, session: &Session, no: AskNo, own: &[NodeId]) {
        match session.asks().get(&no) {
            Some(ask) if own.contains(&ask.owner) => {
                self.asks.insert(no, (ask.owner, ask.answer.is_some()));
            }
            _ => drop(self.asks.remove(&no)),
        }
    }

    /// What has changed since. `None` for a session that is gone.
    pub(crate) fn difference(&self, session: Option<&Session>, own: &[NodeId]) -> Difference {
        let mut found = Difference::default();
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
            if call.is_errand() && own.contains(&call.owner) && !self.calls.contains_key(no) {
                found.errands.push((*no, call.owner));
            }
        }
        for (no, (owner, was_kept)) in &self.asks {
            match session.and_then(|session| session.asks().get(no)) {
                None => found.withdrawn.push((*no, *owner)),
                Some(ask) if ask.answer.is_some() && !was_kept => found.kept.push((*no, *owner)),
                Some(_) => {}
            }
        }
        found
    }
}
