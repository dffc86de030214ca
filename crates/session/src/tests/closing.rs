//! The end of a session: one error per call, one end per stream, and silence.

use super::bench::{Bench, NODE, ids};
use crate::command::{
    Answered, Append, AppendOutcome, AskOpened, Attach, Attached, Begun, Cancel, Cancelled, Closed, Collect,
    Collected, Delivered, Detached, Finished, GetState, NodeFailed, Position, StateGot, StatePut, Swept,
    Target, Touch, Touched, Withdrawn,
};
use crate::{AskNo, Class, CloseReason, Lifecycle, Read, StreamNo};

#[test]
fn closing_answers_each_call_and_ends_each_stream_once() {
    let mut bench = Bench::new();
    let done = bench.post("0");
    bench.finish(done.call, "done");
    let batch = bench.post("1 \"1\" 2");
    bench.finish(batch.nth(1), "early");
    let lone = bench.post("3");
    bench.detach(lone.stream, lone.connection, 0);
    bench.asked(Target::Call(batch.nth(0)));
    let standalone_ask = bench.asked(Target::Standalone);
    bench.get();
    assert_eq!(bench.close(), Closed::Closed);

    bench.check_log(done.stream, "1:done end");
    bench.check_log(
        batch.stream,
        "1:early 2:ask-0 3:withdrawn(ask-0) 4:session_closed(1) 5:session_closed(2) end",
    );
    bench.check_log(lone.stream, "1:session_closed(3) end");
    bench.check_log(StreamNo(0), "1:ask-1 end");
    let mut ended = bench.changes.ended.clone();
    ended.sort();
    assert_eq!(ended, [StreamNo(0), batch.stream, lone.stream]);
    assert_eq!(bench.changes.stopped, [(batch.nth(0), NODE), (batch.nth(2), NODE), (lone.call, NODE)]);
    assert_eq!(bench.changes.withdrawn, [(AskNo(0), NODE), (standalone_ask, NODE)]);
    assert_eq!(bench.lifecycle, [Lifecycle::Closed(CloseReason::Deleted)]);
    assert!(bench.session.calls().is_empty() && bench.session.asks().is_empty());
}

#[test]
fn a_closed_session_answers_to_nothing_but_read_and_detach() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    bench.close();
    bench.unchanged(|bench| {
        assert_eq!(bench.run(Touch), Touched::NoSession);
        assert_eq!(bench.close(), Closed::NoSession);
        assert_eq!(bench.begin("2"), Begun::NoSession);
        let append = |target| Append { target, class: Class::Response, payload: "x".into(), fence: None };
        assert_eq!(bench.run(append(Target::Call(post.call))), AppendOutcome::NoSession);
        assert_eq!(bench.run(append(Target::Standalone)), AppendOutcome::NoSession);
        assert_eq!(bench.finish(post.call, "x"), Finished::NoSession);
        assert_eq!(bench.run(Cancel { id: ids("1").remove(0) }), Cancelled::NoSession);
        assert_eq!(bench.fail(NODE), NodeFailed::NoSession);
        assert_eq!(bench.ask(Target::Standalone), AskOpened::NoSession);
        assert_eq!(bench.answer(AskNo(0)), Answered::NoSession);
        assert_eq!(bench.run(Collect { node: NODE, asks: vec![] }), Collected::NoSession);
        assert_eq!(bench.withdraw(AskNo(0)), Withdrawn::NoSession);
        assert_eq!(bench.resume(post.stream, 0), Attached::NoSession);
        assert_eq!(bench.run(Attach { at: Position::Standalone, node: NODE }), Attached::NoSession);
        assert_eq!(bench.deliver(post.stream, post.connection, 1), Delivered::NoSession);
        assert_eq!(bench.put("k", None, Some("v")), StatePut::NoSession);
        assert_eq!(bench.run(GetState { key: "k".into() }), StateGot::Left(None));
        assert!(matches!(bench.sweep(), Swept::Next(Some(_))));
        assert!(matches!(bench.session.read(post.stream, 0, 0), Read::Slice(_)));
        assert_eq!(bench.session.deadline(&bench.rules), None);
    });
    assert_eq!(bench.detach(post.stream, post.connection, 1), Detached::Detached);
    assert_eq!(bench.detach(post.stream, post.connection, 1), Detached::Stale);
    assert_eq!(bench.lifecycle, [Lifecycle::Closed(CloseReason::Deleted)]);
}

#[test]
fn closing_while_detached_says_only_closed() {
    let mut bench = Bench::new();
    let (stream, connection, _) = bench.get();
    bench.detach(stream, connection, 0);
    bench.close();
    assert_eq!(bench.lifecycle, [Lifecycle::Detached, Lifecycle::Closed(CloseReason::Deleted)]);
}
