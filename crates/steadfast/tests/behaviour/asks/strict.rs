//! One ask at a time.

use std::sync::Arc;

use steadfast::ServerRequestOrder;
use steadfast::store::MemoryStore;
use steadfast_session::Rules;

use crate::support::session::said;
use crate::support::{Backing, Host, Session, json};

use super::{accepted, asking, question_of, withdrawal};

crate::on_every_store!(one_ask_at_a_time_in_order, the_next_is_sent_when_the_former_is_over);

async fn strict(backing: Backing) -> Host {
    Host::start(backing, move |builder| {
        match backing {
            // A store that was given brings limits of its own, so the process has to see to it
            // alone.
            Backing::Memory => builder.custom_store(Arc::new(MemoryStore::new(Rules::default()))),
            _ => builder,
        }
        .server_request_order(ServerRequestOrder::Strict)
    })
    .await
}

async fn one_ask_at_a_time_in_order(backing: Backing) {
    let host = strict(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 20})).stream().await;
    for no in 0..20 {
        let (id, message) = question_of(&stream.message().await);
        assert_eq!(message, no.to_string());
        session.say(2, "echo", json!({})).await;
        assert!(stream.is_quiet().await, "{no} has no outcome yet");
        assert_eq!(session.answer(&id, accepted("")).await.status, 202);
    }
    assert!(stream.message().await["result"].is_object());
}

/// An error, a withdrawal and the end of its call are outcomes, too; and other sessions have turns
/// of their own.
async fn the_next_is_sent_when_the_former_is_over(backing: Backing) {
    let host = strict(backing).await;
    let session = Session::open(&host).await;
    let mut given_up = session.tool(1, "give_up", json!({"name": "now", "then": "later"})).stream().await;
    let (first, _) = question_of(&given_up.message().await);
    let (mut cancelled, _) = asking(&session, 2, 1).await;
    let (mut refused, _) = asking(&session, 3, 2).await;
    let other = Session::open(&host).await;
    let mut elsewhere = other.tool(1, "ask_many", json!({"n": 1})).stream().await;
    question_of(&elsewhere.message().await);

    host.gates.open("now");
    assert_eq!(given_up.message().await, withdrawal(&first));
    let (second, _) = question_of(&cancelled.message().await);
    session.cancel(2).await;
    assert_eq!(cancelled.messages().await, [withdrawal(&second)]);
    let (third, message) = question_of(&refused.message().await);
    assert_eq!(message, "1");
    let no = json!({"jsonrpc": "2.0", "id": third, "error": {"code": -1, "message": "no"}});
    assert_eq!(session.post(&no).send().await.status, 202);
    let (fourth, message) = question_of(&refused.message().await);
    assert_eq!(message, "2");
    session.answer(&fourth, accepted("yes")).await;
    assert!(refused.message().await["error"]["message"].as_str().unwrap().contains("no"));
    host.gates.open("later");
    assert_eq!(said(&given_up.message().await), "without an answer");
}
