//! A node that shares its store looks for what others have done: not when there is nothing that
//! they could have changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use steadfast::store::testing::{Fault, Faults, Gate, Operation};
use steadfast_session::Command;

use crate::support::session::said;
use crate::support::{Backing, json, within};

use super::Nodes;

/// How often a node has asked for changes elsewhere, and how often it has looked at a session.
#[derive(Clone, Default)]
struct Counts(Arc<[AtomicU64; 2]>);

impl Counts {
    fn of(faults: &Faults) -> Self {
        let counts = Self::default();
        let counted = counts.clone();
        faults.script(move |operation| {
            let which = match operation {
                Operation::ExternalChangeCount => 0,
                Operation::Holdings(_) => 1,
                _ => return None,
            };
            counted.0[which].fetch_add(1, Ordering::SeqCst);
            None
        });
        counts
    }

    fn looks(&self) -> u64 {
        self.0[1].load(Ordering::SeqCst)
    }

    /// Waits until the node has asked so many times more.
    async fn more(&self, count: u64) {
        let start = self.0[0].load(Ordering::SeqCst);
        let asked = async {
            while self.0[0].load(Ordering::SeqCst) < start + count {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        within("the node to ask for changes", asked).await;
    }
}

#[tokio::test]
async fn no_node_looks_while_no_other_node_writes() {
    let nodes = Nodes::start(Backing::Sqlite).await;
    let (session, there) = nodes.open_session().await;
    let counts = Counts::of(&nodes.faults);
    let mut waiting = session.tool(1, "gate", json!({"name": "a", "text": "done"})).stream().await;
    nodes.one.gates.reached("a", 1).await;
    // The other node has been at work before, if only to announce itself.
    counts.more(2).await;
    let before = counts.looks();
    session.say(2, "echo", json!({})).await;
    counts.more(1).await;
    assert_eq!(counts.looks(), before, "this node's own changes are no reason");
    there.say(3, "echo", json!({})).await;
    counts.more(2).await;
    assert!(counts.looks() > before);
    nodes.one.gates.open("a");
    assert_eq!(said(&waiting.message().await), "done");
}

/// A call is cancelled before its node knows that it has begun, and nothing changes elsewhere after
/// that.
#[tokio::test]
async fn a_look_that_came_too_early_is_repeated() {
    let nodes = Nodes::start(Backing::Sqlite).await;
    let (session, there) = nodes.open_session().await;
    let gate = Gate::new();
    let begins = |operation: Operation<'_>| matches!(operation, Operation::Apply(_, Command::Begin(_)));
    nodes.faults.push_for(begins, Fault::HoldAfter(gate.clone()));
    let call = session.tool(1, "until_cancelled", json!({}));
    let reply = tokio::spawn(async move { call.send().await });
    // It is committed: what is not cannot be cancelled.
    within("the call to be begun", gate.reached()).await;
    let counts = Counts::of(&nodes.faults);
    assert_eq!(there.cancel(1).await.status, 202);
    counts.more(3).await;
    assert!(counts.looks() > 0);
    gate.open();
    assert!(reply.await.unwrap().answers().is_empty());
    nodes.one.gates.reached("cancelled", 1).await;
}

/// A part of the store is away, with all sessions but one in it. What happens in that one is found
/// all the same, whichever is looked at first.
#[tokio::test]
async fn sessions_that_cannot_be_looked_at_hold_up_no_other() {
    let nodes = Nodes::start(Backing::Sqlite).await;
    let mut sessions = Vec::new();
    for _ in 0..16 {
        let (at_one, at_two) = nodes.open_session().await;
        let stream = at_one.tool(1, "until_cancelled", json!({})).stream().await;
        sessions.push((at_one, at_two, stream));
    }
    let (there, away) = sessions.split_last().unwrap();
    let id = there.0.session_id();
    nodes.faults.script(move |operation| {
        matches!(operation, Operation::Holdings(session) if session != id).then_some(Fault::BeforeCommit)
    });
    assert_eq!(there.1.cancel(1).await.status, 202);
    nodes.one.gates.reached("cancelled", 1).await;
    nodes.faults.clear();
    for (_, at_two, _) in away {
        assert_eq!(at_two.cancel(1).await.status, 202);
    }
    nodes.one.gates.reached("cancelled", 16).await;
}
