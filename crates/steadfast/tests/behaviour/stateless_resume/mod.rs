//! 2026-07-28: the response to a request that takes its time can be resumed, by its client alone,
//! at every node.

use std::time::Duration;

use steadfast_session::command::{GetState, StateGot, Sweep, Swept};
use steadfast_session::{Holdings, SessionId, SessionToken};
use steadfast_store::StoreExt as _;

use crate::support::session::said;
use crate::support::sse::resumed;
use crate::support::{Backing, Frame, Host, Modern, Session, Value, json, within};

mod nodes;
mod slow_and_failing_stores;

crate::on_every_store!(
    a_request_cut_at_every_event_is_resumed_byte_for_byte,
    a_request_cut_twice_and_resumed_after_its_answer,
    a_request_is_resumed_with_the_headers_of_a_session,
    a_request_that_no_client_resumes_is_cancelled_after_the_grace,
    a_request_that_is_resumed_within_the_grace_goes_on,
    another_principal_and_a_forged_id_get_the_same_answer,
    an_answer_that_was_read_is_removed_soon,
    an_answer_that_was_not_read_is_kept_for_the_retention,
    a_stored_request_that_never_returns_meets_its_deadline,
    a_server_that_goes_down_fails_a_stored_request_that_takes_too_long,
);

fn steps(steps: &[&str]) -> Value {
    json!({"steps": steps, "text": "line one\nline two, ünïcode"})
}

fn eager(host: &Host) -> Modern {
    Modern::to(host).meta("progressToken", "p")
}

fn raw(frames: &[Frame]) -> String {
    let frames = frames.iter().filter(|frame| frame.comment.is_none());
    frames.map(|frame| String::from_utf8_lossy(&frame.raw).into_owned()).collect()
}

fn id(frame: &Frame) -> String {
    frame.id.clone().expect("an event id")
}

/// The job that an event id leads to.
fn job(event: &str) -> SessionId {
    SessionToken::parse(event.split('.').next().unwrap()).expect("a token").id()
}

