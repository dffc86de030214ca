//! Asks end with what caused them: each has one outcome, the client is told, and late answers are
//! refused.

use std::time::Duration;

use steadfast::Limits;

use crate::support::session::said;
use crate::support::{Backing, Host, Session, json, within};

use super::{accepted, answer_too_late, asked, assert_unasked, question_of, withdrawal};

crate::on_every_store!(
    the_client_cancels_the_call,
    the_session_is_deleted,
    the_session_is_deleted_while_an_ask_waits_for_its_turn,
    the_call_is_past_its_deadline,
    the_handler_gives_up,
    the_handler_is_done,
    the_handler_asks_for_ever_and_gives_up_each_time,
    what_waits_for_its_turn_ends_with_its_call,
    the_server_goes_down,
    an_answer_is_taken_once_whatever_it_is,
);

/// What an asker is told whose ask has ended without an answer.
pub(crate) const RELEASED: &str =
    "Mcp error: -32603: the request to the client was withdrawn because its call or its session has ended";

async fn the_client_cancels_the_call(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 2})).stream().await;
    let (a, _) = question_of(&stream.message().await);
    let (b, _) = question_of(&stream.message().await);
    assert_eq!(session.answer(&a, accepted("in time")).await.status, 202);
    assert_eq!(session.cancel(1).await.status, 202);
    assert_eq!(stream.messages().await, [withdrawal(&b)], "no answer follows a cancellation");
    answer_too_late(&session, &a).await;
    answer_too_late(&session, &b).await;
}

async fn the_session_is_deleted(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut listener = session.listen().stream().await;
    session.notify("notifications/ask", json!({})).await;
    asked(&mut listener).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (ask, _) = question_of(&stream.message().await);
    assert_eq!(session.delete().send().await.status, 204);
    let told = stream.messages().await;
    assert_eq!(told[0], withdrawal(&ask));
    assert_eq!(told[1]["error"]["data"]["reason"], "session_closed");
    assert_eq!(told.len(), 2);
    assert!(listener.rest().await.is_empty());
    host.gates.reached(RELEASED, 1).await;
    let late = session.answer(&ask, accepted("too late")).await;
    assert_eq!(late.refusal(), (404, -32600), "there is no session to answer in");
}

async fn the_session_is_deleted_while_an_ask_waits_for_its_turn(backing: Backing) {
    let host =
        Host::start(backing, |builder| builder.limits(Limits { server_requests: 1, ..Limits::default() }))
            .await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (ask, _) = question_of(&stream.message().await);
    session.notify("notifications/ask", json!({})).await;
    host.gates.reached("notifications/ask", 1).await;
    assert_eq!(session.delete().send().await.status, 204);
    assert_eq!(stream.message().await, withdrawal(&ask));
    host.gates.reached(RELEASED, 1).await;
}

async fn the_call_is_past_its_deadline(backing: Backing) {
    let limit = Duration::from_secs(30);
    let host = Host::start(backing, move |builder| builder.call_deadline(limit)).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (ask, _) = question_of(&stream.message().await);
    host.sweep_after(limit).await;
    let told = stream.messages().await;
    assert_eq!(told[0], withdrawal(&ask));
    assert_eq!((told.len(), &told[1]["error"]["data"]["reason"]), (2, &json!("deadline")));
    answer_too_late(&session, &ask).await;
}

/// rmcp cancels under an id of its own. The client hears of the one that it knows.
async fn the_handler_gives_up(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "give_up", json!({"name": "now", "then": "later"})).stream().await;
    let ask = asked(&mut stream).await;
    host.gates.reached("now", 1).await;
    host.gates.open("now");
    assert_eq!(stream.message().await, withdrawal(&ask));
    answer_too_late(&session, &ask).await;
    host.gates.open("later");
    let rest = stream.messages().await;
    assert_eq!(rest.iter().map(said).collect::<Vec<_>>(), ["without an answer"]);
}

