//! Two nodes on one store: whatever reaches one of them has its effect where the call runs.

mod answers;
mod clocks;
mod endings;
mod faults;
mod looks;

use std::sync::{Arc, Mutex};

use steadfast::store::Store;
use steadfast::store::testing::{Fault, Faults, FaultyStore, Gate, Operation};
use steadfast_session::{Limits, Rules};

use crate::support::{Backing, Host, Place, Session, Stream, Value, json, within};

use super::asks::asked;

/// Two servers that share their sessions, each with faults of its own.
struct Nodes {
    one: Host,
    other: Host,
    faults: Faults,
    other_faults: Faults,
}

impl Nodes {
    async fn start(backing: Backing) -> Self {
        Self::with(backing, Limits::default()).await
    }

    async fn with(backing: Backing, limits: Limits) -> Self {
        let place = backing.place();
        let [store, beside] = place.open_twice(Rules { limits, ..Rules::default() });
        let (one, faults) = host(&place, store).await;
        let (other, other_faults) = host(&place, beside).await;
        Self { one, other, faults, other_faults }
    }

    /// A session, by way of both.
    async fn open_session(&self) -> (Session, Session) {
        let session = Session::open(&self.one).await;
        let there = session.via(&self.other);
        (session, there)
    }
}

async fn host(place: &Place, store: Arc<dyn Store>) -> (Host, Faults) {
    let store = FaultyStore::over(store);
    let faults = store.faults.clone();
    // Given away, so that the store goes with its host.
    let store = Mutex::new(Some(Arc::new(store)));
    let configure = move |builder: steadfast::Builder<crate::support::TestHandler>| {
        builder.custom_store(store.lock().unwrap().take().expect("it is started once"))
    };
    (Host::start_on(place.clone(), configure).await, faults)
}

/// A call that asks. Gives its stream and the ask.
async fn asking(session: &Session, id: u64) -> (Stream, Value) {
    let mut stream = session.tool(id, "ask", super::asks::question()).stream().await;
    let ask = asked(&mut stream).await;
    (stream, ask)
}

/// Lets a node not look at what the store holds for it, from now on until the gate is opened.
fn blindfold(faults: &Faults) -> Gate {
    let gate = Gate::new();
    let held = gate.clone();
    faults.script(move |operation| {
        matches!(operation, Operation::Holdings(_)).then(|| Fault::HoldBefore(held.clone()))
    });
    gate
}

/// Waits until as many calls of the store were struck.
async fn struck(faults: &Faults, count: u64) {
    let struck = async {
        while faults.injected() < count {
            tokio::task::yield_now().await;
        }
    };
    within("the fault", struck).await;
}

/// What the client answered, as the tool `ask` says it.
fn heard(text: &str) -> String {
    json!({"action": "accept", "content": {"text": text}}).to_string()
}
