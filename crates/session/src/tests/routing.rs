//! A message goes to exactly one stream.

use super::bench::{Bench, Post};
use crate::StreamNo;
use crate::command::Target;

const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;

#[track_caller]
fn check(bench: &mut Bench, target: Target, expect: StreamNo) {
    let before: u64 = bench.session.streams().values().map(|stream| stream.last_seq()).sum();
    assert_eq!(bench.say(target, "m"), expect);
    let after: u64 = bench.session.streams().values().map(|stream| stream.last_seq()).sum();
    assert_eq!(after, before + 1);
    assert_eq!(bench.changes.appended.len(), 1);
    assert_eq!(bench.changes.appended[0].stream, expect);
}

#[test]
fn a_calls_messages_go_to_its_own_stream_even_with_others_attached() {
    let mut bench = Bench::new();
    let (a, b) = (bench.post("1"), bench.post("2"));
    bench.get();
    check(&mut bench, Target::Call(a.call), a.stream);
    check(&mut bench, Target::Call(b.call), b.stream);
    bench.detach(a.stream, a.connection, 0);
    check(&mut bench, Target::Call(a.call), a.stream);
}

#[test]
fn after_its_end_a_calls_messages_go_to_a_standalone_stream() {
    let finish = |bench: &mut Bench, post: Post| {
        bench.finish(post.call, "x");
    };
    let cancel = |bench: &mut Bench, _: Post| {
        bench.cancel("1");
    };
    for end in [finish, cancel] {
        let mut bench = Bench::new();
        let post = bench.post("1");
        end(&mut bench, post);
        check(&mut bench, Target::Call(post.call), FIRST);
    }
}

#[test]
fn a_finished_call_of_an_open_batch_is_over_too() {
    let mut bench = Bench::new();
    let post = bench.post("1 2");
    bench.finish(post.nth(0), "x");
    check(&mut bench, Target::Call(post.nth(0)), FIRST);
    check(&mut bench, Target::Call(post.nth(1)), post.stream);
}

#[test]
fn an_answer_only_connection_gets_nothing_but_its_answer() {
    let mut bench = Bench::new();
    bench.answer_only = true;
    let post = bench.post("1");
    check(&mut bench, Target::Call(post.call), FIRST);
    bench.asked(Target::Call(post.call));
    bench.finish(post.call, "answer");
    bench.check_log(post.stream, "1:answer end");
    bench.check_log(FIRST, "1:m 2:ask-0 3:withdrawn(ask-0)");
}

#[test]
fn the_newest_attached_standalone_stream_wins() {
    let mut bench = Bench::new();
    check(&mut bench, Target::Standalone, FIRST);
    let (first, ..) = bench.get();
    let (second, second_connection, _) = bench.get();
    let (third, third_connection, _) = bench.get();
    assert_eq!([first, second, third], [FIRST, StreamNo(1), StreamNo(2)]);
    check(&mut bench, Target::Standalone, third);
    bench.resumed(second, 0);
    check(&mut bench, Target::Standalone, second);
    bench.resumed(first, 0);
    check(&mut bench, Target::Standalone, first);
    bench.detach(second, second_connection, 0);
    bench.detach(third, third_connection, 0);
    check(&mut bench, Target::Standalone, first);
}

#[test]
fn with_nobody_attached_messages_wait_in_the_first() {
    let mut bench = Bench::new();
    let (first, a, _) = bench.get();
    let (second, b, _) = bench.get();
    bench.detach(first, a, 0);
    check(&mut bench, Target::Standalone, second);
    bench.detach(second, b, 1);
    check(&mut bench, Target::Standalone, FIRST);
}

#[test]
fn an_attached_post_stream_takes_nothing_that_belongs_to_no_call() {
    let mut bench = Bench::new();
    bench.post("1");
    check(&mut bench, Target::Standalone, FIRST);
}