async fn the_handler_is_done(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask_and_go", json!({"name": "go"})).stream().await;
    let ask = asked(&mut stream).await;
    host.gates.open("go");
    let told = stream.messages().await;
    assert_eq!((told.len(), &told[0], said(&told[1])), (2, &withdrawal(&ask), "gone".to_owned()));
    answer_too_late(&session, &ask).await;
}

/// What is over makes room: nothing piles up that refuses the next.
async fn the_handler_asks_for_ever_and_gives_up_each_time(backing: Backing) {
    let limits = Limits { server_requests: 1, stream_bytes: 4_000, ..Limits::default() };
    let host = Host::start(backing, move |builder| builder.limits(limits.clone())).await;
    let session = Session::open(&host).await;
    host.gates.open("at once");
    for id in 0..100 {
        let arguments = json!({"name": "at once", "then": "at once"});
        let told = session.tool(id, "give_up", arguments).stream().await.messages().await;
        assert_eq!(said(told.last().unwrap()), "without an answer");
        // A withdrawal follows what was asked, unless it was withdrawn before it was sent.
        let asks: Vec<_> = told.iter().filter(|message| message["method"] == "elicitation/create").collect();
        assert!(asks.len() <= 1);
        for ask in asks {
            assert!(told.contains(&withdrawal(&ask["id"])), "{told:?}");
        }
    }
}

async fn what_waits_for_its_turn_ends_with_its_call(backing: Backing) {
    let host =
        Host::start(backing, |builder| builder.limits(Limits { server_requests: 1, ..Limits::default() }))
            .await;
    let session = Session::open(&host).await;
    let mut first = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (ask, _) = question_of(&first.message().await);
    let mut second = session.tool(2, "ask_many", json!({"n": 3})).stream().await;
    session.say(4, "echo", json!({})).await;
    assert_eq!(session.cancel(2).await.status, 202);
    assert!(second.messages().await.is_empty(), "it was never asked, so nothing is withdrawn");
    host.gates.reached("asked many", 1).await;
    let mut third = session.tool(3, "ask_many", json!({"n": 1})).stream().await;
    session.answer(&ask, accepted("1")).await;
    assert!(said(&first.message().await).contains('1'));
    let (ask, message) = question_of(&third.message().await);
    assert_eq!(
        (message.as_str(), &ask),
        ("0", &json!("ask-1")),
        "the cancelled call's asks are out of the way"
    );
}

async fn the_server_goes_down(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (ask, _) = question_of(&stream.message().await);
    within("the drain", host.server().drain(Duration::ZERO)).await;
    let told = stream.messages().await;
    assert_eq!(told[0], withdrawal(&ask));
    assert_eq!((told.len(), &told[1]["error"]["data"]["reason"]), (2, &json!("shutting_down")));
}

/// Sixteen answers, some of them errors, by as many connections.
async fn an_answer_is_taken_once_whatever_it_is(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "ask_many", json!({"n": 1})).stream().await;
    let (ask, _) = question_of(&stream.message().await);
    let answers: Vec<_> = (0..16)
        .map(|no| {
            let (session, ask) = (session.clone(), ask.clone());
            let answer = match no % 2 {
                0 => json!({"jsonrpc": "2.0", "id": ask, "result": accepted(&no.to_string())}),
                _ => json!({"jsonrpc": "2.0", "id": ask, "error": {"code": no, "message": no.to_string()}}),
            };
            tokio::spawn(async move { (no, session.post(&answer).send().await) })
        })
        .collect();
    let mut taken = Vec::new();
    for answer in answers {
        let (no, reply) = answer.await.unwrap();
        if reply.status == 202 {
            taken.push(no);
        } else {
            assert_unasked(&reply);
        }
    }
    assert_eq!(taken.len(), 1);
    let heard = said(&stream.message().await);
    assert!(heard.contains(&format!("{}\"", taken[0])), "{heard} is not the answer {taken:?}");
}
