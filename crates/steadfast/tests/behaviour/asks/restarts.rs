//! A process that ends takes its askers with it: what they asked is withdrawn, and their calls get
//! an error.

use steadfast::ServerRequestOrder;

use crate::support::{Backing, Host, Session, json};

use super::{accepted, answer_too_late, asked, question_of, withdrawal};

#[tokio::test]
async fn a_restart_resolves_every_open_ask() {
    let mut host = Host::plain(Backing::Sqlite).await;
    let session = Session::open(&host).await;
    let mut listener = session.listen().stream().await;
    let begin = listener.next().await.and_then(|frame| frame.id).unwrap();
    session.notify("notifications/ask", json!({})).await;
    let of_no_call = asked(&mut listener).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 2})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    let (a, _) = question_of(&stream.message().await);
    let (b, _) = question_of(&stream.message().await);
    assert_eq!(session.answer(&a, accepted("in time")).await.status, 202);
    drop((stream, listener));

    host.restart().await;
    let session = session.via(&host);
    for ask in [&of_no_call, &a, &b] {
        answer_too_late(&session, ask).await;
    }
    let told = session.resume(&priming).send().await.messages();
    let (question, rest): (Vec<_>, Vec<_>) =
        told.into_iter().partition(|message| message["method"] == "elicitation/create");
    assert_eq!(question.iter().map(|ask| ask["id"].clone()).collect::<Vec<_>>(), [a, b.clone()]);
    assert_eq!(rest[0], withdrawal(&b));
    assert_eq!((rest.len(), &rest[1]["error"]["data"]["reason"]), (2, &json!("outcome_unknown")));
    let mut listener = session.resume(&begin).stream().await;
    assert_eq!(asked(&mut listener).await, of_no_call);
    assert_eq!(listener.message().await, withdrawal(&of_no_call));

    // Numbers go on: a late answer can never meet a new ask.
    let mut again = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (c, _) = question_of(&again.message().await);
    assert_eq!(c, json!("ask-3"));
    assert_eq!(session.answer(&c, accepted("")).await.status, 202);
}

#[tokio::test]
async fn an_ask_waits_for_room_that_another_process_takes() {
    let one =
        Host::start(Backing::Sqlite, |builder| builder.server_request_order(ServerRequestOrder::Strict))
            .await;
    let other = one.beside().await;
    let session = Session::open(&one).await;
    let mut first = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (a, _) = question_of(&first.message().await);
    let there = session.via(&other);
    let mut second = there.tool(2, "ask_many", json!({"n": 2})).stream().await;
    there.say(3, "echo", json!({})).await;
    assert!(second.next().await.unwrap().is_priming() && second.is_quiet().await);
    session.answer(&a, accepted("")).await;
    for no in ["0", "1"] {
        let (id, message) = question_of(&second.message().await);
        assert_eq!(message, no);
        there.answer(&id, accepted("")).await;
    }
    assert!(second.message().await["result"].is_object());
}
