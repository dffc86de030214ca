//! Expiry of sessions and finished streams.

use std::time::Duration;

use super::fixture::{Action, Fixture, NODE};
use crate::command::{Swept, Target};
use crate::{CALL_SUBJECT, CloseReason, Lifecycle, Read};

const IDLE: CloseReason = CloseReason::IdleExpired;
const GRACE: CloseReason = CloseReason::GraceExpired;

#[test]
fn an_idle_session_closes_after_the_idle_time() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.ends_in(), Some((102, IDLE)));
    fixture.wait_ms(101_999).sweep();
    assert!(fixture.session.is_open());
    fixture.wait_ms(1).sweep();
    assert_eq!(fixture.lifecycle, [Lifecycle::Closed(IDLE)]);
}

#[test]
fn any_request_extends_the_idle_time() {
    let requests: [(&str, Action); 5] = [
        ("touch", |fixture| {
            fixture.touch();
        }),
        ("cancel", |fixture| {
            fixture.cancel("1");
        }),
        ("answer", |fixture| {
            fixture.answer(crate::ServerRequestNo(0));
        }),
        ("post", |fixture| {
            let post = fixture.post("1");
            fixture.finish(post.call, "x");
        }),
        ("get", |fixture| {
            let (stream, connection, _) = fixture.get();
            fixture.detach(stream, connection, 0);
        }),
    ];
    for (name, request) in requests {
        let mut fixture = Fixture::new();
        request(fixture.wait(90));
        fixture.wait(49).sweep();
        assert!(fixture.session.is_open(), "{name}");
        fixture.wait(60).sweep();
        assert!(!fixture.session.is_open(), "{name}");
    }
}

#[test]
fn coarse_activity_records_never_close_a_session_early() {
    for ms in 0..4000 {
        let mut fixture = Fixture::new();
        fixture.wait_ms(ms).touch();
        fixture.wait_ms(99_999).sweep();
        assert!(fixture.session.is_open(), "touched after {ms} ms");
        fixture.wait_ms(2_001).sweep();
        assert!(!fixture.session.is_open(), "touched after {ms} ms");
    }
}

#[test]
fn activity_is_recorded_at_most_once_per_touch_interval() {
    let mut fixture = Fixture::new();
    for (ms, written) in [(0, false), (1999, false), (1, true), (1999, false), (5000, true)] {
        fixture.wait_ms(ms).touch();
        assert_eq!(fixture.changes.meta, written);
    }
}

#[test]
fn a_session_with_a_call_in_flight_does_not_expire() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    fixture.detach(post.stream, post.connection, 0);
    assert_eq!(fixture.ends_in(), None);
    assert_eq!(fixture.wait(1_000_000).sweep(), Swept::Next(None));
    fixture.finish(post.call, "x");
    assert_eq!(fixture.ends_in(), Some((52, GRACE)));
    fixture.wait(29).sweep();
    fixture.check_log(post.stream, "1:x end");
}

#[test]
fn a_session_with_a_connection_does_not_expire() {
    let mut fixture = Fixture::new();
    let (stream, connection, _) = fixture.get();
    assert_eq!(fixture.wait(1_000_000).sweep(), Swept::Next(None));
    fixture.detach(stream, connection, 0);
    assert_eq!(fixture.ends_in(), Some((50, GRACE)));
    fixture.wait_ms(49_999).sweep();
    assert!(fixture.session.is_open());
    fixture.wait_ms(1).sweep();
    assert_eq!(fixture.lifecycle, [Lifecycle::Detached, Lifecycle::Closed(GRACE)]);
}

#[test]
fn reattaching_cancels_the_grace_time() {
    let mut fixture = Fixture::new();
    let (stream, connection, _) = fixture.get();
    fixture.detach(stream, connection, 0);
    fixture.wait(40);
    let (_, connection, _) = fixture.get();
    assert_eq!(fixture.ends_in(), None);
    fixture.wait(40).sweep();
    fixture.detach(stream, connection, 0);
    fixture.wait(40).sweep();
    let post = fixture.post("1");
    fixture.finish(post.call, "x");
    assert_eq!(fixture.ends_in(), Some((102, IDLE)));
    use Lifecycle::{Detached, Reattached};
    assert_eq!(fixture.lifecycle, [Detached, Reattached, Detached, Reattached]);
}

#[test]
fn the_error_of_a_call_that_ran_longer_than_the_idle_time_can_be_read() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    fixture.wait(1_000).fail_node(NODE);
    fixture.sweep();
    fixture.wait(20).sweep();
    assert!(fixture.session.is_open());
    fixture.check_log(post.stream, "1:outcome_unknown(1) end");
}

#[test]
fn a_finished_stream_is_removed_after_its_retention() {
    let mut fixture = Fixture::new();
    let (a, b) = (fixture.post("1"), fixture.post("2"));
    fixture.finish(b.call, "b");
    fixture.wait(10).finish(a.call, "a");
    fixture.wait_ms(19_999).sweep();
    fixture.check_log(b.stream, "1:b end");
    fixture.wait_ms(1);
    fixture.sweep();
    assert_eq!(fixture.session.read(b.stream, 0, 0), Read::Gone);
    fixture.check_log(a.stream, "1:a end");
    fixture.wait(10).sweep();
    assert_eq!(fixture.session.read(a.stream, 0, 0), Read::Gone);
    assert_eq!(fixture.session.bytes(), 0);
}

