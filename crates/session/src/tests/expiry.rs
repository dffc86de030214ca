//! What time does, and what it must not do.

use super::bench::{Act, Bench, NODE};
use crate::command::{Swept, Target};
use crate::{CloseReason, Lifecycle, Read};

const IDLE: CloseReason = CloseReason::IdleExpired;
const GRACE: CloseReason = CloseReason::GraceExpired;

#[test]
fn an_idle_session_ends_after_the_idle_time() {
    let mut bench = Bench::new();
    assert_eq!(bench.ends_in(), Some((102, IDLE)));
    bench.wait_ms(101_999).sweep();
    assert!(bench.session.is_open());
    bench.wait_ms(1).sweep();
    assert_eq!(bench.lifecycle, [Lifecycle::Closed(IDLE)]);
}

#[test]
fn a_request_of_any_kind_puts_the_end_off() {
    let requests: [(&str, Act); 5] = [
        ("touch", |bench| {
            bench.touch();
        }),
        ("cancel", |bench| {
            bench.cancel("1");
        }),
        ("answer", |bench| {
            bench.answer(crate::AskNo(0));
        }),
        ("post", |bench| {
            let post = bench.post("1");
            bench.finish(post.call, "x");
        }),
        ("get", |bench| {
            let (stream, connection, _) = bench.get();
            bench.detach(stream, connection, 0);
        }),
    ];
    for (name, request) in requests {
        let mut bench = Bench::new();
        request(bench.wait(90));
        bench.wait(49).sweep();
        assert!(bench.session.is_open(), "{name}");
        bench.wait(60).sweep();
        assert!(!bench.session.is_open(), "{name}");
    }
}

#[test]
fn coarse_records_of_activity_never_end_a_session_early() {
    for ms in 0..4000 {
        let mut bench = Bench::new();
        bench.wait_ms(ms).touch();
        bench.wait_ms(99_999).sweep();
        assert!(bench.session.is_open(), "touched after {ms} ms");
        bench.wait_ms(2_001).sweep();
        assert!(!bench.session.is_open(), "touched after {ms} ms");
    }
}

#[test]
fn coarse_records_of_activity_are_coarse() {
    let mut bench = Bench::new();
    for (ms, written) in [(0, false), (1999, false), (1, true), (1999, false), (5000, true)] {
        bench.wait_ms(ms).touch();
        assert_eq!(bench.changes.meta, written);
    }
}

#[test]
fn no_session_ends_with_a_call_in_flight() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    bench.detach(post.stream, post.connection, 0);
    assert_eq!(bench.ends_in(), None);
    assert_eq!(bench.wait(1_000_000).sweep(), Swept::Next(None));
    bench.finish(post.call, "x");
    assert_eq!(bench.ends_in(), Some((52, GRACE)));
    bench.wait(29).sweep();
    bench.check_log(post.stream, "1:x end");
}

#[test]
fn no_session_ends_with_a_connection_attached() {
    let mut bench = Bench::new();
    let (stream, connection, _) = bench.get();
    assert_eq!(bench.wait(1_000_000).sweep(), Swept::Next(None));
    bench.detach(stream, connection, 0);
    assert_eq!(bench.ends_in(), Some((50, GRACE)));
    bench.wait_ms(49_999).sweep();
    assert!(bench.session.is_open());
    bench.wait_ms(1).sweep();
    assert_eq!(bench.lifecycle, [Lifecycle::Detached, Lifecycle::Closed(GRACE)]);
}

#[test]
fn coming_back_cancels_the_grace_time() {
    let mut bench = Bench::new();
    let (stream, connection, _) = bench.get();
    bench.detach(stream, connection, 0);
    bench.wait(40);
    let (_, connection, _) = bench.get();
    assert_eq!(bench.ends_in(), None);
    bench.wait(40).sweep();
    bench.detach(stream, connection, 0);
    bench.wait(40).sweep();
    let post = bench.post("1");
    bench.finish(post.call, "x");
    assert_eq!(bench.ends_in(), Some((102, IDLE)));
    use Lifecycle::{Detached, Reattached};
    assert_eq!(bench.lifecycle, [Detached, Reattached, Detached, Reattached]);
}

#[test]
fn the_error_of_a_call_that_outlived_the_idle_time_can_still_be_read() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    bench.wait(1_000).fail(NODE);
    bench.sweep();
    bench.wait(20).sweep();
    assert!(bench.session.is_open());
    bench.check_log(post.stream, "1:outcome_unknown(1) end");
}

#[test]
fn a_finished_stream_is_kept_for_its_retention() {
    let mut bench = Bench::new();
    let (a, b) = (bench.post("1"), bench.post("2"));
    bench.finish(b.call, "b");
    bench.wait(10).finish(a.call, "a");
    bench.wait_ms(19_999).sweep();
    bench.check_log(b.stream, "1:b end");
    bench.wait_ms(1);
    bench.sweep();
    assert_eq!(bench.session.read(b.stream, 0, 0), Read::Gone);
    bench.check_log(a.stream, "1:a end");
    bench.wait(10).sweep();
    assert_eq!(bench.session.read(a.stream, 0, 0), Read::Gone);
    assert_eq!(bench.session.bytes(), 0);
}

#[test]
fn calls_one_by_one_are_forgotten_together() {
    let mut bench = Bench::new();
    let (mut looks, mut next) = (0, None);
    // A call a second for ten minutes, and a look whenever there is something to see.
    for second in 0..600 {
        let post = bench.post(&second.to_string());
        bench.finish(post.call, "a");
        bench.wait(1);
        next = next.or_else(|| bench.session.next_check(&bench.rules));
        if next.is_some_and(|at| at <= bench.now) {
            looks += 1;
            let Swept::Next(after) = bench.sweep() else { panic!("it is in use") };
            next = after;
        }
    }
    // One in a quarter of the retention.
    assert!((60..=600 / 7).contains(&looks), "{looks}");
}

#[test]
fn standalone_streams_outlive_any_retention() {
    let mut bench = Bench::new();
    bench.say(Target::Standalone, "a");
    bench.wait(99).sweep();
    bench.check_log(crate::StreamNo(0), "1:a");
}

#[test]
fn a_closed_session_lingers_and_is_then_removed() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    bench.close();
    let over = bench.now.plus(bench.rules.timing.linger);
    assert_eq!(bench.session.next_check(&bench.rules), Some(over));
    bench.wait_ms(9_999);
    assert_eq!(bench.sweep(), Swept::Next(Some(over)));
    bench.check_log(post.stream, "1:session_closed(1) end");
    assert_eq!(bench.wait_ms(1).sweep(), Swept::Remove);
}