/// Waits until the store knows that no connection reads the response.
pub(crate) async fn detached(host: &Host, event: &str) {
    let engine = host.server().service().engine().clone();
    let known = async {
        loop {
            let held = engine.store().holdings(job(event), engine.node()).await.expect("the store works");
            if matches!(held, Holdings::Held { detached_at: Some(_), .. }) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within("the end of a connection", known).await;
}

/// Waits until the store knows that a client has read the answer. The job ends soon after that.
async fn read_completely(host: &Host, event: &str) {
    let engine = host.server().service().engine().clone();
    let timing = steadfast::Timing::default();
    let end = engine.now().plus(timing.touch).plus(timing.linger);
    let known = async {
        while engine.store().run(job(event), Sweep, engine.now()).await.expect("the store works")
            != Swept::Next(Some(end))
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    within("the delivery of an answer", known).await;
}

async fn sessions(host: &Host) -> u64 {
    host.server().service().engine().store().usage().await.expect("the store works").sessions
}

fn grace() -> Duration {
    steadfast_engine::Options::default().resume_grace
}

fn outcome_unknown(answer: &Value, id: impl Into<Value>) {
    assert_eq!(answer["id"], id.into());
    assert_eq!(answer["error"]["data"], json!({"reason": "outcome_unknown", "retryable": false}));
}

async fn a_request_cut_at_every_event_is_resumed_byte_for_byte(backing: Backing) {
    let host = Host::plain(backing).await;
    let client = eager(&host);
    for cut_after in 1..=3 {
        let gate = format!("gate {cut_after}");
        let plan = steps(&["progress", "progress", &format!("gate:{gate}"), "log:10", "progress"]);
        let mut first = client.tool("my id", "steps", plan).stream().await;
        assert!(first.headers.iter().all(|(name, _)| name != "mcp-session-id"));
        let mut seen = Vec::new();
        for _ in 0..cut_after {
            seen.push(first.next().await.expect("an event before the gate"));
        }
        assert!(seen[0].is_priming(), "{seen:?}");
        first.cut();
        let from = id(seen.last().unwrap());
        let mut second = client.resume(&from).stream().await;
        host.gates.reached(&gate, 1).await;
        host.gates.open(&gate);
        seen.extend(resumed(&second.rest().await, &from));
        assert_eq!(seen.len(), 5, "priming, three times progress, the answer: {seen:?}");
        let answer = seen[4].message().unwrap();
        assert_eq!(
            (&answer["id"], said(&answer)),
            (&json!("my id"), "line one\nline two, ünïcode".to_owned())
        );
        // Every position leads to the same rest, byte for byte.
        for (i, frame) in seen.iter().enumerate() {
            let rest = client.resume(&id(frame)).send().await;
            assert_eq!((rest.status, raw(&resumed(&rest.frames(), &id(frame)))), (200, raw(&seen[i + 1..])));
        }
    }
}

async fn a_request_cut_twice_and_resumed_after_its_answer(backing: Backing) {
    let host = Host::plain(backing).await;
    let client = eager(&host);
    let mut first = client.tool(7, "steps", steps(&["progress", "gate:a", "mark:done"])).stream().await;
    let priming = first.next().await.expect("a priming event");
    first.cut();
    let mut second = client.resume(&id(&priming)).stream().await;
    let again = second.next().await.expect("the same id first");
    assert_eq!(again.raw, priming.raw);
    let progress = second.event().await;
    second.cut();
    detached(&host, &id(&priming)).await;
    host.gates.open("a");
    host.gates.reached("done", 1).await;
    let messages = client.resume(&id(&progress)).send().await.messages();
    assert_eq!((messages.len(), &messages[0]["id"]), (1, &json!(7)), "{messages:?}");
    let messages = client.resume(&id(&priming)).send().await.messages();
    assert_eq!((messages.len(), said(&messages[1])), (2, "line one\nline two, ünïcode".to_owned()));
}

/// As mcp-remote does: it has a session of its own, and passes on the requests of a client that
/// has none.
async fn a_request_is_resumed_with_the_headers_of_a_session(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut first = eager(&host).tool(7, "steps", steps(&["gate:a"])).stream().await;
    let priming = first.next().await.expect("a priming event");
    first.cut();
    let mut second = session.resume(&id(&priming)).stream().await;
    assert_eq!(second.next().await.expect("the same id first").raw, priming.raw);
    host.gates.open("a");
    let answer = second.rest().await.last().and_then(Frame::message).expect("an answer");
    assert_eq!((&answer["id"], said(&answer)), (&json!(7), "line one\nline two, ünïcode".to_owned()));
}

async fn a_request_that_no_client_resumes_is_cancelled_after_the_grace(backing: Backing) {
    let host = Host::plain(backing).await;
    let client = eager(&host);
    let mut stream = client.tool(1, "until_cancelled", json!({})).stream().await;
    let priming = id(&stream.next().await.expect("a priming event"));
    host.sweep_after(10 * grace()).await;
    stream.cut();
    detached(&host, &priming).await;
    // The grace begins when the owner hears of it.
    host.sweep_after(Duration::ZERO).await;
    host.sweep_after(grace() - Duration::from_millis(1)).await;
    assert_eq!(host.gates.count("cancelled"), 0);
    host.sweep_after(Duration::from_millis(1)).await;
    host.gates.reached("cancelled", 1).await;
    super::stateless_endings::nothing_is_left(&host).await;
    // A client that comes later is told.
    let answer = client.resume(&priming).send().await.answer();
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&json!(1), &json!("cancelled")));
}

async fn a_request_that_is_resumed_within_the_grace_goes_on(backing: Backing) {
    let host = Host::plain(backing).await;
    let client = eager(&host);
    let mut stream = client.tool(1, "steps", steps(&["gate:a"])).stream().await;
    let priming = id(&stream.next().await.expect("a priming event"));
    for _ in 0..3 {
        stream.cut();
        detached(&host, &priming).await;
        host.sweep_after(grace() - Duration::from_millis(1)).await;
        stream = client.resume(&priming).stream().await;
        assert_eq!(id(&stream.next().await.expect("a priming event")), priming);
        host.sweep_after(grace()).await;
    }
    host.gates.open("a");
    assert_eq!(stream.messages().await.len(), 1);
}

async fn another_principal_and_a_forged_id_get_the_same_answer(backing: Backing) {
    let host = Host::start(backing, |builder| {
        builder.principal(|parts| {
            let token = parts.headers.get("authorization").and_then(|value| value.to_str().ok());
            Ok(steadfast::Principal::new(token.unwrap_or_default()))
        })
    })
    .await;
    let (owner, other) = (eager(&host).known_as("owner"), eager(&host).known_as("other"));
    let mut stream = owner.tool(1, "steps", steps(&["progress", "gate:a"])).stream().await;
    let priming = id(&stream.next().await.expect("a priming event"));
    stream.event().await;
    let unknown = SessionToken::from_random([7; 24]).expose();
    let forged = format!("{unknown}.0.1");
    let foreign = within("an answer", other.resume(&priming).send()).await;
    outcome_unknown(&foreign.answer(), 1);
    assert!(foreign.frames().iter().all(|frame| frame.id.is_none()), "{}", foreign.text());
    for (client, id) in [(&other, &forged), (&owner, &forged)] {
        let reply = client.resume(id).send().await;
        assert_eq!((reply.status, &reply.body), (200, &foreign.body));
        let names = |reply: &crate::support::Reply| -> Vec<String> {
            reply.headers.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&reply), names(&foreign));
    }
    // The position is beyond the end of the stream: the client cannot have that id.
    let beyond = priming.replacen(".0.", ".99.", 1);
    outcome_unknown(&owner.resume(&beyond).send().await.answer(), 1);
    for malformed in ["x", "1-0-0000beef", &format!("{unknown}.0"), &format!("{unknown}x.0.1"), "a.0.1"] {
        assert_eq!(owner.resume(malformed).send().await.refusal(), (400, -32600), "{malformed:?}");
    }
    for plain in [owner.resume(&priming).without("Last-Event-ID"), owner.resume("")] {
        assert_eq!(plain.send().await.status, 405);
    }
    // None of them has disturbed the reader.
    host.gates.open("a");
    assert_eq!(stream.messages().await.len(), 1);
}