#[test]
fn one_sweep_removes_several_finished_streams() {
    let mut fixture = Fixture::new();
    let (mut sweeps, mut next) = (0, None);
    // One call per second for ten minutes, and a sweep whenever one is due.
    for second in 0..600 {
        let post = fixture.post(&second.to_string());
        fixture.finish(post.call, "a");
        fixture.wait(1);
        next = next.or_else(|| fixture.session.next_check(&fixture.rules));
        if next.is_some_and(|at| at <= fixture.now) {
            sweeps += 1;
            let Swept::Next(after) = fixture.sweep() else { panic!("the session is open") };
            next = after;
        }
    }
    // At most one sweep per quarter of the retention.
    assert!((60..=600 / 7).contains(&sweeps), "{sweeps}");
}

#[test]
fn standalone_streams_are_not_removed_after_the_retention() {
    let mut fixture = Fixture::new();
    fixture.notify(Target::Standalone, "a");
    fixture.wait(99).sweep();
    fixture.check_log(crate::StreamNo(0), "1:a");
}

#[test]
fn a_closed_session_lingers_and_is_then_removed() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    fixture.close();
    let over = fixture.now.plus(fixture.rules.timing.linger);
    assert_eq!(fixture.session.next_check(&fixture.rules), Some(over));
    fixture.wait_ms(9_999);
    assert_eq!(fixture.sweep(), Swept::Next(Some(over)));
    fixture.check_log(post.stream, "1:session_closed(1) end");
    assert_eq!(fixture.wait_ms(1).sweep(), Swept::Remove);
}

/// The job of a stateless request is of no use after its answer was read.
#[test]
fn a_job_whose_answer_was_delivered_is_removed_after_the_linger_time() {
    let mut fixture = Fixture::internal(CALL_SUBJECT);
    let post = fixture.post("1");
    fixture.finish(post.call, "x");
    fixture.wait(25).detach(post.stream, post.connection, 1);
    fixture.wait_ms(11_999).sweep();
    fixture.check_log(post.stream, "1:x end");
    // A client that comes again has lost the end of it.
    let connection = fixture.resumed(post.stream, 0);
    fixture.wait_ms(9_000).detach(post.stream, connection, 1);
    fixture.wait_ms(11_999).sweep();
    assert!(fixture.session.is_open());
    fixture.wait_ms(1).sweep();
    assert_eq!(fixture.lifecycle, [Lifecycle::Closed(IDLE)]);
}

#[test]
fn a_job_whose_answer_was_not_delivered_is_removed_after_the_retention() {
    let mut fixture = Fixture::internal(CALL_SUBJECT);
    let post = fixture.post("1");
    fixture.finish(post.call, "x");
    fixture.wait_ms(29_999).sweep();
    fixture.check_log(post.stream, "1:x end");
    fixture.wait_ms(1).sweep();
    assert!(!fixture.session.is_open());
}

/// A session state does not make it another session.
#[test]
fn a_job_with_state_is_removed_like_any_other_job() {
    let mut fixture = Fixture::internal(CALL_SUBJECT);
    let post = fixture.post("1");
    fixture.put("x", None, Some("x"));
    fixture.finish(post.call, "x");
    fixture.detach(post.stream, post.connection, 1);
    fixture.wait(12).sweep();
    assert!(!fixture.session.is_open());
}

/// Its node opens it and begins its call in two steps.
#[test]
fn a_job_without_a_call_is_closed_after_the_linger_time() {
    let mut fixture = Fixture::internal(CALL_SUBJECT);
    fixture.wait_ms(11_999).sweep();
    assert!(fixture.session.is_open());
    fixture.wait_ms(1).sweep();
    assert!(!fixture.session.is_open());
}

/// The grace and the idle time are for sessions that a client comes back to.
#[test]
fn an_answer_is_kept_for_the_retention_even_if_sessions_end_sooner() {
    let mut fixture = Fixture::internal(CALL_SUBJECT);
    fixture.rules.timing.grace = Duration::from_secs(1);
    fixture.rules.timing.idle = Duration::from_secs(1);
    let post = fixture.post("1");
    fixture.detach(post.stream, post.connection, 0);
    fixture.finish(post.call, "x");
    fixture.wait_ms(29_999).sweep();
    fixture.check_log(post.stream, "1:x end");
    fixture.wait_ms(1).sweep();
    assert!(!fixture.session.is_open());
}

/// Tasks and records are read long after their calls, or have none.
#[test]
fn another_internal_session_expires_like_any_other() {
    let uses: [Action; 2] = [
        |_| (),
        |fixture| {
            fixture.put("record", None, Some("x"));
            let post = fixture.post("1");
            fixture.finish(post.call, "x");
            fixture.detach(post.stream, post.connection, 1);
        },
    ];
    for (i, act) in uses.into_iter().enumerate() {
        let mut fixture = Fixture::internal("record");
        act(&mut fixture);
        fixture.wait(99).sweep();
        assert!(fixture.session.is_open(), "{i}");
        fixture.wait(3).sweep();
        assert_eq!(fixture.lifecycle, [Lifecycle::Closed(IDLE)], "{i}");
    }
}
