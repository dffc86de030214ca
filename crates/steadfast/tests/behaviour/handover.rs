//! Calls of a node that is gone: those that may be done again are done by another one, once; the
//! others get their error.

use std::sync::Arc;
use std::time::Duration;

use steadfast::store::testing::{Fault, Faults, FaultyStore, Gate, Operation};
use steadfast_session::{Command, Read, Rules, SessionId, StreamNo};

use super::store_faults::strike;
use crate::support::session::said;
use crate::support::{Backing, Builder, Host, Place, Request, Session, Stream, Value, json, within};

crate::on_shared_stores!(
    a_safe_call_is_answered_by_another_node,
    an_unsafe_call_gets_an_explicit_error,
    a_reader_at_another_node_reads_on,
    a_call_is_inherited_once_and_by_one,
    a_call_that_was_inherited_can_be_cancelled,
    what_a_node_does_not_finish_before_it_leaves_is_left_to_another,
    a_node_that_has_left_a_call_to_another_records_no_outcome_of_it,
    an_id_that_comes_to_two_nodes_at_once_is_taken_by_one,
);

async fn host(backing: Backing) -> Host {
    Host::start(backing, |builder| builder.retry_idempotent_calls()).await
}

/// One whose store fails on command.
async fn faulty(place: Place) -> (Host, Faults) {
    let store = Arc::new(FaultyStore::over(place.open(Rules::default())));
    let faults = store.faults.clone();
    let configure =
        move |builder: Builder| builder.custom_store(Arc::clone(&store) as _).retry_idempotent_calls();
    (Host::start_on(place, configure).await, faults)
}

