//! The memory store passes the contract. Further tests cover several handles and limits.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::{Answer, Append, Close, OpenServerRequest, Target};
use steadfast_session::{
    Class, CloseReason, Facts, Lifecycle, Limit, Limits, NodeId, Principal, Rules, ServerRequestNo,
    SessionId, Time,
};
use steadfast_store::testing::StoreFixture;
use steadfast_store::testing::signal_recorder::{RecordedSignal, SignalRecorder};
use steadfast_store::{MemoryStore, Opened, Store, StoreExt, Usage};
use steadfast_wire::Revision;

struct Memory;

impl StoreFixture for Memory {
    type Store = MemoryStore;
    const PERSISTS: bool = false;
    const IS_SHARED: bool = false;
    const LIMITS_STORE_BYTES: bool = true;
    const LIMITS_PRINCIPAL_BYTES: bool = true;

    fn fresh() -> Self {
        Self
    }

    fn open(&self, rules: Rules) -> MemoryStore {
        MemoryStore::new(rules)
    }
}

steadfast_store::store_contract!(Memory);

#[tokio::test]
async fn handles_receive_signals_of_each_others_changes() {
    const NOW: Time = Time(1_000_000);
    let [one, other] = [NodeId(1), NodeId(2)];
    let first = MemoryStore::new(Rules::default());
    let second = first.handle_for_another_node();
    let recorders: [Arc<SignalRecorder>; 2] = [Arc::default(), Arc::default()];
    first.subscribe(Arc::<SignalRecorder>::clone(&recorders[0]));
    second.subscribe(Arc::<SignalRecorder>::clone(&recorders[1]));
    let signals = || {
        recorders
            .each_ref()
            .map(|signal_recorder| signal_recorder.take().into_values().flatten().collect::<Vec<_>>())
    };

    let id = SessionId::from_random([9; SessionId::BYTES]);
    let facts = Facts {
        id,
        principal: Principal::anonymous(),
        revision: Revision::LATEST_LEGACY,
        initialize: Bytes::new(),
        opened_at: NOW,
    };
    second.open(facts).await.unwrap();
    let opened = vec![RecordedSignal::Lifecycle(Lifecycle::Opened)];
    assert_eq!(signals(), [vec![], opened], "only the handle that caused it receives a lifecycle signal");

    let open = OpenServerRequest {
        target: Target::Standalone,
        owner: one,
        rest: Bytes::from_static(b"}"),
        fence: None,
    };
    first.run(id, open, NOW).await.unwrap();
    let [here, there] = signals();
    assert!(here == there && here.len() == 1, "{here:?}\n{there:?}");
    let answer = Answer {
        server_request: ServerRequestNo(0),
        node: other,
        attempt: 1,
        message: Bytes::from_static(b"answer"),
    };
    second.run(id, answer, NOW).await.unwrap();
    for signals in signals() {
        assert!(
            matches!(&signals[..], [RecordedSignal::SessionUpdate { kept, .. }] if *kept == [(ServerRequestNo(0), one)]),
            "{signals:?}"
        );
    }

    first.join(one, NOW).await.unwrap();
    assert!(second.is_alive(one).await.unwrap() && !second.is_alive(other).await.unwrap());
}

/// A client that fills sessions and deletes them does not get more space: the store holds their
/// last messages for a while.
#[tokio::test]
async fn bytes_of_a_closed_session_count_until_it_is_removed() {
    const NOW: Time = Time(1_000_000);
    let limits = Limits { principal_bytes: 900, ..Limits::default() };
    let store = MemoryStore::new(Rules { limits, ..Rules::default() });
    let facts = |n: u8, principal: &str| Facts {
        id: SessionId::from_random([n; SessionId::BYTES]),
        principal: Principal::new(principal),
        revision: Revision::LATEST_LEGACY,
        initialize: Bytes::from(vec![b' '; 100]),
        opened_at: NOW,
    };
    let first = facts(1, "one");
    store.open(first.clone()).await.unwrap();
    let (target, class) = (Target::Standalone, Class::Notification);
    let message = Append { target, class, payload: vec![b' '; 700].into(), fence: None };
    store.run(first.id, message, NOW).await.unwrap();
    store.run(first.id, Close { reason: CloseReason::Deleted }, NOW).await.unwrap();
    let refused = Opened::OverLimit(Limit::PrincipalBytes);
    assert_eq!(store.open(facts(2, "one")).await, Ok(refused));
    assert!(matches!(store.open(facts(3, "other")).await, Ok(Opened::Opened(_))));
    store.sweep(NOW.plus(store.rules().timing.linger), 100).await.unwrap();
    assert!(matches!(store.open(facts(4, "one")).await, Ok(Opened::Opened(_))));
    assert_eq!(store.usage().await, Ok(Usage { sessions: 2, bytes: 200 }));
}
