//! An ask that is not answered in time: its asker gets an error, its client is told, and a late
//! answer is refused.

use std::time::Duration;

use steadfast::Limits;

use crate::support::session::said;
use crate::support::{Backing, Host, Session, json};

use super::{accepted, answer_too_late, asking, question_of, withdrawal};

crate::on_every_store!(
    an_ask_ends_at_its_deadline_and_not_before,
    waiting_for_a_turn_counts,
    an_answer_before_the_deadline_counts,
    an_ask_of_no_call_has_a_deadline_too,
);

const DEADLINE: Duration = Duration::from_secs(60);

async fn host(backing: Backing, server_requests: usize) -> Host {
    let limits = Limits { server_requests, ..Limits::default() };
    Host::start(backing, move |builder| builder.server_request_deadline(DEADLINE).limits(limits.clone()))
        .await
}

async fn an_ask_ends_at_its_deadline_and_not_before(backing: Backing) {
    let host = host(backing, 64).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 2})).stream().await;
    let (a, _) = question_of(&stream.message().await);
    let (b, _) = question_of(&stream.message().await);
    host.sweep_after(DEADLINE - Duration::from_millis(1)).await;
    assert!(stream.is_quiet().await);
    host.sweep_after(Duration::from_millis(1)).await;
    let mut told = stream.messages().await;
    let answer = told.pop().unwrap();
    told.sort_by_key(|message| message.to_string());
    assert_eq!(told, [withdrawal(&a), withdrawal(&b)]);
    assert_eq!(said(&answer).matches("did not answer in time").count(), 2, "{answer}");
    for ask in [a, b] {
        answer_too_late(&session, &ask).await;
    }
}

async fn waiting_for_a_turn_counts(backing: Backing) {
    let host = host(backing, 1).await;
    let session = Session::open(&host).await;
    let mut first = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (ask, _) = question_of(&first.message().await);
    host.sweep_after(DEADLINE / 2).await;
    let (mut second, at_once) = asking(&session, 2, 3).await;
    assert!(at_once.is_empty());
    host.sweep_after(DEADLINE / 2).await;
    assert_eq!(first.message().await, withdrawal(&ask));
    assert!(said(&first.message().await).contains("did not answer in time"));
    // The first of those that waited has its turn, with what is left of its time.
    let (ask, _) = question_of(&second.message().await);
    host.sweep_after(DEADLINE / 2).await;
    let told = second.messages().await;
    assert_eq!(told[0], withdrawal(&ask), "and the other two were never sent");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[1]["error"]["message"].as_str().unwrap().contains("did not answer in time"));
}

async fn an_answer_before_the_deadline_counts(backing: Backing) {
    let host = host(backing, 64).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (ask, _) = question_of(&stream.message().await);
    host.sweep_after(DEADLINE - Duration::from_millis(1)).await;
    assert_eq!(session.answer(&ask, accepted("just in time")).await.status, 202);
    assert!(said(&stream.message().await).contains("just in time"));
    host.sweep_after(DEADLINE).await;
    assert!(stream.rest().await.is_empty());
}

async fn an_ask_of_no_call_has_a_deadline_too(backing: Backing) {
    let host = host(backing, 64).await;
    let session = Session::open(&host).await;
    let mut listener = session.listen().stream().await;
    session.notify("notifications/ask", json!({})).await;
    let (ask, _) = question_of(&listener.message().await);
    host.sweep_after(DEADLINE).await;
    assert_eq!(listener.message().await, withdrawal(&ask));
    host.gates.reached("Mcp error: -32603: the client did not answer in time", 1).await;
    answer_too_late(&session, &ask).await;
}
