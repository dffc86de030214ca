//! [`CachedSession`]: a copy of a session in memory. Turns the changes of commands into a commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::changes::Appended;
use steadfast_session::command::{Attached, Begun, Forwarded, NodeFailed, ServerRequestOpened};
use steadfast_session::{
    Changes, Class, Facts, Lifecycle, NodeId, Outcome, Session, SessionId, Stream, StreamKind, StreamNo, Time,
};

use super::codec;
use super::database::{EventKey, NewVersion, Snapshot, VersionStamp};
use crate::error::StoreError;

/// The size up to which the answer that ends a POST stream is stored in the row of the stream. A
/// plain call then leaves one row and no event.
const MAX_RESPONSE_IN_ROW: u32 = 768;

/// Rough estimates of the memory that an idle session and each of its streams take.
const SESSION_BYTES: u64 = 1024;
const STREAM_BYTES: u64 = 256;

/// The entries of a session in the indexes of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexEntries {
    /// When the session is swept next, at the latest.
    pub(crate) check_at: Time,
    /// Nodes whose presence in the session is recorded.
    pub(crate) present: Vec<NodeId>,
}

/// A copy of one version of a session.
#[derive(Debug)]
pub(crate) struct CachedSession {
    pub(crate) stamp: VersionStamp,
    pub(crate) session: Session,
    pub(crate) index_entries: IndexEntries,
    /// The events in the database, by stream. Small answers are not among them: they are in rows.
    stored_events: BTreeMap<StreamNo, BTreeMap<u64, EventKey>>,
}

impl CachedSession {
    /// Returns a new session that is not in the database yet.
    pub(crate) fn open(facts: Arc<Facts>, index_entries: IndexEntries) -> Self {
        let session = Session::open(facts);
        Self { stamp: VersionStamp::default(), session, index_entries, stored_events: BTreeMap::new() }
    }

    /// Builds a session from a snapshot. Fails with [`StoreError::Corrupt`] if a row is unreadable.
    pub(crate) fn restore(id: SessionId, mut snapshot: Snapshot) -> Result<Self, StoreError> {
        let mut stored_events: BTreeMap<StreamNo, BTreeMap<u64, EventKey>> = BTreeMap::new();
        for key in &snapshot.events {
            stored_events.entry(key.stream).or_default().insert(key.seq, *key);
        }
        let stamp = std::mem::take(&mut snapshot.stamp);
        let (session, index_entries) = codec::restore(id, snapshot)?;
        Ok(Self { stamp, session, index_entries, stored_events })
    }

    /// Returns an estimate of the memory that the copy takes.
    pub(crate) fn memory_size(&self) -> u64 {
        // Payloads count although they are not in memory: the session maintains this sum anyway,
        // and it is an upper bound.
        SESSION_BYTES
            + self.session.streams().len() as u64 * STREAM_BYTES
            + self.session.bytes()
            + self.session.state_bytes()
            + self.session.kept_answer_bytes()
            + self.session.kept_request_bytes()
    }

    pub(crate) fn first_version(&self, commit_name: u64) -> NewVersion {
        let put_rows = vec![
            (Bytes::from_static(codec::FACTS), codec::facts(self.session.facts())),
            (Bytes::from_static(codec::META), codec::meta(&self.session, &self.index_entries)),
        ];
        NewVersion { stamp: self.stamp.next(commit_name), put_rows, ..NewVersion::default() }
    }