/// A call that waits at the gate `a`. Gives its stream and the event to resume from.
async fn waiting(host: &Host, session: &Session, id: &str, tool: &str, steps: Value) -> (Stream, String) {
    let before = host.gates.count("a");
    let mut stream = session.tool(id, tool, json!({"steps": steps, "text": "seen"})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    host.gates.reached("a", before + 1).await;
    (stream, priming)
}

/// Sweeps until as many have come to the gate `a`.
async fn inherited(host: &Host, count: usize) {
    let swept = async {
        while host.gates.count("a") < count {
            host.sweep_after(Duration::ZERO).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("the successor", swept).await;
}

/// The messages of a stream that is complete, read from its beginning.
async fn replayed(session: &Session, priming: &str) -> Vec<Value> {
    session.resume(priming).stream().await.messages().await
}

fn assert_unknown(answer: &Value, id: &str) {
    assert_eq!(answer["id"], id);
    assert_eq!(answer["error"]["data"], json!({"reason": "outcome_unknown", "retryable": false}));
}

async fn a_safe_call_is_answered_by_another_node(backing: Backing) {
    let mut host = host(backing).await;
    let other = host.beside().await;
    let session = Session::open(&host).await;
    let steps = json!(["progress", "gate:a", "progress"]);
    let (mut stream, priming) = waiting(&host, &session, "x", "look", steps).await;
    host.crash().await;
    while let Ok(Some(_)) = stream.try_next().await {}
    inherited(&other, 2).await;
    let there = session.via(&other);
    let mut resumed = there.resume(&priming).stream().await;
    other.gates.open("a");
    let messages = resumed.messages().await;
    let answers: Vec<_> = messages.iter().filter(|message| message.get("id").is_some()).collect();
    assert_eq!(answers.iter().map(|answer| said(answer)).collect::<Vec<_>>(), ["seen"]);
    assert_eq!(answers[0]["id"], "x");
    assert_eq!(replayed(&there, &priming).await, messages, "and no other ever");
    assert_eq!(other.gates.count("a"), 2);
    assert_eq!(there.say("x", "echo", json!({"text": "again"})).await, "again", "its id is free");
}

async fn an_unsafe_call_gets_an_explicit_error(backing: Backing) {
    let mut host = host(backing).await;
    let other = host.beside().await;
    let session = Session::open(&host).await;
    let (_safe, _) = waiting(&host, &session, "safe", "look", json!(["gate:a"])).await;
    let (_stream, priming) = waiting(&host, &session, "x", "steps", json!(["gate:a"])).await;
    host.crash().await;
    inherited(&other, 3).await;
    let messages = replayed(&session.via(&other), &priming).await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_unknown(&messages[0], "x");
    assert_eq!(other.gates.count("a"), 3, "no node has run it twice");
}

async fn a_reader_at_another_node_reads_on(backing: Backing) {
    let mut host = host(backing).await;
    let other = host.beside().await;
    let session = Session::open(&host).await;
    let steps = json!(["progress", "gate:a", "progress"]);
    let (stream, priming) = waiting(&host, &session, "x", "look", steps).await;
    stream.cut();
    let mut resumed = session.via(&other).resume(&priming).stream().await;
    assert_eq!(resumed.message().await["params"]["progress"], 1.0);
    host.crash().await;
    inherited(&other, 2).await;
    assert_eq!(resumed.message().await["params"]["progress"], 1.0, "the successor starts the call again");
    other.gates.open("a");
    assert_eq!(resumed.message().await["params"]["progress"], 3.0);
    assert_eq!(said(&resumed.message().await), "seen");
}

async fn a_call_is_inherited_once_and_by_one(backing: Backing) {
    let mut host = host(backing).await;
    let (mut second, mut third) = (host.beside().await, host.beside().await);
    let session = Session::open(&host).await;
    let (_stream, priming) = waiting(&host, &session, "x", "look", json!(["gate:a"])).await;
    host.crash().await;
    tokio::join!(inherited(&second, 2), inherited(&third, 2));
    for node in [&second, &third] {
        node.sweep_after(Duration::ZERO).await;
    }
    assert_eq!(host.gates.count("a"), 2, "one of them has it");
    // Now the node that runs the call crashes, too. The last node starts when both are gone.
    second.crash().await;
    third.crash().await;
    let fourth = host.beside().await;
    let last = session.via(&fourth);
    let over = async {
        loop {
            fourth.sweep_after(Duration::ZERO).await;
            let reply = last.tool("x", "echo", json!({})).send().await;
            if reply.status == 200 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("the end of the call", over).await;
    let messages = replayed(&last, &priming).await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_unknown(&messages[0], "x");
    assert_eq!(host.gates.count("a"), 2, "twice is enough");
}

async fn a_call_that_was_inherited_can_be_cancelled(backing: Backing) {
    let mut host = host(backing).await;
    let (other, third) = (host.beside().await, host.beside().await);
    let session = Session::open(&host).await;
    let steps = json!(["gate:a", "until_cancelled"]);
    let (_stream, priming) = waiting(&host, &session, "x", "look", steps).await;
    host.crash().await;
    inherited(&other, 2).await;
    other.gates.open("a");
    other.gates.reached("waiting to be cancelled", 1).await;
    let there = session.via(&third);
    let mut resumed = there.resume(&priming).stream().await;
    assert_eq!(there.cancel("x").await.status, 202);
    other.gates.reached("cancelled", 1).await;
    assert_eq!(resumed.messages().await, [] as [Value; 0]);
}

async fn what_a_node_does_not_finish_before_it_leaves_is_left_to_another(backing: Backing) {
    let mut host = host(backing).await;
    let other = host.beside().await;
    let session = Session::open(&host).await;
    let (_safe, priming) = waiting(&host, &session, "safe", "look", json!(["gate:a"])).await;
    let (_unsafe, of_unsafe) = waiting(&host, &session, "unsafe", "steps", json!(["gate:a"])).await;
    host.stop().await;
    inherited(&other, 3).await;
    let there = session.via(&other);
    let error = &replayed(&there, &of_unsafe).await[0];
    assert_eq!(error["error"]["data"]["reason"], "shutting_down");
    let mut resumed = there.resume(&priming).stream().await;
    other.gates.open("a");
    assert_eq!(said(&resumed.message().await), "seen");
}

/// The process may shut its runtime down by then, and what its handlers return is worth nothing.
async fn a_node_that_has_left_a_call_to_another_records_no_outcome_of_it(backing: Backing) {
    let host = host(backing).await;
    let other = host.beside().await;
    let session = Session::open(&host).await;
    let (_stream, priming) = waiting(&host, &session, "x", "look", json!(["gate:a", "panic"])).await;
    within("the drain", host.server().drain(Duration::ZERO)).await;
    // The handler of the node that has left panics now.
    host.gates.open("a");
    inherited(&other, 2).await;
    let messages = replayed(&session.via(&other), &priming).await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0]["error"]["data"]["reason"], "handler_panicked", "of the node that ran it again");
}

async fn an_id_that_comes_to_two_nodes_at_once_is_taken_by_one(backing: Backing) {
    let host = host(backing).await;
    let other = host.beside().await;
    let session = Session::open(&host).await;
    let there = session.via(&other);
    for round in 0..10 {
        let gate = format!("round {round}");
        let arguments = json!({"steps": [format!("gate:{gate}")]});
        let (here, elsewhere) =
            (session.tool(1, "look", arguments.clone()), there.tool(1, "look", arguments));
        let status = async |request: Request| request.leave().await.status().await;
        let (one, two) = tokio::join!(status(here), status(elsewhere));
        let mut statuses = [one, two];
        statuses.sort_unstable();
        assert_eq!((statuses, host.gates.count(&gate)), ([200, 400], 1));
        host.gates.open(&gate);
        // Its id is free when its answer is in the log.
        let free = async { while session.tool(1, "echo", json!({})).send().await.status == 400 {} };
        within("the end of the call", free).await;
    }
}

#[tokio::test]
async fn a_server_that_is_restarted_does_what_may_be_done_again() {
    let mut host = host(Backing::Sqlite).await;
    let session = Session::open(&host).await;
    let (_stream, priming) = waiting(&host, &session, "x", "look", json!(["gate:a"])).await;
    host.restart().await;
    host.gates.reached("a", 2).await;
    let mut resumed = session.via(&host).resume(&priming).stream().await;
    host.gates.open("a");
    assert_eq!(resumed.messages().await.iter().map(said).collect::<Vec<_>>(), ["seen"]);
}

/// A process that was stopped for so long that it was taken for dead, and goes on.
#[tokio::test]
async fn a_node_that_wakes_up_after_it_was_reaped_has_no_say() {
    let host = host(Backing::Sqlite).await;
    let signs = host.signs_of_life();
    let other = host.beside().await;
    let session = Session::open(&host).await;
    let there = session.via(&other);
    let mut listener = there.listen().stream().await;
    let steps = json!(["gate:a", "progress", "log:10", "mark:through"]);
    let (mut stream, priming) = waiting(&host, &session, "x", "look", steps).await;
    signs.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    inherited(&other, 2).await;
    let mut resumed = there.resume(&priming).stream().await;
    host.gates.open("a");
    host.gates.reached("through", 2).await;
    let messages = resumed.messages().await;
    assert_eq!(messages.len(), 3, "progress, a log message and an answer of one of them: {messages:?}");
    assert_eq!(said(&messages[2]), "seen");
    // Both have finished, and whatever the first had to say went nowhere.
    while let Ok(Some(_)) = stream.try_next().await {}
    assert_eq!(replayed(&there, &priming).await, messages);
    // Nor to a standalone stream. And it works on.
    session.call("y", "notify_later", json!({"uri": "test:alive"})).await;
    assert_eq!(listener.message().await["params"]["uri"], "test:alive");
}

/// If the sweep of a session fails, another node still takes over the calls of a dead node.
#[tokio::test]
async fn a_sweep_that_fails_keeps_no_call_from_its_successor() {
    let place = Backing::Sqlite.place();
    let mut host = Host::start_on(place.clone(), |builder| builder.retry_idempotent_calls()).await;
    let (other, faults) = faulty(place).await;
    let session = Session::open(&host).await;
    let (_stream, _) = waiting(&host, &session, "x", "look", json!(["gate:a"])).await;
    host.crash().await;
    faults.script(|operation| matches!(operation, Operation::Sweep).then_some(Fault::BeforeCommit));
    let inherited = async {
        while other.gates.count("a") < 1 {
            other.server().sweep().await.expect_err("the sweep fails");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("the successor", inherited).await;
}

/// Two look for the same call at once: the one who may is slow and fails, the other one leaves it
/// to the first.
#[tokio::test]
async fn a_call_is_inherited_though_the_first_look_for_it_fails() {
    let place = Backing::Sqlite.place();
    let mut host = Host::start_on(place.clone(), |builder| builder.retry_idempotent_calls()).await;
    let (other, faults) = faulty(place).await;
    let session = Session::open(&host).await;
    let (_stream, _) = waiting(&host, &session, "x", "look", json!(["gate:a"])).await;
    let slow = Gate::new();
    faults
        .push_for(|operation| matches!(operation, Operation::Holdings(_)), Fault::HoldAndFail(slow.clone()));
    host.crash().await;
    let looks = async {
        while faults.injected() < 1 {
            // A sweep may be the one that looks: it is not waited for.
            let server = other.server().clone();
            tokio::spawn(async move { server.sweep().await });
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("the first look", looks).await;
    other.sweep_after(Duration::ZERO).await;
    slow.open();
    inherited(&other, 1).await;
}

/// A node does not know yet whether a call has begun when it is stopped, for so long that it is
/// taken for dead, and perhaps until its successor has answered.
#[tokio::test]
async fn a_node_that_wakes_up_with_a_begin_in_doubt_reads_what_the_successor_answers() {
    for sleeps_through_the_answer in [false, true] {
        wakes_up_with_a_begin_in_doubt(sleeps_through_the_answer).await;
    }
}

/// The first stream of a session that a call has is complete.
async fn ended(place: &Place, session: SessionId) {
    let store = place.open(Rules::default());
    while !matches!(store.read(session, StreamNo(1), 0, 1024).await, Ok(Read::Slice(slice)) if slice.ended) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn wakes_up_with_a_begin_in_doubt(sleeps_through_the_answer: bool) {
    let place = Backing::Sqlite.place();
    let (host, faults) = faulty(place.clone()).await;
    let signs = host.signs_of_life();
    let other = Host::start_on(place.clone(), |builder| builder.retry_idempotent_calls()).await;
    let session = Session::open(&host).await;
    let wakes_up = Gate::new();
    let in_doubt = [Fault::AfterCommit, Fault::HoldBefore(wakes_up.clone())];
    strike(&faults, |command| matches!(command, Command::Begin(_)), &in_doubt);
    let call = session.tool("x", "look", json!({"steps": ["gate:a"], "text": "seen"}));
    let messages = tokio::spawn(async move { call.stream().await.messages().await });
    let asks_again = async {
        while faults.injected() < 2 {
            tokio::task::yield_now().await;
        }
    };
    within("the second begin", asks_again).await;
    signs.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    inherited(&other, 1).await;
    if sleeps_through_the_answer {
        other.gates.open("a");
        within("the successor's answer", ended(&place, session.session_id())).await;
        wakes_up.open();
    } else {
        let reads = Gate::new();
        faults
            .push_for(|operation| matches!(operation, Operation::Read(..)), Fault::HoldBefore(reads.clone()));
        wakes_up.open();
        within("the reader", reads.reached()).await;
        other.gates.open("a");
        reads.open();
    }
    let messages = within("the answer", messages).await.unwrap();
    assert_eq!(messages.iter().map(said).collect::<Vec<_>>(), ["seen"]);
    assert_eq!(host.gates.count("a"), 0, "only the successor runs it");
}

#[tokio::test]
async fn nothing_is_done_again_unless_that_is_asked_for() {
    let mut host = Host::plain(Backing::Sqlite).await;
    let session = Session::open(&host).await;
    let (_stream, priming) = waiting(&host, &session, "x", "look", json!(["gate:a"])).await;
    host.restart().await;
    let messages = replayed(&session.via(&host), &priming).await;
    assert_unknown(&messages[0], "x");
}
