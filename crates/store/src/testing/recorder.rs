//! Remembers every signal of a store.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use steadfast_session::changes::Appended;
use steadfast_session::command::Heir;
use steadfast_session::{AskNo, CallNo, Changes, ConnNo, Facts, Lifecycle, NodeId, SessionId, StreamNo};

use crate::signal::{News, Signal, Subscriber};

/// A signal, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    News {
        appended: Vec<Appended>,
        grown: Vec<StreamNo>,
        ended: Vec<StreamNo>,
        superseded: Vec<(StreamNo, ConnNo)>,
        stopped: Vec<(CallNo, NodeId)>,
        withdrawn: Vec<(AskNo, NodeId)>,
        kept: Vec<(AskNo, NodeId)>,
        errands: Vec<(CallNo, NodeId)>,
    },
    Lifecycle(Lifecycle),
}

/// What was heard of each session, in order. The order between sessions is the store's own affair.
pub type Heards = BTreeMap<SessionId, Vec<Heard>>;

/// Adds what a change must make heard.
pub fn expect(heards: &mut Heards, session: SessionId, changes: &Changes) {
    let news = News::of(session, changes);
    if !news.is_empty() {
        heards.entry(session).or_default().push(owned(&news));
    }
    for event in &changes.lifecycle {
        heards.entry(session).or_default().push(Heard::Lifecycle(*event));
    }
}

fn owned(news: &News<'_>) -> Heard {
    Heard::News {
        appended: news.appended.to_vec(),
        grown: news.grown.to_vec(),
        ended: news.ended.to_vec(),
        superseded: news.superseded.to_vec(),
        stopped: news.stopped.to_vec(),
        withdrawn: news.withdrawn.to_vec(),
        kept: news.kept.to_vec(),
        errands: news.errands.to_vec(),
    }
}

/// Who inherits in a session: a node that nobody has heard of, or nobody.
pub fn heir(facts: &Facts) -> Heir {
    if facts.principal.as_str().ends_with('0') { Heir::Node(HEIR) } else { Heir::Nobody }
}

/// A node that inherits.
pub const HEIR: NodeId = NodeId(77);

/// A subscriber that writes everything down.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Heards>);

impl Recorder {
    /// What was heard since the last time.
    pub fn take(&self) -> Heards {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for Recorder {
    fn signal(&self, signal: Signal<'_>) {
        let (session, heard) = match signal {
            Signal::News(news) => (news.session, owned(&news)),
            Signal::Lifecycle { facts, event } => (facts.id, Heard::Lifecycle(event)),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(session).or_default().push(heard);
    }

    fn heir(&self, facts: &Facts) -> Heir {
        heir(facts)
    }
}
