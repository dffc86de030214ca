//! What the sweeper does by itself, and what it survives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use steadfast::store::testing::{Fault, Operation};

use crate::store_faults::{Faulty, faulty_with};
use crate::support::session::initialize;
use crate::support::{Backing, Host, Http, Session, json, within};

crate::on_every_store!(a_sweep_that_panics_is_not_the_last, opening_a_session_has_a_deadline);

async fn a_sweep_that_panics_is_not_the_last(backing: Backing) {
    let Faulty { host, faults } =
        faulty_with(backing, |builder| builder.sweep_interval(Duration::from_millis(5))).await;
    let sweeps = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&sweeps);
    faults.script(move |operation| {
        let Operation::Sweep = operation else { return None };
        match seen.fetch_add(1, Ordering::SeqCst) {
            0..3 => panic!("a sweep that panics on purpose"),
            3..6 => Some(Fault::BeforeCommit),
            _ => None,
        }
    });
    let goes_on = async {
        while sweeps.load(Ordering::SeqCst) < 8 {
            tokio::task::yield_now().await;
        }
    };
    within("the sweeps after those", goes_on).await;
    let session = Session::open(&host).await;
    assert_eq!(session.say(1, "echo", json!({"text": "fine"})).await, "fine");
}

async fn opening_a_session_has_a_deadline(backing: Backing) {
    let limit = Duration::from_secs(30);
    let host = Host::start(backing, move |builder| builder.call_deadline(limit)).await;
    host.gates.mark("slow initialize");
    let request = Http::to(&host).post(&initialize("2025-11-25"));
    let opening = tokio::spawn(async move { request.send().await });
    host.gates.reached("initialize", 1).await;
    host.sweep_after(limit - Duration::from_millis(1)).await;
    assert!(!opening.is_finished());
    host.sweep_after(Duration::from_millis(1)).await;
    let reply = within("the refusal", opening).await.unwrap();
    assert_eq!((reply.status, reply.header("mcp-session-id")), (200, None));
    assert_eq!(reply.json()["id"], 0);
    assert_eq!(reply.json()["error"]["data"], json!({"reason": "deadline", "retryable": true}));
    host.gates.open("initialize");
    Session::open(&host).await;
}
