//! A store that does not answer for a long time: the node writes again what the store refused, and
//! releases what the store holds for clients that are gone.

use std::time::Duration;

use steadfast::SessionEventKind::{Closed, Detached};
use steadfast::store::testing::{Fault, Operation};
use steadfast::{Builder, CloseReason, Timing};
use steadfast_session::Command;

use crate::asks;
use crate::store_faults::{Faulty, assert_try_again, faulty_with, strike};
use crate::support::session::{said, tool_call};
use crate::support::{Backing, Host, Session, TestHandler, json, within};

crate::on_every_store!(
    an_answer_is_offered_for_as_long_as_it_takes,
    an_error_in_place_of_an_answer_is_offered_too,
    the_answers_of_a_batch_come_once_each,
    an_answer_that_was_kept_is_not_replaced_by_the_drain,
    a_listener_that_no_task_serves_is_let_go,
    a_connection_that_could_not_be_recorded_as_broken_is_let_go,
    an_ask_without_an_asker_is_withdrawn,
    a_call_that_stays_unknown_is_ended,
    what_was_read_is_told_even_if_a_begin_fails,
);

/// A host that does not wait for its store, nor sweeps by itself.
pub(crate) async fn impatient(backing: Backing) -> Faulty {
    impatient_and(backing, |builder| builder).await
}

async fn impatient_and(
    backing: Backing,
    configure: impl Fn(Builder<TestHandler>) -> Builder<TestHandler> + Send + Sync + 'static,
) -> Faulty {
    let hour = Duration::from_secs(3600);
    faulty_with(backing, move |builder| {
        configure(builder.finish_retry_window(Duration::ZERO).sweep_interval(hour))
    })
    .await
}

async fn sweep(host: &Host) {
    host.sweep_after(Duration::ZERO).await;
}

async fn an_answer_is_offered_for_as_long_as_it_takes(backing: Backing) {
    let Faulty { host, faults } = impatient(backing).await;
    let session = Session::open(&host).await;
    strike(&faults, |c| matches!(c, Command::Finish(_)), &[Fault::BeforeCommit, Fault::BeforeCommit]);
    let reply = session.tool(1, "echo", json!({"text": "once"})).send().await;
    // The client does not wait for the store; what it gets cannot be resumed from.
    assert_eq!(reply.answers().iter().map(said).collect::<Vec<_>>(), ["once"]);
    assert_eq!(reply.frames().iter().filter(|frame| frame.id.is_some()).count(), 1, "only the priming event");
    let in_flight = session.tool(1, "echo", json!({}));
    assert_eq!(in_flight.send().await.refusal(), (400, -32600));
    sweep(&host).await;
    assert_eq!(in_flight.send().await.refusal(), (400, -32600), "it failed again");
    sweep(&host).await;
    assert_eq!(session.say(1, "echo", json!({"text": "free again"})).await, "free again");
    let priming = reply.frames()[0].id.clone().unwrap();
    let kept = session.resume(&priming).send().await;
    assert_eq!(kept.answers().iter().map(said).collect::<Vec<_>>(), ["once"], "and now it is in the log");
    assert_eq!(faults.injected(), 2);
}

async fn an_error_in_place_of_an_answer_is_offered_too(backing: Backing) {
    let limit = Duration::from_secs(30);
    let Faulty { host, faults } = impatient_and(backing, move |builder| builder.call_deadline(limit)).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "gate", json!({"name": "a", "text": "too late"})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    strike(&faults, |c| matches!(c, Command::Finish(_)), &vec![Fault::BeforeCommit; 3]);
    host.sweep_after(limit).await;
    let told = stream.messages().await;
    assert_eq!((told.len(), &told[0]["error"]["data"]["reason"]), (1, &json!("deadline")));
    // The handler's own answer comes second and is not the one.
    host.gates.open("a");
    let freed = async {
        while session.tool(1, "echo", json!({})).send().await.status != 200 {
            sweep(&host).await;
        }
    };
    within("the call to end", freed).await;
    let kept = session.resume(&priming).send().await.answers();
    assert_eq!((kept.len(), &kept[0]["error"]["data"]["reason"]), (1, &json!("deadline")));
}

async fn the_answers_of_a_batch_come_once_each(backing: Backing) {
    let Faulty { host, faults } = impatient(backing).await;
    let session = Session::at(&host, "2025-03-26").await;
    let batch = |text: &str| {
        let call = |id: i64| tool_call(id, "echo", json!({"text": format!("{text} {id}")}));
        session.post(&json!([call(1), call(2), call(3)]))
    };
    // All three are refused: the client has them from here, and the stream ends.
    strike(&faults, |c| matches!(c, Command::Finish(_)), &vec![Fault::BeforeCommit; 3]);
    let told = batch("a").send().await.answers();
    assert_eq!(told.iter().map(said).collect::<Vec<_>>(), ["a 1", "a 2", "a 3"]);
    sweep(&host).await;
    // One of them is refused while another still runs: it comes when the store has it.
    strike(&faults, |c| matches!(c, Command::Finish(_)), &[Fault::BeforeCommit]);
    let calls = [
        tool_call(1, "echo", json!({"text": "b 1"})),
        tool_call(2, "gate", json!({"name": "b", "text": "b 2"})),
    ];
    let mut stream = session.post(&json!(calls)).stream().await;
    host.gates.reached("b", 1).await;
    session.say(9, "echo", json!({})).await;
    // Whatever was written so that proxies pass the head on is no message.
    let message = async { stream.message().await };
    assert!(tokio::time::timeout(Duration::ZERO, message).await.is_err(), "the stream is not complete");
    host.gates.open("b");
    assert_eq!(said(&stream.message().await), "b 2");
    sweep(&host).await;
    assert_eq!(stream.messages().await.iter().map(said).collect::<Vec<_>>(), ["b 1"]);
    assert_eq!(batch("c").send().await.answers().len(), 3);
}

