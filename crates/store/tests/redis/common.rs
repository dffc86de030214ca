//! A session to work with.

use std::time::Duration;

use bytes::Bytes;
use steadfast_session::command::{Append, Begin, Begun, Finish, Target};
use steadfast_session::{
    CallNo, Class, Facts, NodeId, Principal, Read, Rules, SessionId, Slice, Step, StreamNo, Time,
};
use steadfast_store::testing::server::RedisServer;
use steadfast_store::{Opened, RedisOptions, RedisStore, Store, StoreExt};
use steadfast_wire::Revision;

pub(crate) const NOW: Time = Time(1_000_000);
pub(crate) const ONE: NodeId = NodeId(7);
pub(crate) const OTHER: NodeId = NodeId(u64::MAX - 7);
pub(crate) const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;

pub(crate) fn id(n: u8) -> SessionId {
    SessionId::from_random([n; SessionId::BYTES])
}

pub(crate) fn options(server: &RedisServer, prefix: &str) -> RedisOptions {
    RedisOptions { prefix: prefix.to_owned(), ..RedisOptions::new(server.url()) }
}

pub(crate) fn open(options: RedisOptions) -> RedisStore {
    RedisStore::open(Rules::default(), options).expect("the store opens")
}

/// What a real client sends with `initialize`, more or less.
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
    Begin::here(owner, attempt, vec![i64::try_from(attempt).expect("a small number").into()])
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
    Append { target: Target::Standalone, class: Class::Notice, payload, fence: None }
}

pub(crate) async fn read(store: &impl Store, id: SessionId, stream: StreamNo) -> Slice {
    match store.read(id, stream, 0, u64::MAX).await {
        Ok(Read::Slice(slice)) => slice,
        other => panic!("{other:?}"),
    }
}

/// The texts of a stream's events.
pub(crate) async fn texts(store: &impl Store, id: SessionId, stream: StreamNo) -> Vec<String> {
    let entries = read(store, id, stream).await.entries;
    let payloads = entries.into_iter().map(|entry| entry.payload.expect("a store reads payloads"));
    payloads.map(|payload| String::from_utf8(payload.to_vec()).expect("text")).collect()
}

/// Waits until something is there.
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

/// The server of most tests, or the end of the test where there is none.
macro_rules! server_or_skip {
    () => {
        match steadfast_store::testing::server::RedisServer::shared() {
            Some(server) => server,
            None => return,
        }
    };
}
pub(crate) use server_or_skip;