async fn an_answer_that_was_read_is_removed_soon(backing: Backing) {
    // Nothing but the delivery can cause the removal.
    let day = Duration::from_secs(24 * 60 * 60);
    let timing = steadfast::Timing { retention: day, grace: day, idle: day, ..steadfast::Timing::default() };
    let host = Host::start(backing, {
        let timing = timing.clone();
        move |builder| builder.timing(timing.clone())
    })
    .await;
    let client = eager(&host);
    let mut stream = client.tool(1, "steps", steps(&["gate:a"])).stream().await;
    let priming = id(&stream.next().await.expect("a priming event"));
    assert_eq!(sessions(&host).await, 1);
    host.gates.open("a");
    assert_eq!(stream.messages().await.len(), 1);
    // A client may have lost the end of what was sent.
    read_completely(&host, &priming).await;
    let timing = steadfast::Timing::default();
    let (kept, moment) = (timing.touch + timing.linger, Duration::from_millis(1));
    host.sweep_after(kept - moment).await;
    assert_eq!(client.resume(&priming).send().await.messages().len(), 1);
    read_completely(&host, &priming).await;
    host.sweep_after(kept - moment).await;
    assert_eq!(sessions(&host).await, 1);
    host.sweep_after(moment).await;
    // The store may hear a little later that the connection is gone.
    let removed = async {
        while sessions(&host).await > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            host.sweep_after(moment).await;
        }
    };
    within("the removal of the job", removed).await;
    outcome_unknown(&client.resume(&priming).send().await.answer(), 1);
    // Like every session that has ended, the job stays in the store for a while.
    let engine = host.server().service().engine().clone();
    let state = || engine.store().run(job(&priming), GetState { key: "x".into() }, engine.now());
    host.sweep_after(timing.linger - moment).await;
    assert_eq!(state().await, Ok(StateGot::SessionClosed(None)));
    host.sweep_after(moment).await;
    assert_eq!(state().await, Ok(StateGot::NoSession));
}

