//! Closing a session: each call gets an error, each stream ends, and later commands are refused.

use super::fixture::{Fixture, NODE, ids};
use crate::command::{
    Answered, Append, AppendOutcome, Attach, Attached, Begun, Cancel, Cancelled, Closed, Collect, Collected,
    Delivered, Detached, Finished, GetState, NodeFailed, Position, ServerRequestOpened, StateGot, StatePut,
    Swept, Target, Touch, Touched, Withdrawn,
};
use crate::{Class, CloseReason, Lifecycle, Read, ServerRequestNo, StreamNo};

#[test]
fn closing_answers_each_call_and_ends_each_stream_once() {
    let mut fixture = Fixture::new();
    let done = fixture.post("0");
    fixture.finish(done.call, "done");
    let batch = fixture.post("1 \"1\" 2");
    fixture.finish(batch.nth(1), "early");
    let detached = fixture.post("3");
    fixture.detach(detached.stream, detached.connection, 0);
    fixture.opened_server_request(Target::Call(batch.nth(0)));
    let standalone_request = fixture.opened_server_request(Target::Standalone);
    fixture.get();
    assert_eq!(fixture.close(), Closed::Closed);

    fixture.check_log(done.stream, "1:done end");
    fixture.check_log(
        batch.stream,
        "1:early 2:ask-0 3:withdrawn(ask-0) 4:session_closed(1) 5:session_closed(2) end",
    );
    fixture.check_log(detached.stream, "1:session_closed(3) end");
    fixture.check_log(StreamNo(0), "1:ask-1 end");
    let mut ended = fixture.changes.ended.clone();
    ended.sort();
    assert_eq!(ended, [StreamNo(0), batch.stream, detached.stream]);
    assert_eq!(fixture.changes.stopped, [(batch.nth(0), NODE), (batch.nth(2), NODE), (detached.call, NODE)]);
    assert_eq!(fixture.changes.withdrawn, [(ServerRequestNo(0), NODE), (standalone_request, NODE)]);
    assert_eq!(fixture.lifecycle, [Lifecycle::Closed(CloseReason::Deleted)]);
    assert!(fixture.session.calls().is_empty() && fixture.session.server_requests().is_empty());
}

#[test]
fn a_closed_session_accepts_only_reads_and_detach() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    fixture.close();
    fixture.unchanged(|fixture| {
        assert_eq!(fixture.run(Touch), Touched::NoSession);
        assert_eq!(fixture.close(), Closed::NoSession);
        assert_eq!(fixture.begin("2"), Begun::NoSession);
        let append = |target| Append { target, class: Class::Response, payload: "x".into(), fence: None };
        assert_eq!(fixture.run(append(Target::Call(post.call))), AppendOutcome::NoSession);
        assert_eq!(fixture.run(append(Target::Standalone)), AppendOutcome::NoSession);
        assert_eq!(fixture.finish(post.call, "x"), Finished::NoSession);
        assert_eq!(fixture.run(Cancel { id: ids("1").remove(0) }), Cancelled::NoSession);
        assert_eq!(fixture.fail_node(NODE), NodeFailed::NoSession);
        assert_eq!(fixture.open_server_request(Target::Standalone), ServerRequestOpened::NoSession);
        assert_eq!(fixture.answer(ServerRequestNo(0)), Answered::NoSession);
        assert_eq!(fixture.run(Collect { node: NODE, server_requests: vec![] }), Collected::NoSession);
        assert_eq!(fixture.withdraw(ServerRequestNo(0)), Withdrawn::NoSession);
        assert_eq!(fixture.resume(post.stream, 0), Attached::NoSession);
        assert_eq!(fixture.run(Attach { at: Position::Standalone, node: NODE }), Attached::NoSession);
        assert_eq!(fixture.deliver(post.stream, post.connection, 1), Delivered::NoSession);
        assert_eq!(fixture.put("k", None, Some("v")), StatePut::NoSession);
        assert_eq!(fixture.run(GetState { key: "k".into() }), StateGot::SessionClosed(None));
        assert!(matches!(fixture.sweep(), Swept::Next(Some(_))));
        assert!(matches!(fixture.session.read(post.stream, 0, 0), Read::Slice(_)));
        assert_eq!(fixture.session.deadline(&fixture.rules), None);
    });
    assert_eq!(fixture.detach(post.stream, post.connection, 1), Detached::Detached);
    assert_eq!(fixture.detach(post.stream, post.connection, 1), Detached::Stale);
    assert_eq!(fixture.lifecycle, [Lifecycle::Closed(CloseReason::Deleted)]);
}

#[test]
fn closing_while_detached_reports_only_closed() {
    let mut fixture = Fixture::new();
    let (stream, connection, _) = fixture.get();
    fixture.detach(stream, connection, 0);
    fixture.close();
    assert_eq!(fixture.lifecycle, [Lifecycle::Detached, Lifecycle::Closed(CloseReason::Deleted)]);
}