    /// Returns what must be committed after these changes. `before` has the session's bytes and
    /// index entries before the changes.
    pub(crate) fn new_version(
        &mut self,
        changes: &[Changes],
        before: &(u64, IndexEntries),
        commit_name: u64,
    ) -> NewVersion {
        let is_end = |event: &Lifecycle| matches!(event, Lifecycle::Closed(_));
        let closes_session = changes.iter().flat_map(|one| &one.lifecycle).any(is_end);
        let mut next = NewVersion { closes_session, ..NewVersion::default() };
        for Appended { stream, seq, class, payload } in changes.iter().flat_map(|one| &one.appended) {
            self.append_event(*stream, *seq, *class, payload, &mut next);
        }
        for (stream, seq) in changes.iter().flat_map(|one| &one.dropped) {
            let stored = self.stored_events.get_mut(stream);
            next.delete_events.extend(stored.and_then(|events| events.remove(seq)));
        }
        self.write_streams(changes, &mut next);
        let calls = sorted(changes, |one| one.calls.iter().chain(&one.started));
        write_rows(&mut next, calls, |no| {
            (codec::name('c', no.0), self.session.calls().get(no).map(codec::call))
        });
        let server_requests = sorted(changes, |one| &one.server_requests);
        write_rows(&mut next, server_requests, |no| {
            (codec::name('a', no.0), self.session.server_requests().get(no).map(codec::server_request))
        });
        let state = sorted(changes, |one| &one.state);
        write_rows(&mut next, state, |key| {
            (codec::state_name(key), self.session.state().get(key).map(|value| codec::value(value)))
        });
        if changes.iter().any(|one| one.meta)
            || (self.session.held_bytes(), &self.index_entries) != (before.0, &before.1)
        {
            next.put_rows
                .push((Bytes::from_static(codec::META), codec::meta(&self.session, &self.index_entries)));
        }
        next.stamp = self.stamp.next(commit_name);
        next
    }

    fn append_event(&mut self, no: StreamNo, seq: u64, class: Class, payload: &Bytes, next: &mut NewVersion) {
        // An event that a later command of the group removed is not written.
        let Some(stream) = self.session.streams().get(&no) else { return };
        let Ok(at) = stream.events.binary_search_by_key(&seq, |entry| entry.seq) else { return };
        if is_stored_in_stream_row(stream, at) {
            return;
        }
        let key = EventKey { stream: no, seq, class, size: stream.events[at].size };
        self.session.drop_payload(no, seq);
        self.stored_events.entry(no).or_default().insert(seq, key);
        next.append_events.push((key, payload.clone()));
    }

    fn write_streams(&mut self, changes: &[Changes], next: &mut NewVersion) {
        for no in sorted(changes, |one| &one.streams) {
            let name = codec::name('s', no.0);
            match self.session.streams().get(&no) {
                Some(stream) => next.put_rows.push((name, codec::stream(stream))),
                None => {
                    next.delete_rows.push(name);
                    next.delete_events
                        .extend(self.stored_events.remove(&no).into_iter().flat_map(BTreeMap::into_values));
                }
            }
        }
    }
}

/// Returns true if an event is stored in the row of its stream. Only such events keep their payload
/// in memory.
fn is_stored_in_stream_row(stream: &Stream, at: usize) -> bool {
    let ends = !stream.is_open() && stream.kind != StreamKind::Standalone && at + 1 == stream.events.len();
    ends && stream.events[at].class == Class::Response && stream.events[at].size <= MAX_RESPONSE_IN_ROW
}

/// Returns the keys that changes name, without duplicates.
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

fn write_rows<T>(next: &mut NewVersion, keys: Vec<T>, row: impl Fn(&T) -> (Bytes, Option<Bytes>)) {
    for key in &keys {
        match row(key) {
            (name, Some(value)) => next.put_rows.push((name, value)),
            (name, None) => next.delete_rows.push(name),
        }
    }
}

/// Returns true if the nodes of `nodes_gaining_holdings` hold something in the session after this
/// outcome.
pub(crate) fn grants_holdings(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Begin(Begun::Begun { .. })
        | Outcome::Forward(Forwarded::Forwarded)
        | Outcome::OpenServerRequest(ServerRequestOpened::Opened { .. })
        | Outcome::Attach(Attached::Attached { .. }) => true,
        Outcome::FailNode(NodeFailed::Failed { reassigned, .. }) => *reassigned > 0,
        _ => false,
    }
}

/// Returns true if a node that was failed still holds calls in the session, which wait for the node
/// that reaps it.
pub(crate) fn has_remaining_holdings(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::FailNode(NodeFailed::Failed { kept, .. }) if *kept > 0)
}