async fn an_answer_that_was_kept_is_not_replaced_by_the_drain(backing: Backing) {
    let Faulty { mut host, faults } = impatient(backing).await;
    let session = Session::open(&host).await;
    strike(&faults, |c| matches!(c, Command::Finish(_)), &[Fault::BeforeCommit]);
    let reply = session.tool(1, "echo", json!({"text": "mine"})).send().await;
    let priming = reply.frames()[0].id.clone().unwrap();
    host.stop().await;
    host.restart().await;
    let kept = session.via(&host).resume(&priming).send().await;
    assert_eq!(kept.answers().iter().map(said).collect::<Vec<_>>(), ["mine"]);
}

/// It would keep its session from ever ending.
async fn a_listener_that_no_task_serves_is_let_go(backing: Backing) {
    let Faulty { host, faults } = impatient(backing).await;
    let session = Session::open(&host).await;
    strike(&faults, |c| matches!(c, Command::Attach(_)), &[Fault::AfterCommit]);
    assert_try_again(&session.listen().send().await);
    sweep(&host).await;
    host.heard.once(&session, Detached).await;
    host.sweep_after(Timing::default().grace * 2).await;
    host.heard.once(&session, Closed(CloseReason::GraceExpired)).await;
}

async fn a_connection_that_could_not_be_recorded_as_broken_is_let_go(backing: Backing) {
    let Faulty { host, faults } = impatient(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.listen().stream().await;
    stream.next().await;
    strike(&faults, |c| matches!(c, Command::Detach(_)), &[Fault::BeforeCommit]);
    stream.cut();
    let detached = async {
        while host.heard.of(&session).iter().all(|event| *event != Detached) {
            sweep(&host).await;
        }
    };
    within("the broken connection to be recorded", detached).await;
    assert_eq!(faults.injected(), 1);
}

async fn an_ask_without_an_asker_is_withdrawn(backing: Backing) {
    let Faulty { host, faults } = impatient(backing).await;
    let session = Session::open(&host).await;
    let mut listener = session.listen().stream().await;
    strike(&faults, |c| matches!(c, Command::OpenServerRequest(_)), &[Fault::AfterCommit]);
    session.notify("notifications/ask", json!({})).await;
    let (ask, _) = asks::question_of(&listener.message().await);
    let withdrawn = async {
        while listener.is_quiet().await {
            sweep(&host).await;
        }
    };
    within("the withdrawal", withdrawn).await;
    asks::answer_too_late(&session, &ask).await;
}

async fn a_call_that_stays_unknown_is_ended(backing: Backing) {
    let Faulty { host, faults } = impatient(backing).await;
    let session = Session::open(&host).await;
    let call = session.tool(1, "steps", json!({"steps": ["mark:ran"], "text": "served"}));
    // Three attempts, and one to find out what came of them.
    strike(&faults, |c| matches!(c, Command::Begin(_)), &vec![Fault::AfterCommit; 4]);
    assert_try_again(&call.send().await);
    let struck = async {
        while faults.injected() < 4 {
            tokio::task::yield_now().await;
        }
    };
    within("the last attempt", struck).await;
    let served = async {
        loop {
            let reply = call.send().await;
            if reply.status == 200 {
                return reply;
            }
            assert_eq!(reply.refusal(), (400, -32600), "the id is in flight");
            sweep(&host).await;
        }
    };
    assert_eq!(said(&within("the call to end", served).await.answer()), "served");
    assert_eq!(host.gates.count("ran"), 1);
}

async fn what_was_read_is_told_even_if_a_begin_fails(backing: Backing) {
    let Faulty { host, faults } = impatient(backing).await;
    let session = Session::open(&host).await;
    session.say(1, "echo", json!({})).await;
    let told = |fault: Option<Fault>| {
        let (sender, told) = std::sync::mpsc::channel();
        faults.script(move |operation| match operation {
            Operation::Apply(_, Command::Begin(begin)) => {
                let _ = sender.send(begin.delivered.len());
                fault.clone()
            }
            _ => None,
        });
        told
    };
    let first = told(Some(Fault::BeforeCommit));
    let call = session.tool(2, "echo", json!({}));
    // The server hears that an answer was written out a moment after its client has it.
    let failed = async {
        loop {
            assert_try_again(&call.send().await);
            if first.try_iter().last() == Some(1) {
                return;
            }
        }
    };
    within("the server to know what was read", failed).await;
    let again = told(None);
    assert_eq!(call.send().await.status, 200);
    assert_eq!(again.try_iter().last(), Some(1), "the store hears of it this time");
}
