//! ProcessPool behind gateways that share their sessions: a program is a child of one of them, and
//! the others bring their calls there.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_engine::Rules;
use steadfast_http::ResponseMode;
use steadfast_session::command::{Begin, BeginMode};
use steadfast_session::{Command, Read, StreamNo};
use steadfast_store::Store;
use steadfast_store::testing::{Fault, Faults, FaultyStore, Gate, Operation};
use steadfast_upstream::{Config, Program, Server as Kind, Stdio};

use crate::support::{Backing, Builder, Host, Place, Session, Stream, Value, json, within};

use super::reason;

pub(super) fn program(builder: Builder) -> Builder {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stdio/server.py");
    let arguments = vec![script.display().to_string(), "good".to_owned()];
    let program = Program { command: "python3".to_owned(), arguments, ..Program::default() };
    builder.patience(Duration::from_secs(10)).upstream(|config| {
        let (patience, backoff) = (config.unavailable_timeout, config.backoff);
        *config = Config::stdio(program.clone());
        (config.unavailable_timeout, config.backoff) = (patience, backoff);
        config.server =
            Kind::Stdio(Stdio { exit_timeout: Duration::from_millis(200), ..Stdio::new(program.clone()) });
    })
}

struct Pair {
    here: Host,
    there: Host,
    /// By way of the first, where the program is, and of the other.
    session: Session,
    other: Session,
}

async fn pair() -> Pair {
    pair_with("2025-11-25", program).await
}

