//! Every bound refuses in its own name and changes nothing.

use super::bench::{Bench, OVERHEAD};
use crate::command::{AppendOutcome, AskOpened, Begun, Target};
use crate::{Class, Limit};

#[test]
fn calls() {
    let mut bench = Bench::with(|rules| rules.limits.calls = 3);
    bench.post("1 2");
    assert_eq!(bench.unchanged(|bench| bench.begin("3 4")), Begun::OverLimit(Limit::Calls));
    let last = bench.post("3");
    assert_eq!(bench.unchanged(|bench| bench.begin("4")), Begun::OverLimit(Limit::Calls));
    bench.finish(last.call, "x");
    bench.post("4");
}

#[test]
fn a_duplicate_is_called_so_even_at_the_limit() {
    let mut bench = Bench::with(|rules| rules.limits.calls = 1);
    bench.post("1");
    assert_eq!(bench.begin("1"), Begun::Duplicate(1.into()));
}

#[test]
fn streams_that_are_open_or_unread() {
    let mut bench = Bench::with(|rules| rules.limits.streams = 2);
    let read = bench.post("1");
    let unread = bench.post("2");
    bench.finish(read.call, "x");
    bench.finish(unread.call, "x");
    assert_eq!(bench.unchanged(|bench| bench.begin("3")), Begun::OverLimit(Limit::Streams));
    bench.detach(read.stream, read.connection, 1);
    bench.post("3");
    assert_eq!(bench.unchanged(|bench| bench.begin("4")), Begun::OverLimit(Limit::Streams));
    bench.delivered = vec![unread.stream];
    bench.post("4");
}

#[test]
fn session_bytes() {
    let mut bench = Bench::with(|rules| rules.limits.session_bytes = 2 * OVERHEAD);
    let post = bench.post("1");
    bench.say(Target::Call(post.call), "x");
    bench.finish(post.call, "answer");
    assert_eq!(bench.unchanged(|bench| bench.begin("2")), Begun::OverLimit(Limit::SessionBytes));
    bench.delivered = vec![post.stream];
    bench.post("2");
    assert_eq!(bench.session.bytes(), 0);
}

#[test]
fn asks() {
    let mut bench = Bench::with(|rules| rules.limits.asks = 1);
    let post = bench.post("1");
    let ask = bench.asked(Target::Call(post.call));
    for target in [Target::Call(post.call), Target::Standalone] {
        assert_eq!(bench.unchanged(|bench| bench.ask(target)), AskOpened::OverLimit(Limit::Asks));
    }
    bench.answer(ask);
    bench.asked(Target::Standalone);
}

#[test]
fn a_stream_without_room_refuses_a_notice() {
    let mut bench = Bench::with(|rules| rules.limits.stream_bytes = 2 * (OVERHEAD + 1));
    bench.say(Target::Standalone, "a");
    bench.append(Target::Standalone, Class::Chatter, "b");
    let wide = "x".repeat(2);
    assert_eq!(
        bench.unchanged(|bench| bench.append(Target::Standalone, Class::Notice, &wide)),
        AppendOutcome::Full(Limit::StreamBytes),
        "nothing is dropped for a message that is refused anyway"
    );
    assert!(bench.changes.dropped.is_empty());
    bench.say(Target::Standalone, "c");
    bench.check_log(crate::StreamNo(0), "1:a 3:c missing=1");
    assert_eq!(
        bench.unchanged(|bench| bench.append(Target::Standalone, Class::Notice, "d")),
        AppendOutcome::Full(Limit::StreamBytes)
    );
}

#[test]
fn delivered_streams_go_first_out_of_the_oldest() {
    let mut bench = Bench::with(|rules| rules.limits.delivered_streams = 2);
    let posts: Vec<_> = (0..5).map(|i| bench.post(&i.to_string())).collect();
    for post in &posts {
        bench.wait(1).finish(post.call, "x");
    }
    let kept = |bench: &Bench| bench.session.streams().keys().map(|no| no.0).collect::<Vec<_>>();
    bench.delivered = [3, 4, 1].map(|i: usize| posts[i].stream).into();
    bench.begin("0");
    assert_eq!(kept(&bench), [1, 3, 4, 5, 6], "the oldest of the delivered went; what nobody read stays");
    bench.delivered = vec![posts[0].stream];
    bench.begin("1");
    assert_eq!(kept(&bench), [3, 4, 5, 6, 7]);
}

#[test]
fn a_busy_session_keeps_no_trace_of_streams_that_are_gone() {
    let mut bench = Bench::with(|rules| rules.limits.delivered_streams = 4);
    for _ in 0..1000 {
        let post = bench.post("1");
        bench.finish(post.call, "x");
        bench.delivered = vec![post.stream];
    }
    assert!(bench.session.streams().len() <= 6);
    assert_eq!(bench.session.finished.len(), bench.session.streams().len());
}
