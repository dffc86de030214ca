//! Signals: how a store notifies a node of changes to the sessions that the node serves.

use std::sync::{Arc, OnceLock};

use steadfast_session::changes::Appended;
use steadfast_session::command::Successor;
use steadfast_session::{
    CallNo, Changes, ConnNo, Facts, Lifecycle, NodeId, ServerRequestNo, SessionId, StreamNo,
};

/// A change that a node may have to act on.
///
/// A [`Signal::SessionUpdate`] is a hint: if it is lost, the node finds the change when it polls
/// the store. A [`Signal::Lifecycle`] is sent only once and cannot be found by polling.
#[derive(Debug)]
pub enum Signal<'a> {
    /// Streams, calls or server requests of a session changed. Updates of one session arrive in
    /// commit order.
    SessionUpdate(SessionUpdate<'a>),
    /// A session opened, closed, or changed state. Only the process whose command caused the change
    /// receives this.
    Lifecycle { facts: &'a Arc<Facts>, event: Lifecycle },
}

/// The changes of one commit that concern readers of streams and nodes that run calls.
#[derive(Clone, Copy, Debug)]
pub struct SessionUpdate<'a> {
    pub session: SessionId,
    /// Events that were appended, with their payloads.
    pub appended: &'a [Appended],
    /// Streams with new events that are not in `appended`. Readers must read them from the store.
    pub grown: &'a [StreamNo],
    /// Streams that have ended.
    pub ended: &'a [StreamNo],
    /// Streams whose reader was replaced, with the new connection.
    pub superseded: &'a [(StreamNo, ConnNo)],
    /// Calls that have ended, with the node that owned them. The node must stop running them.
    pub stopped: &'a [(CallNo, NodeId)],
    /// Server requests that were withdrawn, with the node that owned them.
    pub withdrawn: &'a [(ServerRequestNo, NodeId)],
    /// Server requests whose answer the store keeps until the owning node collects it.
    pub answers_stored: &'a [(ServerRequestNo, NodeId)],
    /// Calls that were forwarded or reassigned, with the node that must run them. The node may not
    /// know the session.
    pub forwarded: &'a [(CallNo, NodeId)],
}

impl<'a> SessionUpdate<'a> {
    pub(crate) fn of(session: SessionId, changes: &'a Changes) -> Self {
        Self {
            session,
            appended: &changes.appended,
            grown: &[],
            ended: &changes.ended,
            superseded: &changes.superseded,
            stopped: &changes.stopped,
            withdrawn: &changes.withdrawn,
            answers_stored: &changes.answers_stored,
            forwarded: &changes.forwarded,
        }
    }

    /// Returns an update that contains only forwarded calls.
    #[cfg(feature = "sqlite")]
    pub(crate) fn of_forwarded_calls(session: SessionId, forwarded: &'a [(CallNo, NodeId)]) -> Self {
        Self {
            session,
            appended: &[],
            grown: &[],
            ended: &[],
            superseded: &[],
            stopped: &[],
            withdrawn: &[],
            answers_stored: &[],
            forwarded,
        }
    }

    /// Returns true if the update contains no change.
    pub fn is_empty(&self) -> bool {
        self.appended.is_empty()
            && self.grown.is_empty()
            && self.ended.is_empty()
            && self.superseded.is_empty()
            && self.stopped.is_empty()
            && self.withdrawn.is_empty()
            && self.answers_stored.is_empty()
            && self.forwarded.is_empty()
    }
}

/// Receives the signals of a store. The engine of a node implements this.
///
/// The store calls a subscriber after the change is committed, in commit order for each session. It
/// may hold an internal lock during the call. A subscriber must therefore return quickly and must
/// not call the store.
pub trait Subscriber: Send + Sync {
    /// Handles one signal.
    fn signal(&self, signal: Signal<'_>);

    /// Returns the node that takes over the reassignable calls of a dead node in this session. The
    /// store calls this while it reaps the dead node.
    fn successor(&self, facts: &Facts) -> Successor;
}

/// Passes signals to the subscriber of a store, once there is one.
#[derive(Default)]
pub(crate) struct SignalSink(OnceLock<Arc<dyn Subscriber>>);

impl SignalSink {
    /// Sets the subscriber. A store serves one node, so the first subscriber stays.
    pub(crate) fn set(&self, subscriber: Arc<dyn Subscriber>) {
        let _ = self.0.set(subscriber);
    }

    /// Asks the subscriber for the successor. Without a subscriber there is no successor.
    pub(crate) fn successor(&self, facts: &Facts) -> Successor {
        self.0.get().map_or(Successor::None, |subscriber| subscriber.successor(facts))
    }

    /// Signals the update and the lifecycle events of a commit of this process.
    pub(crate) fn publish(&self, facts: &Arc<Facts>, changes: &Changes) {
        self.publish_update(facts, changes);
        let Some(subscriber) = self.0.get() else { return };
        for event in &changes.lifecycle {
            subscriber.signal(Signal::Lifecycle { facts, event: *event });
        }
    }

    /// Signals the update of a commit without its lifecycle events, which only the node that caused
    /// them receives.
    pub(crate) fn publish_update(&self, facts: &Arc<Facts>, changes: &Changes) {
        self.signal_update(SessionUpdate::of(facts.id, changes));
    }

    pub(crate) fn signal_update(&self, update: SessionUpdate<'_>) {
        let Some(subscriber) = self.0.get() else { return };
        if !update.is_empty() {
            subscriber.signal(Signal::SessionUpdate(update));
        }
    }
}

impl std::fmt::Debug for SignalSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignalSink")
    }
}
