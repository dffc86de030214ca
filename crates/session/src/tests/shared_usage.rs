//! The limits on the bytes of all sessions: new work is refused, accepted work can finish.

use super::fixture::{Fixture, NODE, OTHER, OVERHEAD, ids, reassignable};
use crate::command::{
    Answered, AppendOutcome, Begin, BeginMode, Begun, Cancelled, Closed, Finished, Target, Touched, Withdrawn,
};
use crate::{CALL_SUBJECT, Class, Limit, StreamNo};

const BOUND: u64 = 10 * OVERHEAD;

/// Returns a session with small shared limits, beside other sessions that hold `other_usage` bytes.
fn with_other_usage(other_usage: (u64, u64)) -> Fixture {
    let mut fixture = Fixture::with(|rules| {
        rules.limits.store_bytes = 2 * BOUND;
        rules.limits.principal_bytes = BOUND;
    });
    fixture.other_usage = other_usage;
    fixture
}

#[test]
fn new_work_is_refused_with_the_exceeded_limit() {
    for (other_usage, limit) in [
        ((0, 2 * BOUND), Limit::StoreBytes),
        ((BOUND, 2 * BOUND), Limit::StoreBytes),
        ((BOUND, 0), Limit::PrincipalBytes),
    ] {
        let mut fixture = with_other_usage(other_usage);
        assert_eq!(fixture.unchanged(|fixture| fixture.begin("1")), Begun::OverLimit(limit));
        assert_eq!(fixture.unchanged(|fixture| fixture.touch()), Touched::OverLimit(limit));
        let notification =
            fixture.unchanged(|fixture| fixture.append(Target::Standalone, Class::Notification, "n"));
        assert_eq!(notification, AppendOutcome::Full(limit));
        fixture.other_usage = (0, 0);
        fixture.post("1");
        assert_eq!(fixture.touch(), Touched::Touched);
        fixture.notify(Target::Standalone, "n");
    }
}

#[test]
fn accepted_work_can_finish_beyond_the_limit() {
    let mut fixture = with_other_usage((0, 0));
    let (post, cancelled) = (fixture.post("1"), fixture.post("2"));
    let forwarded = fixture.post_at(OTHER, "3", reassignable("request"));
    let server_requests = [0; 3].map(|_| fixture.opened_server_request(Target::Call(post.call)));
    fixture.other_usage = (BOUND, BOUND);
    fixture.opened_server_request(Target::Call(post.call));
    assert_eq!(fixture.answer(server_requests[0]), Answered::Answered { call: Some(post.call) });
    assert_eq!(fixture.answer_at(OTHER, server_requests[1], "kept"), Answered::Stored { owner: NODE });
    assert_eq!(fixture.withdraw(server_requests[2]), Withdrawn::Withdrawn);
    assert!(matches!(fixture.cancel("2"), Cancelled::Cancelled { call, .. } if call == cancelled.call));
    let (_, connection, _) = fixture.get();
    fixture.detach(StreamNo(0), connection, 0);
    for call in [post.call, forwarded.call] {
        assert!(matches!(fixture.finish(call, "answer"), Finished::Finished { .. }));
    }
    fixture.resumed(post.stream, 0);
    assert_eq!(fixture.close(), Closed::Closed);
}

/// The store's first reply may have been lost.
#[test]
fn a_retried_begin_gets_its_first_outcome_beyond_the_limit() {
    let mut fixture = with_other_usage((0, 0));
    let begin = Begin::local(NODE, 77, ids("1"));
    let begun = fixture.run(begin.clone());
    fixture.other_usage = (BOUND, BOUND);
    assert_eq!(fixture.run(Begin { mode: BeginMode::Retry, ..begin }), begun);
}

#[test]
fn progress_is_dropped_and_leaves_a_visible_gap() {
    let mut fixture = with_other_usage((0, 0));
    let post = fixture.post("1");
    fixture.append(Target::Call(post.call), Class::Droppable, "a");
    fixture.other_usage = (BOUND, 0);
    fixture.append(Target::Call(post.call), Class::Droppable, "b");
    fixture.finish(post.call, "answer");
    fixture.check_log(post.stream, "1:a 3:answer missing=1 end");
}

/// Eviction starts at three quarters of the limit, so that delivered events do not cause a refusal.
#[test]
fn delivered_streams_are_evicted_before_work_is_refused() {
    for is_nearly_full in [false, true] {
        let mut fixture = with_other_usage((0, 0));
        let read = fixture.post("1");
        let unread = fixture.post("2");
        fixture.finish(read.call, "x");
        fixture.finish(unread.call, "y");
        fixture.delivered = vec![read.stream];
        let held = fixture.session.held_bytes();
        fixture.other_usage = (BOUND - BOUND / 4 - held + u64::from(is_nearly_full), 0);
        fixture.post("3");
        assert_eq!(fixture.session.streams().contains_key(&read.stream), !is_nearly_full);
        assert!(fixture.session.streams().contains_key(&unread.stream));
    }
}

#[test]
fn all_bytes_of_a_session_count() {
    let mut fixture = Fixture::new();
    let initialize = fixture.session.facts().initialize.len() as u64;
    assert_eq!(fixture.session.held_bytes(), initialize);
    fixture.put("key", None, Some("value"));
    assert_eq!(fixture.session.held_bytes(), initialize + 8);
    let post = fixture.post_at(OTHER, "1", reassignable("request"));
    assert_eq!(fixture.session.held_bytes(), initialize + 15);
    let server_request = fixture.opened_server_request(Target::Call(post.call));
    let stream_bytes = fixture.session.bytes();
    fixture.answer_at(OTHER, server_request, "kept");
    assert_eq!(fixture.session.held_bytes(), initialize + 15 + stream_bytes + 4);
}

/// A stateless request can do without a job, so jobs leave the last quarter to sessions.
#[test]
fn a_job_begins_only_below_three_quarters_of_the_shared_limits() {
    for (is_over, limit) in [(false, None), (true, Some(Limit::PrincipalBytes))] {
        let mut fixture = Fixture::internal(CALL_SUBJECT);
        fixture.rules.limits.principal_bytes = BOUND;
        let held = fixture.session.held_bytes();
        fixture.other_usage = (BOUND - BOUND / 4 - held + u64::from(is_over), 0);
        match (fixture.begin("1"), limit) {
            (Begun::Begun { .. }, None) => {}
            (begun, limit) => assert_eq!(Some(begun), limit.map(Begun::OverLimit)),
        }
    }
}
