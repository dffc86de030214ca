//! Going down while requests are being let in: none is missed, none hangs.

use std::time::Duration;

use steadfast::store::testing::{Fault, Gate};
use steadfast_session::Command;

use crate::store_faults::{Faulty, faulty, strike};
use crate::support::session::said;
use crate::support::{Backing, Host, Session, json, within};

crate::on_every_store!(
    a_call_that_is_being_begun_is_not_missed,
    a_connection_that_is_being_attached_is_sent_away,
    calls_in_flight_may_finish,
    the_second_attempt_of_a_client_finds_the_next_process,
);

/// Waits until the server refuses new calls.
async fn refuses(session: &Session) {
    let refused = async { while session.tool("x", "echo", json!({})).send().await.status != 503 {} };
    within("the drain to begin", refused).await;
}

/// Drains in a task of its own.
fn drain(host: &Host, patience: Duration) -> tokio::task::JoinHandle<()> {
    let server = host.server().clone();
    tokio::spawn(async move { server.drain(patience).await })
}

/// Waits until a command is held back.
async fn held(faults: &steadfast::store::testing::Faults) {
    let held = async {
        while faults.injected() == 0 {
            tokio::task::yield_now().await;
        }
    };
    within("the command to be held back", held).await;
}

async fn a_call_that_is_being_begun_is_not_missed(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    let gate = Gate::new();
    strike(&faults, |c| matches!(c, Command::Begin(_)), &[Fault::HoldBefore(gate.clone())]);
    let call = session.tool(1, "gate", json!({"name": "never opened"})).leave().await;
    held(&faults).await;
    let drained = drain(&host, Duration::ZERO);
    refuses(&session).await;
    assert!(!drained.is_finished(), "it waits for what was let in");
    gate.open();
    within("the drain", drained).await.unwrap();
    let told = call.read().await.messages().await;
    assert_eq!((told.len(), &told[0]["error"]["data"]["reason"]), (1, &json!("shutting_down")));
}

async fn a_connection_that_is_being_attached_is_sent_away(backing: Backing) {
    let Faulty { host, faults } = faulty(backing).await;
    let session = Session::open(&host).await;
    let gate = Gate::new();
    strike(&faults, |c| matches!(c, Command::Attach(_)), &[Fault::HoldAfter(gate.clone())]);
    let listener = session.listen().leave().await;
    held(&faults).await;
    let drained = drain(&host, Duration::ZERO);
    refuses(&session).await;
    assert!(!drained.is_finished(), "it waits for what was let in");
    gate.open();
    within("the drain", drained).await.unwrap();
    let frames = listener.read().await.rest().await;
    assert!(frames.last().is_some_and(|frame| frame.retry.is_some()), "it is told to come back: {frames:?}");
}

async fn calls_in_flight_may_finish(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "gate", json!({"name": "a", "text": "done"})).stream().await;
    host.gates.reached("a", 1).await;
    let drained = drain(&host, Duration::from_secs(60));
    refuses(&session).await;
    assert!(!drained.is_finished());
    host.gates.open("a");
    within("the drain", drained).await.unwrap();
    assert_eq!(said(&stream.message().await), "done");
}

/// The TypeScript and the Python SDK try twice, with the `retry:` of the stream before each
/// attempt. The second attempt comes six seconds after the last call may end.
async fn the_second_attempt_of_a_client_finds_the_next_process(backing: Backing) {
    for (patience, expect) in [(10, 8000), (0, 3000)] {
        let host = Host::plain(backing).await;
        let session = Session::open(&host).await;
        let mut listener = session.listen().stream().await;
        let _call = session.tool(1, "gate", json!({"name": "a"})).stream().await;
        host.gates.reached("a", 1).await;
        let drained = drain(&host, Duration::from_secs(patience));
        let retry = listener.rest().await.last().and_then(|frame| frame.retry);
        assert_eq!(retry, Some(expect), "{patience} seconds");
        host.gates.open("a");
        within("the drain", drained).await.unwrap();
    }
}
