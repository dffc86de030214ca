//! [`SignalRecorder`]: a subscriber that records every signal of a store.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use steadfast_session::changes::Appended;
use steadfast_session::command::Successor;
use steadfast_session::{
    CallNo, Changes, ConnNo, Facts, Lifecycle, NodeId, ServerRequestNo, SessionId, StreamNo,
};

use crate::signal::{SessionUpdate, Signal, Subscriber};

/// An owned copy of a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedSignal {
    SessionUpdate {
        appended: Vec<Appended>,
        grown: Vec<StreamNo>,
        ended: Vec<StreamNo>,
        superseded: Vec<(StreamNo, ConnNo)>,
        stopped: Vec<(CallNo, NodeId)>,
        withdrawn: Vec<(ServerRequestNo, NodeId)>,
        kept: Vec<(ServerRequestNo, NodeId)>,
        forwarded: Vec<(CallNo, NodeId)>,
    },
    Lifecycle(Lifecycle),
}

/// The signals of each session, in order. Stores may choose the order between sessions.
pub type RecordedSignals = BTreeMap<SessionId, Vec<RecordedSignal>>;

/// Adds the signals that a change must cause.
pub fn expect(signals: &mut RecordedSignals, session: SessionId, changes: &Changes) {
    let update = SessionUpdate::of(session, changes);
    if !update.is_empty() {
        signals.entry(session).or_default().push(owned(&update));
    }
    for event in &changes.lifecycle {
        signals.entry(session).or_default().push(RecordedSignal::Lifecycle(*event));
    }
}

fn owned(update: &SessionUpdate<'_>) -> RecordedSignal {
    RecordedSignal::SessionUpdate {
        appended: update.appended.to_vec(),
        grown: update.grown.to_vec(),
        ended: update.ended.to_vec(),
        superseded: update.superseded.to_vec(),
        stopped: update.stopped.to_vec(),
        withdrawn: update.withdrawn.to_vec(),
        kept: update.answers_stored.to_vec(),
        forwarded: update.forwarded.to_vec(),
    }
}

/// Returns the successor in a session: for some principals a node that has not joined, for others
/// none.
pub fn successor(facts: &Facts) -> Successor {
    if facts.principal.as_str().ends_with('0') { Successor::Node(SUCCESSOR) } else { Successor::None }
}

/// The node that takes over calls of dead nodes.
pub const SUCCESSOR: NodeId = NodeId(77);

/// A subscriber that records all signals.
#[derive(Debug, Default)]
pub struct SignalRecorder(Mutex<RecordedSignals>);

impl SignalRecorder {
    /// Returns the signals since the last call.
    pub fn take(&self) -> RecordedSignals {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for SignalRecorder {
    fn signal(&self, signal: Signal<'_>) {
        let (session, recorded) = match signal {
            Signal::SessionUpdate(update) => (update.session, owned(&update)),
            Signal::Lifecycle { facts, event } => (facts.id, RecordedSignal::Lifecycle(event)),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(session).or_default().push(recorded);
    }

    fn successor(&self, facts: &Facts) -> Successor {
        successor(facts)
    }
}
