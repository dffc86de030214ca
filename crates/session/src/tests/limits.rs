//! Each limit refuses a command with its own name, and a refusal changes nothing.

use super::fixture::{Fixture, OVERHEAD};
use crate::command::{AppendOutcome, Begun, ServerRequestOpened, Target};
use crate::{Class, Limit};

#[test]
fn calls() {
    let mut fixture = Fixture::with(|rules| rules.limits.calls = 3);
    fixture.post("1 2");
    assert_eq!(fixture.unchanged(|fixture| fixture.begin("3 4")), Begun::OverLimit(Limit::Calls));
    let last = fixture.post("3");
    assert_eq!(fixture.unchanged(|fixture| fixture.begin("4")), Begun::OverLimit(Limit::Calls));
    fixture.finish(last.call, "x");
    fixture.post("4");
}

#[test]
fn a_duplicate_is_reported_before_a_limit() {
    let mut fixture = Fixture::with(|rules| rules.limits.calls = 1);
    fixture.post("1");
    assert_eq!(fixture.begin("1"), Begun::Duplicate(1.into()));
}

#[test]
fn streams_that_are_open_or_undelivered() {
    let mut fixture = Fixture::with(|rules| rules.limits.streams = 2);
    let delivered = fixture.post("1");
    let undelivered = fixture.post("2");
    fixture.finish(delivered.call, "x");
    fixture.finish(undelivered.call, "x");
    assert_eq!(fixture.unchanged(|fixture| fixture.begin("3")), Begun::OverLimit(Limit::Streams));
    fixture.detach(delivered.stream, delivered.connection, 1);
    fixture.post("3");
    assert_eq!(fixture.unchanged(|fixture| fixture.begin("4")), Begun::OverLimit(Limit::Streams));
    fixture.delivered = vec![undelivered.stream];
    fixture.post("4");
}

#[test]
fn session_bytes() {
    let mut fixture = Fixture::with(|rules| rules.limits.session_bytes = 2 * OVERHEAD);
    let post = fixture.post("1");
    fixture.notify(Target::Call(post.call), "x");
    fixture.finish(post.call, "answer");
    assert_eq!(fixture.unchanged(|fixture| fixture.begin("2")), Begun::OverLimit(Limit::SessionBytes));
    fixture.delivered = vec![post.stream];
    fixture.post("2");
    assert_eq!(fixture.session.bytes(), 0);
}

#[test]
fn server_requests() {
    let mut fixture = Fixture::with(|rules| rules.limits.server_requests = 1);
    let post = fixture.post("1");
    let server_request = fixture.opened_server_request(Target::Call(post.call));
    for target in [Target::Call(post.call), Target::Standalone] {
        assert_eq!(
            fixture.unchanged(|fixture| fixture.open_server_request(target)),
            ServerRequestOpened::OverLimit(Limit::ServerRequests)
        );
    }
    fixture.answer(server_request);
    fixture.opened_server_request(Target::Standalone);
}

#[test]
fn a_full_stream_refuses_a_notification() {
    let mut fixture = Fixture::with(|rules| rules.limits.stream_bytes = 2 * (OVERHEAD + 1));
    fixture.notify(Target::Standalone, "a");
    fixture.append(Target::Standalone, Class::Droppable, "b");
    let long = "x".repeat(2);
    assert_eq!(
        fixture.unchanged(|fixture| fixture.append(Target::Standalone, Class::Notification, &long)),
        AppendOutcome::Full(Limit::StreamBytes),
        "nothing is dropped for a refused message"
    );
    assert!(fixture.changes.dropped.is_empty());
    fixture.notify(Target::Standalone, "c");
    fixture.check_log(crate::StreamNo(0), "1:a 3:c missing=1");
    assert_eq!(
        fixture.unchanged(|fixture| fixture.append(Target::Standalone, Class::Notification, "d")),
        AppendOutcome::Full(Limit::StreamBytes)
    );
}

#[test]
fn the_oldest_delivered_streams_are_evicted_first() {
    let mut fixture = Fixture::with(|rules| rules.limits.delivered_streams = 2);
    let posts: Vec<_> = (0..5).map(|i| fixture.post(&i.to_string())).collect();
    for post in &posts {
        fixture.wait(1).finish(post.call, "x");
    }
    let kept = |fixture: &Fixture| fixture.session.streams().keys().map(|no| no.0).collect::<Vec<_>>();
    fixture.delivered = [3, 4, 1].map(|i: usize| posts[i].stream).into();
    fixture.begin("0");
    assert_eq!(
        kept(&fixture),
        [1, 3, 4, 5, 6],
        "the oldest delivered stream was evicted, the undelivered ones stay"
    );
    fixture.delivered = vec![posts[0].stream];
    fixture.begin("1");
    assert_eq!(kept(&fixture), [3, 4, 5, 6, 7]);
}

#[test]
fn removed_streams_leave_nothing_behind() {
    let mut fixture = Fixture::with(|rules| rules.limits.delivered_streams = 4);
    for _ in 0..1000 {
        let post = fixture.post("1");
        fixture.finish(post.call, "x");
        fixture.delivered = vec![post.stream];
    }
    assert!(fixture.session.streams().len() <= 6);
    assert_eq!(fixture.session.finished.len(), fixture.session.streams().len());
}
