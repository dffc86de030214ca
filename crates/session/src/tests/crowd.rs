//! What all sessions hold together: new work is refused at the bound, and what was accepted ends as ever.

use super::bench::{Bench, NODE, OVERHEAD};
use crate::command::{
    Answered, AppendOutcome, Begin, Begun, Cancelled, Closed, Finished, Target, Touched, Withdrawn,
};
use crate::{Class, Limit, StreamNo};

const BOUND: u64 = 10 * OVERHEAD;

/// Others hold so much that nothing is left.
fn crowded(beside: (u64, u64)) -> Bench {
    let mut bench = Bench::with(|rules| {
        rules.limits.store_bytes = 2 * BOUND;
        rules.limits.principal_bytes = BOUND;
    });
    bench.beside = beside;
    bench
}

#[test]
fn new_work_is_refused_in_the_name_of_the_bound() {
    for (beside, limit) in [
        ((0, 2 * BOUND), Limit::StoreBytes),
        ((BOUND, 2 * BOUND), Limit::StoreBytes),
        ((BOUND, 0), Limit::PrincipalBytes),
    ] {
        let mut bench = crowded(beside);
        assert_eq!(bench.unchanged(|bench| bench.begin("1")), Begun::OverLimit(limit));
        assert_eq!(bench.unchanged(|bench| bench.touch()), Touched::OverLimit(limit));
        let notice = bench.unchanged(|bench| bench.append(Target::Standalone, Class::Notice, "n"));
        assert_eq!(notice, AppendOutcome::Full(limit));
        bench.beside = (0, 0);
        bench.post("1");
        assert_eq!(bench.touch(), Touched::Touched);
        bench.say(Target::Standalone, "n");
    }
}

#[test]
fn what_was_accepted_ends_as_ever() {
    let mut bench = crowded((0, 0));
    let (post, cancelled) = (bench.post("1"), bench.post("2"));
    let mailed = bench.post_at(super::bench::OTHER, "3", "request", true);
    let asks = [0; 3].map(|_| bench.asked(Target::Call(post.call)));
    bench.beside = (BOUND, BOUND);
    bench.asked(Target::Call(post.call));
    assert_eq!(bench.answer(asks[0]), Answered::Answered { call: Some(post.call) });
    assert_eq!(bench.answer_at(super::bench::OTHER, asks[1], "kept"), Answered::Kept { owner: NODE });
    assert_eq!(bench.withdraw(asks[2]), Withdrawn::Withdrawn);
    assert!(matches!(bench.cancel("2"), Cancelled::Cancelled { call, .. } if call == cancelled.call));
    let (_, connection, _) = bench.get();
    bench.detach(StreamNo(0), connection, 0);
    for call in [post.call, mailed.call] {
        assert!(matches!(bench.finish(call, "answer"), Finished::Finished { .. }));
    }
    bench.resumed(post.stream, 0);
    assert_eq!(bench.close(), Closed::Closed);
}

/// The first answer may have got lost.
#[test]
fn a_begin_that_took_effect_is_told_so_again() {
    let mut bench = crowded((0, 0));
    let begin = Begin::here(NODE, 77, super::bench::ids("1"));
    let begun = bench.run(begin.clone());
    bench.beside = (BOUND, BOUND);
    assert_eq!(bench.run(Begin { again: true, ..begin }), begun);
}

#[test]
fn progress_gives_way_and_its_reader_sees_that() {
    let mut bench = crowded((0, 0));
    let post = bench.post("1");
    bench.append(Target::Call(post.call), Class::Chatter, "a");
    bench.beside = (BOUND, 0);
    bench.append(Target::Call(post.call), Class::Chatter, "b");
    bench.finish(post.call, "answer");
    bench.check_log(post.stream, "1:a 3:answer missing=1 end");
}

/// A quarter before the bound, so that what was read is no reason to refuse anybody.
#[test]
fn answers_that_were_read_give_way_before_anybody_is_refused() {
    for dense in [false, true] {
        let mut bench = crowded((0, 0));
        let read = bench.post("1");
        let unread = bench.post("2");
        bench.finish(read.call, "x");
        bench.finish(unread.call, "y");
        bench.delivered = vec![read.stream];
        let held = bench.session.held_bytes();
        bench.beside = (BOUND - BOUND / 4 - held + u64::from(dense), 0);
        bench.post("3");
        assert_eq!(bench.session.streams().contains_key(&read.stream), !dense);
        assert!(bench.session.streams().contains_key(&unread.stream));
    }
}

#[test]
fn everything_that_a_session_holds_counts() {
    let mut bench = Bench::new();
    let said = bench.session.facts().initialize.len() as u64;
    assert_eq!(bench.session.held_bytes(), said);
    bench.put("key", None, Some("value"));
    assert_eq!(bench.session.held_bytes(), said + 8);
    let post = bench.post_at(super::bench::OTHER, "1", "request", true);
    assert_eq!(bench.session.held_bytes(), said + 15);
    let ask = bench.asked(Target::Call(post.call));
    let asked = bench.session.bytes();
    bench.answer_at(super::bench::OTHER, ask, "kept");
    assert_eq!(bench.session.held_bytes(), said + 15 + asked + 4);
}
