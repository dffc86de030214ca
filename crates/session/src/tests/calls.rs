//! A call is answered exactly once, on its own stream.

use super::fixture::{Fixture, NODE, OTHER, ids};
use crate::command::{Begin, Begun, Cancelled, Finished, NodeFailed};
use crate::{CallNo, ConnNo, Read, StreamNo};

#[test]
fn a_call_finishes_exactly_once() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    assert_eq!(fixture.finish(post.call, "answer"), Finished::Finished { stream: post.stream, seq: 1 });
    assert_eq!(fixture.changes.ended, [post.stream]);
    for _ in 0..2 {
        assert_eq!(
            fixture.unchanged(|fixture| fixture.finish(post.call, "late answer")),
            Finished::AlreadyFinished
        );
        assert!(fixture.changes.appended.is_empty() && fixture.changes.ended.is_empty());
    }
    assert_eq!(fixture.unchanged(|fixture| fixture.finish(CallNo(99), "x")), Finished::AlreadyFinished);
    fixture.check_log(post.stream, "1:answer end");
}

#[test]
fn the_stream_of_a_batch_ends_with_its_last_call() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1 2 3");
    fixture.finish(post.nth(2), "three");
    fixture.check_log(post.stream, "1:three");
    fixture.cancel("1");
    assert!(fixture.changes.ended.is_empty());
    assert!(fixture.session.calls().contains_key(&post.nth(1)));
    fixture.finish(post.nth(1), "two");
    assert_eq!(fixture.changes.ended, [post.stream]);
    fixture.check_log(post.stream, "1:three 2:two end");
}

#[test]
fn a_cancelled_call_ends_its_stream_without_an_answer() {
    let mut fixture = Fixture::new();
    let post = fixture.post("\"a\"");
    assert_eq!(fixture.cancel("\"a\""), Cancelled::Cancelled { call: post.call, owner: NODE });
    assert_eq!(fixture.changes.stopped, [(post.call, NODE)]);
    assert_eq!(fixture.changes.ended, [post.stream]);
    fixture.check_log(post.stream, "end");
    assert_eq!(fixture.unchanged(|fixture| fixture.finish(post.call, "late")), Finished::AlreadyFinished);
    assert_eq!(fixture.cancel("\"a\""), Cancelled::Nothing);
    assert!(fixture.changes.ended.is_empty());
}

#[test]
fn a_cancellation_with_another_id_type_cancels_nothing() {
    let mut fixture = Fixture::new();
    fixture.post("1");
    assert_eq!(fixture.unchanged(|fixture| fixture.cancel("\"1\"")), Cancelled::Nothing);
}

#[test]
fn numbers_are_never_reused() {
    let mut fixture = Fixture::new();
    let a = fixture.post("1 2");
    fixture.finish(a.nth(0), "x");
    fixture.finish(a.nth(1), "x");
    let b = fixture.post("1");
    assert_eq!((a.stream, a.call, a.connection), (StreamNo(1), CallNo(0), ConnNo(0)));
    assert_eq!((b.stream, b.call, b.connection), (StreamNo(2), CallNo(2), ConnNo(1)));
}

#[test]
fn failing_a_node_fails_only_its_own_calls() {
    let mut fixture = Fixture::new();
    let mine = fixture.post("1 \"b\"");
    let begun = fixture.run(Begin::local(OTHER, 1, ids("3")));
    let Begun::Begun { stream: theirs, first, .. } = begun else { panic!("{begun:?}") };
    fixture.finish(mine.call, "done");
    assert_eq!(fixture.fail_node(NODE), NodeFailed::Failed { failed: 1, reassigned: 0, kept: 0 });
    fixture.check_log(mine.stream, "1:done 2:outcome_unknown(\"b\") end");
    fixture.check_log(theirs, "");
    assert_eq!(fixture.changes.stopped, [(mine.nth(1), NODE)]);
    let nothing = NodeFailed::Failed { failed: 0, reassigned: 0, kept: 0 };
    assert_eq!(fixture.unchanged(|fixture| fixture.fail_node(NODE)), nothing);
    assert_eq!(fixture.finish(mine.nth(1), "late"), Finished::AlreadyFinished);
    assert!(matches!(fixture.finish(first, "fine"), Finished::Finished { .. }));
}

#[test]
fn the_session_writes_complete_error_responses() {
    let mut fixture = Fixture::new();
    let post = fixture.post("\"q\\\"uote\"");
    fixture.fail_node(NODE);
    let Read::Slice(slice) = fixture.session.read(post.stream, 0, 0) else { panic!() };
    let text = std::str::from_utf8(slice.events[0].payload.as_deref().unwrap()).unwrap();
    assert_eq!(
        text,
        "{\"jsonrpc\":\"2.0\",\"id\":\"q\\\"uote\",\"error\":{\"code\":-32603,\"message\":\"The server \
         process that ran this call is gone. Whether the call took effect is not known.\",\"data\":\
         {\"reason\":\"outcome_unknown\",\"retryable\":false}}}"
    );
}
