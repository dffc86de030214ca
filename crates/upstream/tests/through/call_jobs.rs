//! The jobs that slow requests of 2026-07-28 become: a gateway keeps nothing else for them, and
//! removes them when their answer was read.

use std::time::Duration;

use steadfast_session::command::{GetState, StateGot, Sweep, Swept};
use steadfast_session::{SessionToken, Timing};
use steadfast_store::StoreExt as _;

use crate::support::modern::Modern;
use crate::support::{Backing, Host, json, within};

/// The store is shared, so the gateway claims the leases of the sessions that it reads.
#[tokio::test]
async fn a_gateway_claims_no_lease_for_a_job_and_removes_it_soon() {
    let host = Host::plain(Backing::Sqlite).await;
    let (engine, timing) = (host.server().0.clone(), Timing::default());
    let mut stream = Modern::to(&host).tool(1, "steps", json!({"steps": ["gate:a"]})).stream().await;
    let priming = stream.next().await.expect("a priming event").id.expect("an id");
    let job = SessionToken::parse(priming.split('.').next().unwrap()).expect("a token").id();
    // Each sweep may look for sessions with readers. The first of them may still be at it.
    for _ in 0..20 {
        host.sweep_after(Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let lease = engine.store().run(job, GetState { key: "~lease".into() }, engine.now()).await;
    assert_eq!(lease, Ok(StateGot::SessionOpen(None)));
    host.gates.open("a");
    assert_eq!(stream.messages().await.len(), 1);
    let end = engine.now().plus(timing.touch).plus(timing.linger);
    let read = async {
        while engine.store().run(job, Sweep, engine.now()).await != Ok(Swept::Next(Some(end))) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within("the delivery of the answer", read).await;
    host.sweep_after(timing.touch + timing.linger).await;
    host.sweep_after(timing.linger).await;
    assert_eq!(engine.store().usage().await.expect("the store works").sessions, 0);
}
