//! Duplicate request ids, and retries of `Begin`.

use super::fixture::{Fixture, NODE, ids};
use crate::CallNo;
use crate::command::{Begin, BeginMode, Begun, Cancelled, Duplicates, Finished};

fn check(in_flight: &[&str], policy: Duplicates, next: &str, refused: Option<&str>) {
    let mut fixture = Fixture::new();
    fixture.duplicates = policy;
    for post in in_flight {
        fixture.post(post);
    }
    let begun = match refused {
        Some(_) => fixture.unchanged(|fixture| fixture.begin(next)),
        None => fixture.begin(next),
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
fn a_refused_duplicate_does_not_affect_the_first_call() {
    let mut fixture = Fixture::new();
    let first = fixture.post("1");
    fixture.begin("1");
    assert!(matches!(fixture.finish(first.call, "mine"), Finished::Finished { seq: 1, .. }));
    fixture.check_log(first.stream, "1:mine end");
}

#[test]
fn an_id_can_be_reused_after_its_call_has_ended() {
    let mut fixture = Fixture::new();
    let answered = fixture.post("1");
    fixture.finish(answered.call, "a");
    fixture.post("1");
    fixture.cancel("1");
    fixture.post("1");
    fixture.fail_node(NODE);
    let last = fixture.post("1");
    fixture.finish(last.call, "b");
    fixture.check_log(answered.stream, "1:a end");
    fixture.check_log(last.stream, "1:b end");
    assert_eq!(last.call, CallNo(3));
}

#[test]
fn isolated_duplicates_each_get_their_own_answer_in_any_order() {
    let mut fixture = Fixture::new();
    fixture.duplicates = Duplicates::Isolate;
    let posts = [fixture.post("1"), fixture.post("1"), fixture.post("1")];
    for (i, answer) in [(2, "third"), (0, "first"), (1, "second")] {
        fixture.finish(posts[i].call, answer);
    }
    fixture.check_log(posts[0].stream, "1:first end");
    fixture.check_log(posts[1].stream, "1:second end");
    fixture.check_log(posts[2].stream, "1:third end");
}

#[test]
fn a_cancellation_that_matches_several_calls_cancels_none() {
    let mut fixture = Fixture::new();
    fixture.duplicates = Duplicates::Isolate;
    let (a, b) = (fixture.post("1"), fixture.post("1"));
    assert_eq!(fixture.unchanged(|fixture| fixture.cancel("1")), Cancelled::Ambiguous);
    fixture.finish(a.call, "a");
    assert_eq!(fixture.cancel("1"), Cancelled::Cancelled { call: b.call, owner: NODE });
    assert_eq!(fixture.cancel("1"), Cancelled::Nothing);
    fixture.check_log(b.stream, "end");
}

fn begin(mode: BeginMode, attempt: u64, client_ids: &str) -> Begin {
    Begin { mode, ..Begin::local(NODE, attempt, ids(client_ids)) }
}

#[test]
fn a_retried_begin_takes_effect_once() {
    let mut fixture = Fixture::new();
    fixture.post("\"x\"");
    let first = fixture.run(begin(BeginMode::First, 50, "1 2 3"));
    assert_eq!(fixture.unchanged(|fixture| fixture.run(begin(BeginMode::Retry, 50, "1 2 3"))), first);
    fixture.cancel("1");
    assert_eq!(fixture.unchanged(|fixture| fixture.run(begin(BeginMode::Retry, 50, "1 2 3"))), first);

    assert!(
        matches!(fixture.run(begin(BeginMode::Retry, 51, "4")), Begun::Begun { .. }),
        "no earlier attempt took effect"
    );
    assert_eq!(
        fixture.run(begin(BeginMode::Retry, 52, "4")),
        Begun::Duplicate(4.into()),
        "another attempt number is another command"
    );
}
