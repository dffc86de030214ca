//! Requests of 2026-07-28 that take their time, on a store that is slow or fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::store::testing::{Fault, FaultyStore, Gate, Operation};
use steadfast::{Principal, Timing};
use steadfast_session::{Command, Rules};
use steadfast_wire::RequestId;

use crate::store_faults::{Faulty, faulty, strike};
use crate::support::session::said;
use crate::support::{Backing, Host, Session, json, within};

use super::{detached, eager, grace, id, sessions, steps};

/// The store fails only those reads that look for events of other nodes.
#[tokio::test]
async fn a_stream_that_waits_outlives_an_outage_of_the_store() {
    let place = Backing::Memory.place();
    let store = FaultyStore::over(place.open(Rules::default())).polled_every(Duration::from_millis(1));
    let faults = store.faults.clone();
    let store = Arc::new(store);
    let host = Host::start_on(place, move |builder| builder.custom_store(Arc::clone(&store) as _)).await;
    let session = Session::open(&host).await;
    let mut modern = eager(&host).tool(1, "steps", steps(&["gate:a"])).stream().await;
    let mut legacy = session.tool(1, "steps", steps(&["gate:a"])).stream().await;
    assert!(modern.next().await.expect("a priming event").is_priming());
    assert!(legacy.next().await.expect("a priming event").is_priming());
    host.gates.reached("a", 2).await;
    faults.script(|operation| matches!(operation, Operation::Read(..)).then_some(Fault::BeforeCommit));
    let outage = async {
        while faults.injected() < 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within("reads that fail", outage).await;
    faults.clear();
    host.gates.open("a");
    for stream in [&mut modern, &mut legacy] {
        let messages = stream.messages().await;
        assert_eq!(messages.iter().map(said).collect::<Vec<_>>(), ["line one\nline two, ünïcode"]);
    }
}

/// A client comes back while its request is about to be cancelled. The sweep does not wait for the
/// store.
#[tokio::test]
async fn a_client_that_comes_back_during_the_check_keeps_its_request() {
    let Faulty { host, faults } = faulty(Backing::Memory).await;
    let mut stream = eager(&host).tool(1, "until_cancelled", json!({})).stream().await;
    let priming = id(&stream.next().await.expect("a priming event"));
    stream.cut();
    detached(&host, &priming).await;
    host.sweep_after(Duration::ZERO).await;
    // The first check begins the grace. If it is late, this test shows less.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let gate = Gate::new();
    let is_check = |operation: Operation<'_>| matches!(operation, Operation::Holdings(_));
    faults.push_for(is_check, Fault::HoldAfter(gate.clone()));
    host.sweep_after(grace()).await;
    within("the check", gate.reached()).await;
    let mut stream = eager(&host).resume(&priming).stream().await;
    stream.next().await.expect("a priming event");
    gate.open();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(host.gates.count("cancelled"), 0);
}

/// The answer came first, the client is gone, or the store has no room for the call.
#[tokio::test]
async fn a_job_that_no_client_gets_is_closed() {
    let Faulty { host, faults } = faulty(Backing::Memory).await;
    let engine = host.server().service().engine().clone();
    for fault in [None, Some(Fault::BeforeCommit)] {
        if let Some(fault) = fault.clone() {
            strike(&faults, |command| matches!(command, Command::Begin(_)), &[fault]);
        }
        let closed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&closed);
        faults.script(move |operation| {
            let is_close = matches!(operation, Operation::Apply(_, Command::Close(_)));
            counted.fetch_add(usize::from(is_close), Ordering::SeqCst);
            None
        });
        let created = engine.create_call_job(&Principal::anonymous(), &RequestId::Number(1)).await;
        assert_eq!(created.is_err(), fault.is_some());
        drop(created);
        let removed = async {
            while closed.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            host.clock.advance(Timing::default().linger);
            while sessions(&host).await > 0 {
                host.sweep_after(Duration::ZERO).await;
            }
        };
        within("the removal of the job", removed).await;
    }
}
