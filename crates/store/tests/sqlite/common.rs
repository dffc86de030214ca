//! Helpers for a session in a file.

use std::path::Path;

use bytes::Bytes;
use steadfast_session::command::{Append, Begin, Begun, Target};
use steadfast_session::{
    CallNo, Class, Facts, NodeId, Principal, Read, Rules, SessionId, Slice, Step, StreamNo, Time,
};
use steadfast_store::{Opened, SqliteOptions, SqliteStore, Store, StoreError, StoreExt};
use steadfast_wire::Revision;

pub(crate) const NOW: Time = Time(1_000_000);
pub(crate) const NODE: NodeId = NodeId(7);

pub(crate) fn id(n: u8) -> SessionId {
    SessionId::from_random([n; SessionId::BYTES])
}

pub(crate) fn open(file: &Path) -> SqliteStore {
    try_open(file).expect("the store opens")
}

pub(crate) fn try_open(file: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(file, Rules::default(), SqliteOptions::default())
}

pub(crate) async fn open_session(store: &impl Store, n: u8) -> SessionId {
    let facts = Facts {
        id: id(n),
        principal: Principal::anonymous(),
        revision: Revision::LATEST_LEGACY,
        initialize: Bytes::from_static(b"{}"),
        opened_at: NOW,
    };
    let opened = store.open(facts).await.expect("the store opens a session");
    assert!(matches!(opened, Opened::Opened(_)));
    id(n)
}

pub(crate) async fn run<S: Step + Send + 'static>(
    store: &impl Store,
    session: SessionId,
    step: S,
) -> S::Outcome {
    store.run(session, step, NOW).await.expect("the store answers")
}

pub(crate) fn begin(attempt: u64) -> Begin {
    Begin::local(NODE, attempt, vec![i64::try_from(attempt).expect("a small number").into()])
}

pub(crate) async fn begin_call(store: &impl Store, session: SessionId, attempt: u64) -> (StreamNo, CallNo) {
    match run(store, session, begin(attempt)).await {
        Begun::Begun { stream, first, .. } => (stream, first),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn message(text: &str) -> Append {
    let payload = Bytes::copy_from_slice(text.as_bytes());
    Append { target: Target::Standalone, class: Class::Notification, payload, fence: None }
}

pub(crate) async fn read(store: &impl Store, session: SessionId, stream: StreamNo) -> Slice {
    match store.read(session, stream, 0, u64::MAX).await {
        Ok(Read::Slice(slice)) => slice,
        other => panic!("{other:?}"),
    }
}

/// Returns the text of the only event of a stream.
pub(crate) async fn only_event(store: &impl Store, session: SessionId, stream: StreamNo) -> String {
    let slice = read(store, session, stream).await;
    assert_eq!(slice.events.len(), 1, "{slice:?}");
    let payload = slice.events[0].payload.clone().expect("a store reads payloads");
    String::from_utf8(payload.to_vec()).expect("text")
}
