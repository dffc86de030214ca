//! What happens between a command of the store and the moment its outcome is known here.

use steadfast::store::testing::{Fault, Gate, Operation};
use steadfast_session::Command;

use crate::store_faults::{Faulty, faulty};
use crate::support::session::said;
use crate::support::{Backing, Session, Value, json, within};

crate::on_every_store!(
    a_call_is_cancelled_while_it_is_begun,
    a_session_is_deleted_while_a_call_is_begun,
    an_ask_is_answered_before_it_is_known_to_be_asked,
    a_stream_is_written_while_a_client_attaches,
    a_stream_ends_while_a_client_attaches,
);

/// Holds the outcome of the next command of a kind back, after it has happened.
fn hold(on: &Faulty, chosen: fn(&Command) -> bool) -> Gate {
    let gate = Gate::new();
    let of_kind = move |operation: Operation<'_>| matches!(operation, Operation::Apply(_, c) if chosen(c));
    on.faults.push_for(of_kind, Fault::HoldAfter(gate.clone()));
    gate
}

/// Waits until a command is being held back.
async fn held(on: &Faulty) {
    let struck = async {
        while on.faults.injected() == 0 {
            tokio::task::yield_now().await;
        }
    };
    within("the command", struck).await;
}

async fn a_call_is_cancelled_while_it_is_begun(backing: Backing) {
    let faulty = faulty(backing).await;
    let session = Session::open(&faulty.host).await;
    let gate = hold(&faulty, |c| matches!(c, Command::Begin(_)));
    let call = session.tool(1, "never", json!({}));
    let reply = tokio::spawn(async move { call.send().await });
    held(&faulty).await;
    assert_eq!(session.cancel(1).await.status, 202);
    gate.open();
    assert_eq!(reply.await.unwrap().messages(), Vec::<Value>::new());
    assert_eq!(session.say(1, "echo", json!({"text": "free"})).await, "free");
}

async fn a_session_is_deleted_while_a_call_is_begun(backing: Backing) {
    let faulty = faulty(backing).await;
    let session = Session::open(&faulty.host).await;
    let gate = hold(&faulty, |c| matches!(c, Command::Begin(_)));
    let call = session.tool(1, "never", json!({}));
    let reply = tokio::spawn(async move { call.send().await });
    held(&faulty).await;
    assert_eq!(session.delete().send().await.status, 204);
    gate.open();
    let answer = reply.await.unwrap().answer();
    assert_eq!(answer["error"]["data"]["reason"], "session_closed", "{answer}");
}

async fn an_ask_is_answered_before_it_is_known_to_be_asked(backing: Backing) {
    let faulty = faulty(backing).await;
    let session = Session::open(&faulty.host).await;
    let gate = hold(&faulty, |c| matches!(c, Command::OpenServerRequest(_)));
    let mut stream = session.tool(1, "ask", json!({"method": "roots/list"})).stream().await;
    let ask = stream.message().await["id"].clone();
    assert_eq!(session.answer(&ask, json!({"roots": []})).await.status, 202);
    gate.open();
    assert_eq!(said(&stream.message().await), r#"{"roots":[]}"#);
}

async fn a_stream_is_written_while_a_client_attaches(backing: Backing) {
    let faulty = faulty(backing).await;
    let session = Session::open(&faulty.host).await;
    let steps =
        json!({"steps": ["progress", "gate:a", "progress", "progress", "mark:said", "gate:b", "progress"]});
    let mut stream = session.tool(1, "steps", steps).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    stream.event().await;
    let gate = hold(&faulty, |c| matches!(c, Command::Attach(_)));
    let resume = session.resume(&priming);
    let resumed = tokio::spawn(async move { resume.stream().await });
    held(&faulty).await;
    faulty.host.gates.open("a");
    faulty.host.gates.reached("said", 1).await;
    gate.open();
    let mut resumed = resumed.await.unwrap();
    for step in [1.0, 3.0, 4.0] {
        assert_eq!(resumed.message().await["params"]["progress"], step);
    }
    faulty.host.gates.open("b");
    assert_eq!(resumed.messages().await.len(), 2);
}

async fn a_stream_ends_while_a_client_attaches(backing: Backing) {
    let faulty = faulty(backing).await;
    let session = Session::open(&faulty.host).await;
    let mut stream = session.tool(1, "gate", json!({"name": "a", "text": "done"})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    let gate = hold(&faulty, |c| matches!(c, Command::Attach(_)));
    let resume = session.resume(&priming);
    let resumed = tokio::spawn(async move { resume.send().await });
    held(&faulty).await;
    faulty.host.gates.open("a");
    // The older connection has been pushed aside: it ends, with the answer or without.
    stream.rest().await;
    gate.open();
    assert_eq!(resumed.await.unwrap().answers().iter().map(said).collect::<Vec<_>>(), ["done"]);
}
