//! A session in memory, and how a group of commands on it becomes one commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::changes::Appended;
use steadfast_session::command::{AskOpened, Attached, Begun, NodeFailed, Passed};
use steadfast_session::{
    Changes, Class, Facts, Lifecycle, NodeId, Outcome, Session, SessionId, Stream, StreamKind, StreamNo, Time,
};

use super::backing::{EventKey, Next, Snapshot, Stamp};
use super::codec;
use crate::error::StoreError;

/// The size up to which an answer is kept in its stream's row: a plain call then leaves one row and no event.
const SMALL_ANSWER: u32 = 768;

/// What an idle session, and each of its streams and events, costs in memory. Rough.
const SESSION_BYTES: u64 = 1024;
const STREAM_BYTES: u64 = 256;

/// Where a session stands in the lists beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// No later than then somebody looks at it.
    pub(crate) check_at: Time,
    /// Nodes that may hold something of it, and are known to.
    pub(crate) present: Vec<NodeId>,
}

/// A session as of one version.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) stamp: Stamp,
    pub(crate) session: Session,
    pub(crate) standing: Standing,
    /// Events that are in the database, by stream: all but answers in rows.
    logged: BTreeMap<StreamNo, BTreeMap<u64, EventKey>>,
}

impl Slot {
    /// A session that is not in the database yet.
    pub(crate) fn open(facts: Arc<Facts>, standing: Standing) -> Self {
        let session = Session::open(facts);
        Self { stamp: Stamp::default(), session, standing, logged: BTreeMap::new() }
    }

    pub(crate) fn restore(id: SessionId, mut snapshot: Snapshot) -> Result<Self, StoreError> {
        let mut logged: BTreeMap<StreamNo, BTreeMap<u64, EventKey>> = BTreeMap::new();
        for key in &snapshot.events {
            logged.entry(key.stream).or_default().insert(key.seq, *key);
        }
        let stamp = std::mem::take(&mut snapshot.stamp);
        let (session, standing) = codec::restore(id, snapshot)?;
        Ok(Self { stamp, session, standing, logged })
    }

    pub(crate) fn weigh(&self) -> u64 {
        // Payloads are not in memory, yet they count: the sum is an upper bound, and free.
        SESSION_BYTES
            + self.session.streams().len() as u64 * STREAM_BYTES
            + self.session.bytes()
            + self.session.state_bytes()
            + self.session.kept_answer_bytes()
            + self.session.kept_request_bytes()
    }

    /// The first commit: the session as it was opened.
    pub(crate) fn first(&self, attempt: u64) -> Next {
        let put = vec![
            (Bytes::from_static(codec::FACTS), codec::facts(self.session.facts())),
            (Bytes::from_static(codec::META), codec::meta(&self.session, &self.standing)),
        ];
        Next { stamp: self.stamp.next(attempt), put, ..Next::default() }
    }

    /// What the database must be told after these changes. `before` is what the session held and where it stood.
    pub(crate) fn collect(&mut self, changes: &[Changes], before: &(u64, Standing), attempt: u64) -> Next {
        let is_end = |event: &Lifecycle| matches!(event, Lifecycle::Closed(_));
        let closes = changes.iter().flat_map(|one| &one.lifecycle).any(is_end);
        let mut next = Next { closes, ..Next::default() };
        for Appended { stream, seq, class, payload } in changes.iter().flat_map(|one| &one.appended) {
            self.log(*stream, *seq, *class, payload, &mut next);
        }
        for (stream, seq) in changes.iter().flat_map(|one| &one.dropped) {
            let logged = self.logged.get_mut(stream);
            next.forget.extend(logged.and_then(|events| events.remove(seq)));
        }
        self.streams(changes, &mut next);
        let calls = sorted(changes, |one| one.calls.iter().chain(&one.started));
        rows(&mut next, calls, |no| (codec::name('c', no.0), self.session.calls().get(no).map(codec::call)));
        let asks = sorted(changes, |one| &one.asks);
        rows(&mut next, asks, |no| (codec::name('a', no.0), self.session.asks().get(no).map(codec::ask)));
        let state = sorted(changes, |one| &one.state);
        rows(&mut next, state, |key| {
            (codec::state_name(key), self.session.state().get(key).map(|value| codec::value(value)))
        });
        if changes.iter().any(|one| one.meta)
            || (self.session.held_bytes(), &self.standing) != (before.0, &before.1)
        {
            next.put.push((Bytes::from_static(codec::META), codec::meta(&self.session, &self.standing)));
        }
        next.stamp = self.stamp.next(attempt);
        next
    }

    fn log(&mut self, no: StreamNo, seq: u64, class: Class, payload: &Bytes, next: &mut Next) {
        // An event that left again within its own group never reaches the database.
        let Some(stream) = self.session.streams().get(&no) else { return };
        let Ok(at) = stream.entries.binary_search_by_key(&seq, |entry| entry.seq) else { return };
        if is_small_answer(stream, at) {
            return;
        }
        let key = EventKey { stream: no, seq, class, size: stream.entries[at].size };
        self.session.shed_payload(no, seq);
        self.logged.entry(no).or_default().insert(seq, key);
        next.append.push((key, payload.clone()));
    }

    fn streams(&mut self, changes: &[Changes], next: &mut Next) {
        for no in sorted(changes, |one| &one.streams) {
            let name = codec::name('s', no.0);
            match self.session.streams().get(&no) {
                Some(stream) => next.put.push((name, codec::stream(stream))),
                None => {
                    next.drop.push(name);
                    next.forget.extend(self.logged.remove(&no).into_iter().flat_map(BTreeMap::into_values));
                }
            }
        }
    }
}

/// Whether an event is written with its stream's row. It is the only kind that keeps its payload in memory.
fn is_small_answer(stream: &Stream, at: usize) -> bool {
    let ends = !stream.is_open() && stream.kind != StreamKind::Standalone && at + 1 == stream.entries.len();
    ends && stream.entries[at].class == Class::Response && stream.entries[at].size <= SMALL_ANSWER
}

fn sorted<'a, T, I>(changes: &'a [Changes], of: impl Fn(&'a Changes) -> I) -> Vec<T>
where
    T: Ord + Clone + 'a,
    I: IntoIterator<Item = &'a T>,
{
    let mut all: Vec<T> = changes.iter().flat_map(of).cloned().collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn rows<T>(next: &mut Next, keys: Vec<T>, row: impl Fn(&T) -> (Bytes, Option<Bytes>)) {
    for key in &keys {
        match row(key) {
            (name, Some(value)) => next.put.push((name, value)),
            (name, None) => next.drop.push(name),
        }
    }
}

/// Whether those who want to hold something of the session by a command do so after it.
pub(crate) fn holds(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Begin(Begun::Begun { .. })
        | Outcome::Pass(Passed::Passed)
        | Outcome::OpenAsk(AskOpened::Opened { .. })
        | Outcome::Attach(Attached::Attached { .. }) => true,
        Outcome::FailNode(NodeFailed::Failed { handed, .. }) => *handed > 0,
        _ => false,
    }
}

/// Whether a node that was to be freed of a session still has something there.
pub(crate) fn leaves_something(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::FailNode(NodeFailed::Failed { left, .. }) if *left > 0)
}