async fn an_answer_that_was_not_read_is_kept_for_the_retention(backing: Backing) {
    let host = Host::plain(backing).await;
    let client = eager(&host);
    let mut stream = client.tool(1, "steps", steps(&["gate:a", "mark:done"])).stream().await;
    let priming = id(&stream.next().await.expect("a priming event"));
    stream.cut();
    detached(&host, &priming).await;
    host.gates.open("a");
    host.gates.reached("done", 1).await;
    super::stateless_endings::nothing_is_left(&host).await;
    let timing = steadfast::Timing::default();
    host.sweep_after(timing.retention - Duration::from_millis(1)).await;
    assert_eq!(client.resume(&priming).send().await.messages().len(), 1);
    host.sweep_after(2 * timing.retention).await;
    host.sweep_after(2 * timing.retention).await;
    assert_eq!(sessions(&host).await, 0);
    outcome_unknown(&client.resume(&priming).send().await.answer(), 1);
}

async fn a_stored_request_that_never_returns_meets_its_deadline(backing: Backing) {
    let deadline = Duration::from_secs(60);
    let host = Host::start(backing, move |builder| {
        builder.call_deadline(deadline).wind_down(Duration::from_millis(20))
    })
    .await;
    let mut stream = eager(&host).tool(1, "never", json!({})).stream().await;
    assert!(stream.next().await.expect("a priming event").is_priming());
    host.sweep_after(deadline - Duration::from_millis(1)).await;
    assert!(stream.is_quiet().await);
    host.sweep_after(Duration::from_millis(1)).await;
    let messages = stream.messages().await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0]["error"]["data"], json!({"reason": "deadline", "retryable": false}));
    host.gates.reached("never dropped", 1).await;
}

async fn a_server_that_goes_down_fails_a_stored_request_that_takes_too_long(backing: Backing) {
    let host = Host::start(backing, |builder| builder.wind_down(Duration::from_millis(20))).await;
    let client = eager(&host);
    let mut stream = client.tool(1, "steps", steps(&["progress", "gate:never"])).stream().await;
    stream.event().await;
    within("the drain", host.server().drain(Duration::ZERO)).await;
    let messages = stream.messages().await;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0]["error"]["data"], json!({"reason": "shutting_down", "retryable": false}));
}

/// With a grace of zero a response is as the specification has it.
#[tokio::test]
async fn without_a_grace_no_response_can_be_resumed() {
    let host = Host::start(Backing::Memory, |builder| {
        builder.resume_grace(Duration::ZERO).keep_alive(Duration::from_millis(20))
    })
    .await;
    let client = eager(&host);
    let mut stream = client.tool(1, "steps", steps(&["progress", "until_cancelled"])).stream().await;
    assert_eq!(stream.event().await.id, None);
    assert_eq!(sessions(&host).await, 0);
    let forged = format!("{}.0.1", SessionToken::from_random([7; 24]).expose());
    assert_eq!(client.resume(&forged).send().await.status, 405);
    stream.cut();
    host.gates.reached("cancelled", 1).await;
}

/// If the store has no room, the request goes on without event ids.
#[tokio::test]
async fn without_room_in_the_store_a_request_goes_on() {
    let host = Host::start(Backing::Memory, |builder| {
        builder.limits(steadfast::Limits { sessions: 0, ..steadfast::Limits::default() })
    })
    .await;
    let mut stream = eager(&host).tool(1, "steps", steps(&["progress", "gate:a"])).stream().await;
    assert_eq!(stream.event().await.id, None);
    host.gates.open("a");
    let rest = stream.rest().await;
    assert_eq!((rest.len(), &rest[0].id), (1, &None));
}

/// A subscription is meant to be repeated by its client.
#[tokio::test]
async fn a_subscription_is_never_stored() {
    let host = Host::plain(Backing::Memory).await;
    let (mut subscription, _) = eager(&host).subscribe(1, json!({"toolsListChanged": true})).await;
    // By the time that this is promoted, the subscription would have been.
    let mut stream = eager(&host).tool(2, "steps", steps(&["gate:a"])).stream().await;
    assert!(stream.next().await.expect("a priming event").is_priming());
    assert_eq!(sessions(&host).await, 1);
    host.gates.open("a");
    stream.rest().await;
    Modern::to(&host).say(3, "announce", json!({"what": "tools"})).await;
    assert_eq!(subscription.event().await.id, None);
}
