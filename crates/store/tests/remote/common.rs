//! Helpers for a session in the database of the test binary.

use std::time::Duration;

use bytes::Bytes;
use steadfast_session::command::{Append, Begin, Begun, Finish, Target};
use steadfast_session::{
    CallNo, Class, Facts, NodeId, Principal, Read, SessionId, Slice, Step, StreamNo, Time,
};
use steadfast_store::{Opened, Store, StoreExt};
use steadfast_wire::Revision;

pub(crate) const NOW: Time = Time(1_000_000);
pub(crate) const ONE: NodeId = NodeId(7);
pub(crate) const OTHER: NodeId = NodeId(u64::MAX - 7);
pub(crate) const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;

pub(crate) fn id(n: u8) -> SessionId {
    SessionId::from_random([n; SessionId::BYTES])
}

/// Typical `initialize` parameters of a client.
const INITIALIZE: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"example-client","title":"Example Client","version":"1.2.3"}}"#;

pub(crate) fn facts(id: SessionId) -> Facts {
    Facts {
        id,
        principal: Principal::anonymous(),
        revision: Revision::LATEST_LEGACY,
        initialize: Bytes::from_static(INITIALIZE.as_bytes()),
        opened_at: NOW,
    }
}

pub(crate) async fn open_session(store: &impl Store, n: u8) -> SessionId {
    let opened = store.open(facts(id(n))).await.expect("the store opens a session");
    assert!(matches!(opened, Opened::Opened(_)));
    id(n)
}

pub(crate) async fn run<S: Step + Send + 'static>(store: &impl Store, id: SessionId, step: S) -> S::Outcome {
    store.run(id, step, NOW).await.expect("the store answers")
}

pub(crate) fn begin(owner: NodeId, attempt: u64) -> Begin {
    Begin::local(owner, attempt, vec![i64::try_from(attempt).expect("a small number").into()])
}

pub(crate) async fn begin_call(
    store: &impl Store,
    id: SessionId,
    owner: NodeId,
    attempt: u64,
) -> (StreamNo, CallNo) {
    match run(store, id, begin(owner, attempt)).await {
        Begun::Begun { stream, first, .. } => (stream, first),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn finish(call: CallNo, text: &str) -> Finish {
    Finish { call, payload: Bytes::copy_from_slice(text.as_bytes()) }
}

pub(crate) fn message(text: &str) -> Append {
    let payload = Bytes::copy_from_slice(text.as_bytes());
    Append { target: Target::Standalone, class: Class::Notification, payload, fence: None }
}

pub(crate) async fn read(store: &impl Store, id: SessionId, stream: StreamNo) -> Slice {
    match store.read(id, stream, 0, u64::MAX).await {
        Ok(Read::Slice(slice)) => slice,
        other => panic!("{other:?}"),
    }
}

/// Returns the texts of a stream's events.
pub(crate) async fn texts(store: &impl Store, id: SessionId, stream: StreamNo) -> Vec<String> {
    let events = read(store, id, stream).await.events;
    let payloads = events.into_iter().map(|entry| entry.payload.expect("a store reads payloads"));
    payloads.map(|payload| String::from_utf8(payload.to_vec()).expect("text")).collect()
}

/// Waits until `look` returns something.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let start = tokio::time::Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{what} does not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the shared server, or ends the test if there is none on this machine.
macro_rules! server_or_skip {
    () => {
        match crate::database::Server::shared() {
            Some(server) => server,
            None => return,
        }
    };
}
pub(crate) use server_or_skip;
