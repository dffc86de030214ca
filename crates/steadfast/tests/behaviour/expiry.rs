//! S4: when a session ends by itself. The test sets the time. No session ends while a client uses
//! it.

use std::time::Duration;

use steadfast::SessionEventKind::{Closed, Detached, Reattached};
use steadfast::{CloseReason, Refusal, Timing};

use crate::support::session::said;
use crate::support::{Backing, Host, Session, json};

crate::on_every_store!(
    an_idle_session_ends_after_the_idle_time_and_not_before,
    each_request_begins_the_idle_time_anew,
    a_deserted_session_ends_after_the_grace_time_and_not_before,
    coming_back_stops_the_grace_time,
    a_session_with_a_call_in_flight_does_not_end,
    a_session_with_a_connection_does_not_end,
    a_session_that_has_ended_is_gone_for_every_verb,
);

const MOMENT: Duration = Duration::from_millis(1);
const AGES: Duration = Duration::from_secs(100 * 24 * 3600);

async fn lives(host: &Host, session: &Session) -> bool {
    match host.server().restore(session.session_id()).await {
        Ok(_) => true,
        Err(Refusal::NoSession) => false,
        Err(refusal) => panic!("{refusal}"),
    }
}

/// The longest time that a session lives after its last sign of life, given the time that rules it.
fn latest(rule: Duration) -> Duration {
    rule + Timing::default().touch
}

async fn an_idle_session_ends_after_the_idle_time_and_not_before(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    host.sweep_after(latest(Timing::default().idle) - MOMENT).await;
    assert!(lives(&host, &session).await);
    host.sweep_after(MOMENT).await;
    assert!(!lives(&host, &session).await);
    host.heard.once(&session, Closed(CloseReason::IdleExpired)).await;
}

async fn each_request_begins_the_idle_time_anew(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let idle = Timing::default().idle;
    for round in 0..3 {
        host.sweep_after(idle).await;
        assert_eq!(session.say(round, "echo", json!({"text": "here"})).await, "here");
        host.sweep_after(idle).await;
        assert_eq!(session.notify("notifications/tick", json!({})).await.status, 202);
    }
    host.sweep_after(idle - MOMENT).await;
    assert!(lives(&host, &session).await);
    host.sweep_after(latest(MOMENT)).await;
    assert!(!lives(&host, &session).await);
}

async fn a_deserted_session_ends_after_the_grace_time_and_not_before(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    session.listen().stream().await.cut();
    host.heard.once(&session, Detached).await;
    host.sweep_after(latest(Timing::default().grace) - MOMENT).await;
    assert!(lives(&host, &session).await);
    host.sweep_after(MOMENT).await;
    assert!(!lives(&host, &session).await);
    host.heard.once(&session, Closed(CloseReason::GraceExpired)).await;
}

async fn coming_back_stops_the_grace_time(backing: Backing) {
    let grace = Timing::default().idle / 4;
    let host =
        Host::start(backing, move |builder| builder.timing(Timing { grace, ..Timing::default() })).await;
    let session = Session::open(&host).await;
    for round in 1..=3 {
        let stream = session.listen().stream().await;
        host.heard.times(&session, Reattached, round - 1).await;
        host.sweep_after(grace * 2).await;
        assert!(lives(&host, &session).await, "a client listens");
        stream.cut();
        host.heard.times(&session, Detached, round).await;
        host.sweep_after(grace - MOMENT).await;
        assert!(lives(&host, &session).await, "the grace time has begun anew");
    }
    // A POST is a sign of life like any other.
    assert_eq!(session.say(1, "echo", json!({"text": "back"})).await, "back");
    host.heard.times(&session, Reattached, 3).await;
    host.sweep_after(latest(grace)).await;
    assert!(lives(&host, &session).await, "no client has detached: from now on the idle time counts");
}

async fn a_session_with_a_call_in_flight_does_not_end(backing: Backing) {
    let host = Host::start(backing, |builder| builder.call_deadline(AGES * 2)).await;
    let session = Session::open(&host).await;
    let mut stream = session.tool(1, "gate", json!({"name": "a", "text": "at last"})).stream().await;
    let priming = stream.next().await.and_then(|frame| frame.id).unwrap();
    stream.cut();
    host.heard.once(&session, Detached).await;
    host.sweep_after(AGES).await;
    assert!(lives(&host, &session).await);
    host.gates.open("a");
    let messages = session.resume(&priming).stream().await.messages().await;
    assert_eq!(messages.iter().map(said).collect::<Vec<_>>(), ["at last"]);
}

async fn a_session_with_a_connection_does_not_end(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let mut stream = session.listen().stream().await;
    host.sweep_after(AGES).await;
    assert!(lives(&host, &session).await);
    session.call(1, "notify_later", json!({"uri": "test:a"})).await;
    assert_eq!(stream.message().await["params"]["uri"], "test:a");
}

async fn a_session_that_has_ended_is_gone_for_every_verb(backing: Backing) {
    let host = Host::plain(backing).await;
    let session = Session::open(&host).await;
    let event = session.tool(1, "echo", json!({})).send().await.frames()[0].id.clone().unwrap();
    host.sweep_after(latest(Timing::default().idle)).await;
    for request in [
        session.tool(2, "echo", json!({})),
        session.listen(),
        session.resume(&event),
        session.delete(),
        session.post(&json!({"jsonrpc": "2.0", "method": "notifications/tick"})),
    ] {
        assert_eq!(request.send().await.refusal(), (404, -32600));
    }
}
