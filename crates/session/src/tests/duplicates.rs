//! S1: two requests with one id.

use super::bench::{Bench, NODE, ids};
use crate::CallNo;
use crate::command::{Begin, Begun, Cancelled, Duplicates, Finished};

fn check(in_flight: &[&str], policy: Duplicates, next: &str, refused: Option<&str>) {
    let mut bench = Bench::new();
    bench.duplicates = policy;
    for post in in_flight {
        bench.post(post);
    }
    let begun = match refused {
        Some(_) => bench.unchanged(|bench| bench.begin(next)),
        None => bench.begin(next),
    };
    match (begun, refused) {
        (Begun::Begun { .. }, None) => {}
        (Begun::Duplicate(id), Some(expect)) => assert_eq!(id.to_string(), expect),
        (begun, _) => panic!("{in_flight:?} {policy:?} {next}: {begun:?}"),
    }
}

#[test]
fn an_id_in_flight_is_refused() {
    use Duplicates::Reject;
    check(&[], Reject, "1", None);
    check(&["1"], Reject, "2", None);
    check(&["1"], Reject, "1", Some("1"));
    check(&["1"], Reject, "-1", None);
    check(&["1"], Reject, "\"1\"", None);
    check(&["\"1\""], Reject, "1", None);
    check(&["1", "\"1\""], Reject, "\"1\"", Some("\"1\""));
    check(&["\"a\""], Reject, "\"\\u0061\"", Some("\"a\""));
    check(&["\"a\""], Reject, "\"A\"", None);
    check(&["1 2 3"], Reject, "4 5 2", Some("2"));
    check(&["1 2"], Reject, "2 1", Some("2"));
}

#[test]
fn an_id_twice_in_one_batch_is_refused_under_every_policy() {
    for policy in [Duplicates::Reject, Duplicates::Isolate] {
        check(&[], policy, "1 1", Some("1"));
        check(&[], policy, "1 2 \"a\" 3 \"a\"", Some("\"a\""));
        check(&[], policy, "1 \"1\"", None);
    }
}

#[test]
fn isolated_duplicates_are_served() {
    use Duplicates::Isolate;
    check(&["1"], Isolate, "1", None);
    check(&["1", "1"], Isolate, "1", None);
    check(&["1 2"], Isolate, "2 1", None);
}

#[test]
fn the_first_is_untouched_by_a_refused_second() {
    let mut bench = Bench::new();
    let first = bench.post("1");
    bench.begin("1");
    assert!(matches!(bench.finish(first.call, "mine"), Finished::Finished { seq: 1, .. }));
    bench.check_log(first.stream, "1:mine end");
}

#[test]
fn an_id_is_free_again_once_its_call_has_ended() {
    let mut bench = Bench::new();
    let answered = bench.post("1");
    bench.finish(answered.call, "a");
    bench.post("1");
    bench.cancel("1");
    bench.post("1");
    bench.fail(NODE);
    let last = bench.post("1");
    bench.finish(last.call, "b");
    bench.check_log(answered.stream, "1:a end");
    bench.check_log(last.stream, "1:b end");
    assert_eq!(last.call, CallNo(3));
}

#[test]
fn isolated_duplicates_each_get_their_own_answer_in_any_order() {
    let mut bench = Bench::new();
    bench.duplicates = Duplicates::Isolate;
    let posts = [bench.post("1"), bench.post("1"), bench.post("1")];
    for (i, answer) in [(2, "third"), (0, "first"), (1, "second")] {
        bench.finish(posts[i].call, answer);
    }
    bench.check_log(posts[0].stream, "1:first end");
    bench.check_log(posts[1].stream, "1:second end");
    bench.check_log(posts[2].stream, "1:third end");
}

#[test]
fn a_cancellation_that_fits_several_calls_cancels_none() {
    let mut bench = Bench::new();
    bench.duplicates = Duplicates::Isolate;
    let (a, b) = (bench.post("1"), bench.post("1"));
    assert_eq!(bench.unchanged(|bench| bench.cancel("1")), Cancelled::Ambiguous);
    bench.finish(a.call, "a");
    assert_eq!(bench.cancel("1"), Cancelled::Cancelled { call: b.call, owner: NODE });
    assert_eq!(bench.cancel("1"), Cancelled::Nothing);
    bench.check_log(b.stream, "end");
}

fn attempt(attempt: u64, again: bool, client_ids: &str) -> Begin {
    Begin { again, ..Begin::here(NODE, attempt, ids(client_ids)) }
}

#[test]
fn a_begin_sent_again_takes_effect_once() {
    let mut bench = Bench::new();
    bench.post("\"x\"");
    let first = bench.run(attempt(50, false, "1 2 3"));
    assert_eq!(bench.unchanged(|bench| bench.run(attempt(50, true, "1 2 3"))), first);
    bench.cancel("1");
    assert_eq!(bench.unchanged(|bench| bench.run(attempt(50, true, "1 2 3"))), first);

    assert!(matches!(bench.run(attempt(51, true, "4")), Begun::Begun { .. }), "the first never arrived");
    assert_eq!(bench.run(attempt(52, true, "4")), Begun::Duplicate(4.into()), "that is another command");
}