async fn pair_with(revision: &str, configure: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Pair {
    let here = Host::before(Backing::shared(), [], configure).await;
    let there = here.beside().await;
    let session = Session::at(&here, revision).await;
    let other = session.via(&there);
    Pair { here, there, session, other }
}

async fn pid(session: &Session, id: u64) -> u64 {
    let answer = super::call(session, id, "echo").await;
    answer["result"]["pid"].as_u64().unwrap_or_else(|| panic!("{answer}"))
}

/// Starts a call that the program does not answer. Returns its stream and the event to resume from.
async fn hanging(session: &Session, id: u64) -> (Stream, String) {
    let mut stream = session.tool(id, "hang", json!({})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    (stream, priming)
}

async fn sweep_until_answered(host: &Host, session: &Session, priming: &str) -> Value {
    let swept = async {
        loop {
            host.sweep_after(Duration::ZERO).await;
            let mut stream = session.resume(priming).stream().await;
            let next = tokio::time::timeout(Duration::from_millis(200), stream.message()).await;
            if let Ok(message) = next {
                return message;
            }
        }
    };
    within("the end of the call", swept).await
}

#[tokio::test]
async fn calls_reach_the_one_program_wherever_they_come() {
    let Pair { here: _here, there: _there, session, other } = pair().await;
    let first = pid(&session, 1).await;
    for id in 2..5 {
        assert_eq!((pid(&other, id).await, pid(&session, id).await), (first, first));
    }
    let calls: Vec<_> = (10..20).map(|id| pid(&other, id)).collect();
    for call in calls {
        assert_eq!(call.await, first);
    }
}

#[tokio::test]
async fn what_a_call_says_and_asks_reaches_its_client_at_the_other_gateway() {
    let Pair { here: _here, there: _there, session, other } = pair().await;
    pid(&session, 1).await;
    let params = json!({"name": "progress", "arguments": {}, "_meta": {"progressToken": "t"}});
    let mut stream = other.request(2, "tools/call", params).stream().await;
    for step in [1, 2] {
        let progress = stream.message().await;
        assert_eq!(progress["params"], json!({"progressToken": "t", "progress": step}));
    }
    assert_eq!(stream.message().await["id"], 2);
    let mut stream = other.tool(3, "ask", json!({})).stream().await;
    let asked = stream.message().await;
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(other.answer(&asked["id"], json!({"action": "decline"})).await.status, 202);
    assert_eq!(stream.message().await["result"]["answer"]["result"], json!({"action": "decline"}));
}

#[tokio::test]
async fn what_the_client_cancels_and_says_reaches_the_program() {
    let Pair { here: _here, there: _there, session, other } = pair().await;
    pid(&session, 1).await;
    let (mut stream, _) = hanging(&other, 2).await;
    // It is at the program when another one has its answer.
    pid(&other, 3).await;
    assert_eq!(other.cancel(2).await.status, 202);
    assert_eq!(stream.messages().await, [] as [Value; 0]);
    assert_eq!(other.notify("notifications/roots/list_changed", json!({})).await.status, 202);
    let heard = async {
        loop {
            let seen = super::call(&session, 4, "seen").await["result"]["seen"].to_string();
            if seen.contains("notifications/cancelled") && seen.contains("notifications/roots/list_changed") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("both notifications", heard).await;
}

#[tokio::test]
async fn a_program_that_goes_with_its_gateway_is_started_by_another() {
    let Pair { mut here, there, session, other } = pair().await;
    let first = pid(&session, 1).await;
    let (_stream, priming) = hanging(&other, 2).await;
    assert_eq!(pid(&other, 3).await, first, "the other call is there as well");
    here.crash().await;
    let lost = sweep_until_answered(&there, &other, &priming).await;
    assert_eq!(reason(&lost), ("outcome_unknown".to_owned(), false));
    let second = pid(&other, 4).await;
    assert_ne!(second, first);
    assert_eq!(pid(&other, 5).await, second);
}

#[tokio::test]
async fn a_gateway_that_drains_gives_its_sessions_up_and_finishes_its_calls() {
    let Pair { here, there: _there, session, other } = pair().await;
    let first = pid(&session, 1).await;
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let mut slow = other.tool(2, "wait", json!({"for": go})).stream().await;
    slow.next().await;
    // It is at the program when another one has its answer.
    assert_eq!(pid(&other, 3).await, first);
    let draining = here.server().clone();
    let drained = tokio::spawn(async move { draining.drain(Duration::from_secs(60)).await });
    let moved = async {
        loop {
            let answer = super::call(&other, 4, "echo").await;
            if answer["result"]["pid"].as_u64().is_some_and(|pid| pid != first) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("a new program", moved).await;
    assert!(!drained.is_finished(), "the session moves before the drain ends");
    std::fs::write(&go, "").unwrap();
    assert_eq!(slow.message().await["result"]["pid"], json!(first), "begun there, finished there");
    drained.await.unwrap();
}

/// The other gateway has a store that fails on command. Gives the store of the first, too.
async fn pair_with_faults() -> (Pair, Faults, Arc<dyn Store>, Place) {
    let place = Backing::shared().place();
    let [one, two] = place.open_twice(Rules::default());
    let faulty = Arc::new(FaultyStore::over(two));
    let faults = faulty.faults.clone();
    let stores: Mutex<Vec<Arc<dyn Store>>> = Mutex::new(vec![faulty, Arc::clone(&one)]);
    let configure = move |builder| program(builder).custom_store(stores.lock().unwrap().pop().unwrap());
    (pair_with("2025-11-25", configure).await, faults, one, place)
}

fn gives_away(operation: Operation<'_>) -> Option<&Begin> {
    match operation {
        Operation::Apply(_, Command::Begin(begin)) if begin.owner != begin.node => Some(begin),
        _ => None,
    }
}

/// How many calls have come to the program, this one included.
async fn calls_seen(session: &Session, id: u64) -> usize {
    let answer = super::call(session, id, "seen").await;
    let seen = answer["result"]["seen"].as_array().unwrap().clone();
    seen.iter().filter(|seen| **seen == "tools/call").count()
}

/// A gateway is cut off from the store when it has just given a call to another, and for longer
/// than the call takes.
#[tokio::test]
async fn a_call_is_done_once_though_the_gateway_that_it_came_to_was_cut_off() {
    let (pair, faults, store, _place) = pair_with_faults().await;
    let Pair { here: _here, there: _there, session, other } = pair;
    let first = pid(&session, 1).await;
    let is_back = Gate::new();
    for fault in [Fault::AfterCommit, Fault::HoldBefore(is_back.clone())] {
        faults.push_for(|operation| gives_away(operation).is_some(), fault);
    }
    let call = other.tool(2, "echo", json!({}));
    let answer = tokio::spawn(async move { call.send().await.answer() });
    let is_done = async || {
        let read = store.read(session.session_id(), StreamNo(2), 0, u64::MAX).await.unwrap();
        faults.injected() == 2 && matches!(read, Read::Slice(slice) if slice.ended)
    };
    let done = async {
        while !is_done().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the end of the call", done).await;
    is_back.open();
    let answer = within("the answer", answer).await.unwrap();
    assert_eq!((&answer["id"], answer["result"]["pid"].as_u64()), (&json!(2), Some(first)));
    assert_eq!(calls_seen(&session, 3).await, 3);
}

/// Whether another gateway was given the call is never found out.
#[tokio::test]
async fn a_call_in_doubt_is_not_to_be_tried_again_and_does_not_begin_afterwards() {
    let (pair, faults, _store, _place) = pair_with_faults().await;
    let Pair { here: _here, there: _there, session, other } = pair;
    pid(&session, 1).await;
    let recalled = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&recalled);
    faults.script(move |operation| {
        let is_recall = gives_away(operation)?.mode == BeginMode::Recall;
        seen.fetch_or(is_recall, Ordering::SeqCst);
        (!is_recall).then_some(Fault::Lost)
    });
    let reply = other.tool(2, "echo", json!({})).send().await;
    assert_eq!((reply.status, reply.header("retry-after")), (500, None));
    assert_eq!(reason(&reply.json()), ("outcome_unknown".to_owned(), false));
    let is_recalled = async {
        while !recalled.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the recall", is_recalled).await;
    assert_eq!(calls_seen(&session, 3).await, 2);
}

/// Drains a gateway in a task of its own, and waits until that has begun.
async fn draining(host: &Host, session: &Session, patience: Duration) -> tokio::task::JoinHandle<()> {
    let server = host.server().clone();
    let drained = tokio::spawn(async move { server.drain(patience).await });
    let refuses = async { while session.tool(99, "echo", json!({})).send().await.status != 503 {} };
    within("the drain to begin", refuses).await;
    drained
}

/// A client that cannot come back for its answer, because all it gets is the answer, or because
/// nothing in its stream has an id.
#[tokio::test]
async fn a_gateway_that_drains_lets_clients_wait_for_calls_of_another_if_they_cannot_come_back() {
    let plain = |builder: Builder| program(builder).response(ResponseMode::Json);
    for pair in [pair_with("2025-11-25", plain).await, pair_with("2025-06-18", program).await] {
        let Pair { here: _here, there, session, other } = pair;
        let first = pid(&session, 1).await;
        let folder = tempfile::tempdir().unwrap();
        let sign = folder.path().join("sign");
        let slow = other.tool(2, "wait", json!({"for": sign})).leave().await;
        // It is at the program when another one has its answer.
        assert_eq!(pid(&other, 3).await, first);
        let drained = draining(&there, &other, Duration::from_secs(60)).await;
        assert!(!drained.is_finished(), "the client is waited for");
        std::fs::write(&sign, "").unwrap();
        let reply = slow.reply().await;
        assert_eq!((reply.status, reply.answer()["result"]["pid"].as_u64()), (200, Some(first)));
        within("the drain", drained).await.unwrap();
    }
}

#[tokio::test]
async fn a_gateway_that_cannot_wait_any_longer_does_not_ask_for_a_second_try() {
    let plain = |builder: Builder| program(builder).response(ResponseMode::Json);
    for pair in [pair_with("2025-11-25", plain).await, pair_with("2025-06-18", program).await] {
        let Pair { here: _here, there, session, other } = pair;
        let first = pid(&session, 1).await;
        let hangs = other.tool(2, "hang", json!({})).leave().await;
        assert_eq!(pid(&other, 3).await, first);
        let drained = draining(&there, &other, Duration::from_millis(50)).await;
        let answers = hangs.reply().await.answers();
        assert_eq!((answers.len(), &answers[0]["id"]), (1, &json!(2)));
        assert_eq!(reason(&answers[0]), ("shutting_down".to_owned(), false));
        within("the drain", drained).await.unwrap();
    }
}

/// A gateway that was stopped for so long that it was taken for dead, and goes on.
#[tokio::test]
async fn a_gateway_that_wakes_up_has_no_program_any_more() {
    let here = Host::before(Backing::Sqlite, [], program).await;
    let signs = here.signs_of_life();
    let there = here.beside().await;
    let session = Session::open(&here).await;
    let other = session.via(&there);
    let first = pid(&session, 1).await;
    signs.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    // The other gateway goes by what it knows for a second, and then looks again.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    there.sweep_after(Duration::ZERO).await;
    let second = pid(&other, 2).await;
    assert_ne!(first, second);
    assert_eq!(pid(&session, 3).await, second, "what comes to the sleeper goes where the program is");
    let is_gone = async {
        while Path::new(&format!("/proc/{first}")).exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("the end of the old program", is_gone).await;
}
