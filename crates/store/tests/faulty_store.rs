//! The faulty store injects the planned faults and no others.

use bytes::Bytes;
use steadfast_session::command::{Append, AppendOutcome, Target, Touch, Touched};
use steadfast_session::{Class, Command, Facts, Principal, Read, Rules, SessionId, StreamNo, Time};
use steadfast_store::testing::{Fault, FaultyStore, Gate, Operation};
use steadfast_store::{MemoryStore, Store, StoreError, StoreExt};
use steadfast_wire::Revision;

const NOW: Time = Time(1_000_000);
const SESSION: SessionId = SessionId::from_random([1; SessionId::BYTES]);

async fn store() -> FaultyStore<MemoryStore> {
    let store = FaultyStore::new(MemoryStore::new(Rules::default()));
    let facts = Facts {
        id: SESSION,
        principal: Principal::anonymous(),
        revision: Revision::LATEST_LEGACY,
        initialize: Bytes::new(),
        opened_at: NOW,
    };
    store.open(facts).await.expect("the store opens a session");
    store
}

fn message() -> Append {
    Append {
        target: Target::Standalone,
        class: Class::Notification,
        payload: Bytes::from_static(b"hello"),
        fence: None,
    }
}

fn appended(seq: u64) -> Result<AppendOutcome, StoreError> {
    Ok(AppendOutcome::Appended { stream: StreamNo::FIRST_STANDALONE, seq })
}

/// Returns the number of events in the stream, read from the wrapped store.
async fn logged(store: &FaultyStore<MemoryStore>) -> usize {
    match store.inner().read(SESSION, StreamNo::FIRST_STANDALONE, 0, u64::MAX).await {
        Ok(Read::Slice(slice)) => slice.events.len(),
        _ => 0,
    }
}

#[tokio::test]
async fn before_the_commit_nothing_has_happened() {
    let store = store().await;
    store.faults.push(Fault::BeforeCommit);
    assert!(matches!(store.run(SESSION, message(), NOW).await, Err(StoreError::Unavailable(_))));
    assert_eq!(logged(&store).await, 0);
    assert_eq!(store.run(SESSION, message(), NOW).await, appended(1), "a fault is injected once");
}

#[tokio::test]
async fn a_lost_request_has_not_happened_and_is_unknown() {
    let store = store().await;
    store.faults.push(Fault::Lost);
    assert!(matches!(store.run(SESSION, message(), NOW).await, Err(StoreError::Unknown(_))));
    assert_eq!(logged(&store).await, 0);
}

#[tokio::test]
async fn after_the_commit_the_command_has_happened() {
    let store = store().await;
    store.faults.push(Fault::AfterCommit);
    assert!(matches!(store.run(SESSION, message(), NOW).await, Err(StoreError::Unknown(_))));
    assert_eq!(logged(&store).await, 1);
}

#[tokio::test]
async fn a_gate_holds_the_command_or_its_reply() {
    for (fault, meanwhile) in [(Fault::HoldBefore as fn(Gate) -> Fault, 0), (Fault::HoldAfter, 1)] {
        let store = store().await;
        let gate = Gate::new();
        store.faults.push(fault(gate.clone()));
        let mut reply = Box::pin(store.run(SESSION, message(), NOW));
        let pending =
            tokio::select! { biased; _ = &mut reply => false, () = tokio::task::yield_now() => true };
        assert!(pending);
        assert_eq!(logged(&store).await, meanwhile);
        gate.open();
        assert_eq!(reply.await, appended(1));
    }
}

#[tokio::test]
async fn a_fault_waits_for_the_chosen_operation() {
    let store = store().await;
    let is_touch = |operation: Operation<'_>| matches!(operation, Operation::Apply(_, Command::Touch(_)));
    store.faults.push_for(is_touch, Fault::BeforeCommit);
    assert_eq!(store.run(SESSION, message(), NOW).await, appended(1));
    assert!(store.run(SESSION, Touch, NOW).await.is_err());
    assert_eq!(store.run(SESSION, Touch, NOW).await, Ok(Touched::Touched));
    assert_eq!(store.faults.injected(), 1);
}

#[tokio::test]
async fn seeded_faults_are_the_same_each_time() {
    let mut runs = Vec::new();
    for _ in 0..2 {
        let store = store().await;
        store.faults.seeded(42, 300);
        let mut failed = Vec::new();
        for _ in 0..100 {
            failed.push(store.run(SESSION, message(), NOW).await.is_err());
        }
        store.faults.clear();
        assert!(store.run(SESSION, message(), NOW).await.is_ok());
        runs.push(failed);
    }
    assert_eq!(runs[0], runs[1]);
    let injected = runs[0].iter().filter(|failed| **failed).count();
    assert!((10..60).contains(&injected), "{injected}");
}
