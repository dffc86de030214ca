//! What is ended at one node ends at the other, where it runs.

use std::time::Duration;

use crate::asks::endings::RELEASED;
use crate::asks::{accepted, answer_too_late, asked, withdrawal};
use crate::support::{Backing, Host, Session, Value, json, within};

use super::{Nodes, asking, blindfold, struck};

crate::on_every_store!(
    a_call_that_is_cancelled,
    a_call_that_asks_and_is_cancelled,
    a_call_that_is_cancelled_while_its_answer_is_kept,
    a_session_that_is_deleted,
    an_ask_past_its_deadline_while_its_answer_is_kept,
);

async fn a_call_that_is_cancelled(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    let mut stream = session.tool(1, "until_cancelled", json!({})).stream().await;
    nodes.one.gates.reached("waiting to be cancelled", 1).await;
    let mut spared = session.tool(2, "gate", json!({"name": "b", "text": "spared"})).stream().await;
    assert_eq!(there.cancel(1).await.status, 202);
    nodes.one.gates.reached("cancelled", 1).await;
    assert_eq!(stream.messages().await, Vec::<Value>::new(), "no answer follows a cancellation");
    nodes.one.gates.open("b");
    assert_eq!(spared.messages().await.len(), 1);
    assert_eq!(session.say(1, "echo", json!({"text": "free"})).await, "free");
}

async fn a_call_that_asks_and_is_cancelled(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (ask, _) = crate::asks::question_of(&stream.message().await);
    assert_eq!(there.cancel(1).await.status, 202);
    answer_too_late(&there, &ask).await;
    answer_too_late(&session, &ask).await;
    assert_eq!(stream.messages().await, [withdrawal(&ask)]);
    nodes.one.gates.reached("asked many", 1).await;
}

async fn a_call_that_is_cancelled_while_its_answer_is_kept(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (ask, _) = crate::asks::question_of(&stream.message().await);
    let gate = blindfold(&nodes.faults);
    assert_eq!(there.answer(&ask, accepted("kept")).await.status, 202);
    assert_eq!(there.cancel(1).await.status, 202);
    answer_too_late(&there, &ask).await;
    nodes.faults.clear();
    gate.open();
    nodes.one.gates.reached("asked many", 1).await;
    assert_eq!(stream.messages().await, Vec::<Value>::new(), "the client was done with the ask");
    let (mut again, ask) = asking(&session, 1).await;
    assert_eq!(there.answer(&ask, accepted("heard")).await.status, 202);
    assert!(again.message().await["result"].is_object());
}

async fn a_session_that_is_deleted(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    let mut listener = session.listen().stream().await;
    session.notify("notifications/ask", json!({})).await;
    asked(&mut listener).await;
    let mut stream = session.tool(1, "until_cancelled", json!({})).stream().await;
    nodes.one.gates.reached("waiting to be cancelled", 1).await;
    assert_eq!(there.delete().send().await.status, 204);
    nodes.one.gates.reached("cancelled", 1).await;
    nodes.one.gates.reached(RELEASED, 1).await;
    let told = stream.messages().await;
    assert_eq!((told.len(), &told[0]["error"]["data"]["reason"]), (1, &json!("session_closed")), "{told:?}");
    assert!(listener.rest().await.is_empty());
    assert_eq!(session.tool(2, "echo", json!({})).send().await.refusal(), (404, -32600));
}

async fn an_ask_past_its_deadline_while_its_answer_is_kept(backing: Backing) {
    let nodes = Nodes::start(backing).await;
    let (session, there) = nodes.open_session().await;
    let (mut stream, ask) = asking(&session, 1).await;
    let gate = blindfold(&nodes.faults);
    assert_eq!(there.answer(&ask, accepted("too late to be heard")).await.status, 202);
    nodes.one.sweep_after(Duration::from_secs(10 * 60)).await;
    let told = stream.messages().await;
    assert_eq!(told.len(), 1, "nothing is withdrawn from a client that has answered: {told:?}");
    assert!(told[0]["error"]["message"].as_str().unwrap().contains("did not answer in time"), "{told:?}");
    nodes.faults.clear();
    gate.open();
    answer_too_late(&there, &ask).await;
}

/// The store accepted the answer, and the node that waited for it died before it read it.
#[tokio::test]
async fn a_node_that_dies_before_it_has_collected() {
    let Nodes { mut one, other, faults, .. } = Nodes::start(Backing::Sqlite).await;
    let session = Session::open(&one).await;
    let there = session.via(&other);
    let mut stream = session.tool(1, "ask", crate::asks::question()).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    let ask = asked(&mut stream).await;
    let _gate = blindfold(&faults);
    assert_eq!(there.answer(&ask, accepted("for a dead node")).await.status, 202);
    struck(&faults, 1).await;
    one.crash().await;
    let told = async {
        loop {
            other.sweep_after(Duration::ZERO).await;
            let told = there.resume(&priming).stream().await.messages().await;
            if told.len() > 1 {
                return told;
            }
        }
    };
    let told = within("the error", told).await;
    assert_eq!(told[0]["id"], ask);
    assert_eq!((told.len(), &told[1]["error"]["data"]["reason"]), (2, &json!("outcome_unknown")));
    answer_too_late(&there, &ask).await;
    assert_eq!(there.say(1, "echo", json!({"text": "free"})).await, "free");
}

/// A node dies while it waits for the client, without injected faults.
#[tokio::test]
async fn a_node_that_dies_while_it_asks() {
    let mut one = Host::plain(Backing::Sqlite).await;
    let other = one.beside().await;
    let session = Session::open(&one).await;
    let there = session.via(&other);
    let mut stream = session.tool(1, "ask", crate::asks::question()).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    let ask = asked(&mut stream).await;
    one.crash().await;
    // The other node may or may not know yet that this one is dead.
    let status = there.answer(&ask, accepted("for a dead node")).await.status;
    assert!(matches!(status, 202 | 400), "{status}");
    other.sweep_after(Duration::ZERO).await;
    let told = there.resume(&priming).send().await.answers();
    let error = told.iter().find(|message| message["id"] == 1).unwrap();
    assert_eq!(error["error"]["data"]["reason"], "outcome_unknown");
    answer_too_late(&there, &ask).await;
}
