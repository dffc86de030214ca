//! The memory store keeps the contract.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_session::command::{Answer, Append, Close, OpenAsk, Target};
use steadfast_session::{
    AskNo, Class, CloseReason, Facts, Lifecycle, Limit, Limits, NodeId, Principal, Rules, SessionId, Time,
};
use steadfast_store::testing::Place;
use steadfast_store::testing::recorder::{Heard, Recorder};
use steadfast_store::{MemoryStore, Opened, Store, StoreExt, Usage};
use steadfast_wire::Revision;

struct Memory;

impl Place for Memory {
    type Store = MemoryStore;
    const KEEPS: bool = false;
    const SHARES: bool = false;
    const BOUNDS_BYTES: bool = true;
    const BOUNDS_BYTES_OF_PRINCIPALS: bool = true;

    fn fresh() -> Self {
        Self
    }

    fn open(&self, rules: Rules) -> MemoryStore {
        MemoryStore::new(rules)
    }
}

steadfast_store::store_contract!(Memory);

#[tokio::test]
async fn nodes_that_share_it_hear_of_each_others_changes() {
    const NOW: Time = Time(1_000_000);
    let [one, other] = [NodeId(1), NodeId(2)];
    let first = MemoryStore::new(Rules::default());
    let second = first.beside();
    let recorders: [Arc<Recorder>; 2] = [Arc::default(), Arc::default()];
    first.subscribe(Arc::<Recorder>::clone(&recorders[0]));
    second.subscribe(Arc::<Recorder>::clone(&recorders[1]));
    let heard =
        || recorders.each_ref().map(|recorder| recorder.take().into_values().flatten().collect::<Vec<_>>());

    let id = SessionId::from_random([9; SessionId::BYTES]);
    let facts = Facts {
        id,
        principal: Principal::anonymous(),
        revision: Revision::LATEST_LEGACY,
        initialize: Bytes::new(),
        opened_at: NOW,
    };
    second.open(facts).await.unwrap();
    let opened = vec![Heard::Lifecycle(Lifecycle::Opened)];
    assert_eq!(heard(), [vec![], opened], "the life of a session is told by whoever caused it");

    let open =
        OpenAsk { target: Target::Standalone, owner: one, rest: Bytes::from_static(b"}"), fence: None };
    first.run(id, open, NOW).await.unwrap();
    let [here, there] = heard();
    assert!(here == there && here.len() == 1, "{here:?}\n{there:?}");
    let answer = Answer { ask: AskNo(0), node: other, attempt: 1, message: Bytes::from_static(b"heard") };
    second.run(id, answer, NOW).await.unwrap();
    for heard in heard() {
        assert!(matches!(&heard[..], [Heard::News { kept, .. }] if *kept == [(AskNo(0), one)]), "{heard:?}");
    }

    first.join(one, NOW).await.unwrap();
    assert!(second.is_alive(one).await.unwrap() && !second.is_alive(other).await.unwrap());
}

/// Whoever fills sessions and deletes them gets no more room than others: their last messages are held for a while.
#[tokio::test]
async fn what_a_closed_session_holds_counts_until_it_is_gone() {
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
    let (target, class) = (Target::Standalone, Class::Notice);
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
