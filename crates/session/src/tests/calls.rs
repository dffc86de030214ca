//! A call is answered exactly once, on its own stream.

use super::bench::{Bench, NODE, OTHER, ids};
use crate::command::{Begin, Begun, Cancelled, Finished, NodeFailed};
use crate::{CallNo, ConnNo, Read, StreamNo};

#[test]
fn a_call_finishes_exactly_once() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    assert_eq!(bench.finish(post.call, "answer"), Finished::Finished { stream: post.stream, seq: 1 });
    assert_eq!(bench.changes.ended, [post.stream]);
    for _ in 0..2 {
        assert_eq!(
            bench.unchanged(|bench| bench.finish(post.call, "late answer")),
            Finished::AlreadyFinished
        );
        assert!(bench.changes.appended.is_empty() && bench.changes.ended.is_empty());
    }
    assert_eq!(bench.unchanged(|bench| bench.finish(CallNo(99), "x")), Finished::AlreadyFinished);
    bench.check_log(post.stream, "1:answer end");
}

#[test]
fn a_batch_ends_with_the_last_of_its_calls() {
    let mut bench = Bench::new();
    let post = bench.post("1 2 3");
    bench.finish(post.nth(2), "three");
    bench.check_log(post.stream, "1:three");
    bench.cancel("1");
    assert!(bench.changes.ended.is_empty());
    assert!(bench.session.calls().contains_key(&post.nth(1)));
    bench.finish(post.nth(1), "two");
    assert_eq!(bench.changes.ended, [post.stream]);
    bench.check_log(post.stream, "1:three 2:two end");
}

#[test]
fn a_cancelled_call_ends_its_stream_without_an_answer() {
    let mut bench = Bench::new();
    let post = bench.post("\"a\"");
    assert_eq!(bench.cancel("\"a\""), Cancelled::Cancelled { call: post.call, owner: NODE });
    assert_eq!(bench.changes.stopped, [(post.call, NODE)]);
    assert_eq!(bench.changes.ended, [post.stream]);
    bench.check_log(post.stream, "end");
    assert_eq!(bench.unchanged(|bench| bench.finish(post.call, "late")), Finished::AlreadyFinished);
    assert_eq!(bench.cancel("\"a\""), Cancelled::Nothing);
    assert!(bench.changes.ended.is_empty());
}

#[test]
fn a_cancellation_of_the_other_type_of_id_cancels_nothing() {
    let mut bench = Bench::new();
    bench.post("1");
    assert_eq!(bench.unchanged(|bench| bench.cancel("\"1\"")), Cancelled::Nothing);
}

#[test]
fn numbers_never_come_back() {
    let mut bench = Bench::new();
    let a = bench.post("1 2");
    bench.finish(a.nth(0), "x");
    bench.finish(a.nth(1), "x");
    let b = bench.post("1");
    assert_eq!((a.stream, a.call, a.connection), (StreamNo(1), CallNo(0), ConnNo(0)));
    assert_eq!((b.stream, b.call, b.connection), (StreamNo(2), CallNo(2), ConnNo(1)));
}

#[test]
fn a_dead_node_fails_its_own_calls_and_no_others() {
    let mut bench = Bench::new();
    let mine = bench.post("1 \"b\"");
    let begun = bench.run(Begin::here(OTHER, 1, ids("3")));
    let Begun::Begun { stream: theirs, first, .. } = begun else { panic!("{begun:?}") };
    bench.finish(mine.call, "done");
    assert_eq!(bench.fail(NODE), NodeFailed::Failed { calls: 1, handed: 0, left: 0 });
    bench.check_log(mine.stream, "1:done 2:outcome_unknown(\"b\") end");
    bench.check_log(theirs, "");
    assert_eq!(bench.changes.stopped, [(mine.nth(1), NODE)]);
    let nothing = NodeFailed::Failed { calls: 0, handed: 0, left: 0 };
    assert_eq!(bench.unchanged(|bench| bench.fail(NODE)), nothing);
    assert_eq!(bench.finish(mine.nth(1), "late"), Finished::AlreadyFinished);
    assert!(matches!(bench.finish(first, "fine"), Finished::Finished { .. }));
}

#[test]
fn the_errors_that_the_session_writes_are_whole_messages() {
    let mut bench = Bench::new();
    let post = bench.post("\"q\\\"uote\"");
    bench.fail(NODE);
    let Read::Slice(slice) = bench.session.read(post.stream, 0, 0) else { panic!() };
    let text = std::str::from_utf8(slice.entries[0].payload.as_deref().unwrap()).unwrap();
    assert_eq!(
        text,
        "{\"jsonrpc\":\"2.0\",\"id\":\"q\\\"uote\",\"error\":{\"code\":-32603,\"message\":\"The server \
         process that ran this call is gone. Whether the call took effect is not known.\",\"data\":\
         {\"reason\":\"outcome_unknown\",\"retryable\":false}}}"
    );
}
