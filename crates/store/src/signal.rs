//! Wake-ups: how a node hears that a session it serves has changed.

use std::sync::{Arc, OnceLock};

use steadfast_session::changes::Appended;
use steadfast_session::command::Heir;
use steadfast_session::{AskNo, CallNo, Changes, ConnNo, Facts, Lifecycle, NodeId, SessionId, StreamNo};

/// Something that a node may have to act on. A lost signal may delay, never lose: everything but
/// [`Signal::Lifecycle`] can also be found by reading.
#[derive(Debug)]
pub enum Signal<'a> {
    /// Streams of a session have news, in the order of the log.
    News(News<'a>),
    /// A step in a session's life, reported by the process whose command caused it.
    Lifecycle { facts: &'a Arc<Facts>, event: Lifecycle },
}

/// What one command changed that readers and runners must know.
#[derive(Clone, Copy, Debug)]
pub struct News<'a> {
    pub session: SessionId,
    pub appended: &'a [Appended],
    /// Streams that have more events than were signalled: they are to be read from the store.
    pub grown: &'a [StreamNo],
    pub ended: &'a [StreamNo],
    pub superseded: &'a [(StreamNo, ConnNo)],
    pub stopped: &'a [(CallNo, NodeId)],
    pub withdrawn: &'a [(AskNo, NodeId)],
    /// Asks whose answer waits for its node to collect it.
    pub kept: &'a [(AskNo, NodeId)],
    /// Calls that a node has to run although they did not come to it. It may never have heard of the session.
    pub errands: &'a [(CallNo, NodeId)],
}

impl<'a> News<'a> {
    pub(crate) fn of(session: SessionId, changes: &'a Changes) -> Self {
        Self {
            session,
            appended: &changes.appended,
            grown: &[],
            ended: &changes.ended,
            superseded: &changes.superseded,
            stopped: &changes.stopped,
            withdrawn: &changes.withdrawn,
            kept: &changes.kept,
            errands: &changes.errands,
        }
    }

    /// Calls that were found, and nothing else.
    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn of_errands(session: SessionId, errands: &'a [(CallNo, NodeId)]) -> Self {
        Self {
            session,
            appended: &[],
            grown: &[],
            ended: &[],
            superseded: &[],
            stopped: &[],
            withdrawn: &[],
            kept: &[],
            errands,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.appended.is_empty()
            && self.grown.is_empty()
            && self.ended.is_empty()
            && self.superseded.is_empty()
            && self.stopped.is_empty()
            && self.withdrawn.is_empty()
            && self.kept.is_empty()
            && self.errands.is_empty()
    }
}

/// Whoever listens. Called after the change is committed, in commit order per session, possibly under a lock of
/// the store: it must be quick and must not call the store.
pub trait Subscriber: Send + Sync {
    fn signal(&self, signal: Signal<'_>);

    /// Who takes over the calls of a session that a dead node has left and that may be done again. Asked under the same
    /// conditions.
    fn heir(&self, facts: &Facts) -> Heir;
}

/// The one place a store reports to.
#[derive(Default)]
pub(crate) struct Outlet(OnceLock<Arc<dyn Subscriber>>);

impl Outlet {
    /// The first subscriber stays; a store serves one node.
    pub(crate) fn set(&self, subscriber: Arc<dyn Subscriber>) {
        let _ = self.0.set(subscriber);
    }

    pub(crate) fn heir(&self, facts: &Facts) -> Heir {
        self.0.get().map_or(Heir::Nobody, |subscriber| subscriber.heir(facts))
    }

    pub(crate) fn publish(&self, facts: &Arc<Facts>, changes: &Changes) {
        self.publish_news(facts, changes);
        let Some(subscriber) = self.0.get() else { return };
        for event in &changes.lifecycle {
            subscriber.signal(Signal::Lifecycle { facts, event: *event });
        }
    }

    /// Steps in the life of a session are for whoever caused them alone.
    pub(crate) fn publish_news(&self, facts: &Arc<Facts>, changes: &Changes) {
        self.publish_found(News::of(facts.id, changes));
    }

    /// What others have done and was found by reading.
    pub(crate) fn publish_found(&self, news: News<'_>) {
        let Some(subscriber) = self.0.get() else { return };
        if !news.is_empty() {
            subscriber.signal(Signal::News(news));
        }
    }
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outlet")
    }
}
