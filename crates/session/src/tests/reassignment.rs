//! Forwarded calls, calls of failed nodes, and fencing.

use super::fixture::{Fixture, NODE, OTHER, Post, ids, not_reassignable, reassignable};
use crate::command::{
    Append, AppendOutcome, Attach, Begin, BeginMode, Begun, Cancelled, FailNode, Fence, Finished, NodeFailed,
    OpenServerRequest, Position, Renotified, Renotify, ServerRequestOpened, Start, Started, StatePut,
    Successor, Target,
};
use crate::{CallNo, Class, ForwardedCall, Holdings, Limit, NodeId, ServerRequestNo, StreamNo};

const THIRD: NodeId = NodeId(9);

/// Fails a node. Returns the numbers of failed, reassigned and kept calls.
fn reap(fixture: &mut Fixture, node: NodeId, successor: Successor) -> (u64, u64, u64) {
    match fixture.run(FailNode { node, successor }) {
        NodeFailed::Failed { failed, reassigned, kept } => (failed, reassigned, kept),
        NodeFailed::NoSession => panic!("the session is open"),
    }
}

/// Returns the calls that were forwarded or reassigned to a node, with their requests.
fn forwarded(fixture: &Fixture, node: NodeId) -> Vec<(CallNo, String)> {
    let Holdings::Held { forwarded, calls, .. } = fixture.session.held_by(node) else { return Vec::new() };
    let text = |forwarded_call: &ForwardedCall| String::from_utf8(forwarded_call.request.to_vec()).unwrap();
    assert!(
        forwarded
            .iter()
            .all(|forwarded_call| calls.contains(&(forwarded_call.call, forwarded_call.id.clone())))
    );
    forwarded.iter().map(|forwarded_call| (forwarded_call.call, text(forwarded_call))).collect()
}

#[test]
fn a_reassignable_call_goes_to_the_successor_under_a_new_number() {
    let mut fixture = Fixture::new();
    let safe = fixture.post_at(NODE, "1", reassignable("look"));
    let unsafe_one = fixture.post_at(NODE, "2", not_reassignable("pay"));
    let plain = fixture.post("3");
    assert_eq!(forwarded(&fixture, NODE), [], "the node received these calls itself");

    assert_eq!(reap(&mut fixture, NODE, Successor::Node(OTHER)), (2, 1, 0));
    let new = CallNo(3);
    assert_eq!(fixture.changes.forwarded, [(new, OTHER)]);
    assert_eq!(
        fixture.changes.stopped,
        [(safe.call, NODE), (unsafe_one.call, NODE), (plain.call, NODE)],
        "the old owner must stop running them"
    );
    fixture.check_log(unsafe_one.stream, "1:outcome_unknown(2) end");
    fixture.check_log(plain.stream, "1:outcome_unknown(3) end");
    fixture.check_log(safe.stream, "");
    assert_eq!(forwarded(&fixture, OTHER), [(new, "look".to_owned())]);

    assert_eq!(fixture.unchanged(|fixture| fixture.finish(safe.call, "too late")), Finished::AlreadyFinished);
    assert_eq!(fixture.begin("1"), Begun::Duplicate(1.into()), "the client's id is still in use");
    fixture.resumed(safe.stream, 0);
    fixture.notify(Target::Call(new), "progress");
    fixture.finish(new, "seen");
    fixture.check_log(safe.stream, "1:progress 2:seen end");
    assert_eq!((fixture.session.kept_request_bytes(), forwarded(&fixture, OTHER)), (0, vec![]));
}

#[test]
fn a_call_is_reassigned_at_most_once() {
    let mut fixture = Fixture::new();
    let post = fixture.post_at(NODE, "1", reassignable("look"));
    assert_eq!(reap(&mut fixture, NODE, Successor::Node(OTHER)), (0, 1, 0));
    assert_eq!(reap(&mut fixture, NODE, Successor::Node(THIRD)), (0, 0, 0), "the node holds nothing");
    assert_eq!(reap(&mut fixture, OTHER, Successor::Node(THIRD)), (1, 0, 0));
    fixture.check_log(post.stream, "1:outcome_unknown(1) end");
}

/// A node that died before it started a forwarded call has not executed it. After the start the
/// outcome is unknown.
#[test]
fn an_unstarted_call_is_reassigned_and_a_started_one_is_not() {
    let mut fixture = Fixture::new();
    let unstarted = fixture.post_at(OTHER, "1", reassignable("pay"));
    let started = fixture.post_at(OTHER, "2", reassignable("pay"));
    let start = |call, node| Start { call, node, idempotent: false, fence: None };
    assert_eq!(
        fixture.unchanged(|fixture| fixture.run(start(started.call, NODE))),
        Started::Gone,
        "another node owns the call"
    );
    assert_eq!(fixture.run(start(started.call, OTHER)), Started::Started);
    assert_eq!(fixture.changes.started, [started.call]);
    assert_eq!(
        fixture.unchanged(|fixture| fixture.run(start(started.call, OTHER))),
        Started::Started,
        "the command is idempotent"
    );
    assert_eq!(reap(&mut fixture, OTHER, Successor::Node(NODE)), (1, 1, 0));
    fixture.check_log(started.stream, "1:outcome_unknown(2) end");
    fixture.check_log(unstarted.stream, "");
    assert_eq!(forwarded(&fixture, NODE), [(CallNo(2), "pay".to_owned())]);
    let late = fixture.unchanged(|fixture| fixture.run(start(unstarted.call, OTHER)));
    assert_eq!(late, Started::Gone, "the old owner finds that another node owns the call");
    assert_eq!(fixture.run(start(CallNo(2), NODE)), Started::Started);
    fixture.finish(CallNo(2), "paid");
    fixture.check_log(unstarted.stream, "1:paid end");
}

/// The hint about a forwarded call may be lost. The node that waits for the call repeats the hint
/// until it is started.
#[test]
fn nodes_are_notified_again_of_calls_that_they_have_not_started() {
    let mut fixture = Fixture::new();
    let own = fixture.post_at(NODE, "1", reassignable("look"));
    let unstarted = fixture.post_at(OTHER, "2", reassignable("pay"));
    let started = fixture.post_at(OTHER, "3", reassignable("pay"));
    fixture.run(Start { call: started.call, node: OTHER, idempotent: false, fence: None });
    let renotify = |fixture: &mut Fixture, node| {
        let calls = fixture.session.calls().clone();
        let outcome = fixture.run(Renotify { node });
        assert_eq!(&calls, fixture.session.calls(), "no table has changed");
        let notified = fixture.changes.forwarded.clone();
        assert_eq!(outcome, Renotified::Renotified { calls: notified.len() as u64 });
        notified
    };
    assert_eq!(
        renotify(&mut fixture, NODE),
        [(unstarted.call, OTHER)],
        "the only call that another node has to start"
    );
    assert_eq!(renotify(&mut fixture, OTHER), [], "a node does not notify itself");
    assert_eq!(renotify(&mut fixture, THIRD), [], "the node waits for no call");
    let at = Position::After { stream: unstarted.stream, seq: 0 };
    fixture.run(Attach { at, node: THIRD });
    assert_eq!(
        renotify(&mut fixture, THIRD),
        [(unstarted.call, OTHER)],
        "the client reattached at this node"
    );
    fixture.finish(own.call, "seen");
    fixture.finish(unstarted.call, "paid");
    assert_eq!(renotify(&mut fixture, NODE), []);
}

#[test]
fn without_a_successor_all_calls_fail_and_for_a_reaper_reassignable_calls_are_kept() {
    let mut fixture = Fixture::new();
    let post = fixture.post_at(NODE, "1", reassignable("look"));
    let other = fixture.post_at(NODE, "2", not_reassignable("pay"));
    let server_request = fixture.opened_server_request(Target::Call(post.call));
    assert_eq!(reap(&mut fixture, NODE, Successor::Reaper), (1, 0, 1));
    assert_eq!(fixture.changes.withdrawn, [(server_request, NODE)]);
    fixture.check_log(other.stream, "1:outcome_unknown(2) end");
    fixture.check_log(post.stream, "1:ask-0 2:withdrawn(ask-0)");
    assert_eq!(reap(&mut fixture, NODE, Successor::Node(OTHER)), (0, 1, 0));

    let post = fixture.post_at(NODE, "3", reassignable("look"));
    assert_eq!(reap(&mut fixture, NODE, Successor::None), (1, 0, 0));
    fixture.check_log(post.stream, "1:outcome_unknown(3) end");
}

#[test]
fn a_reaped_node_that_resumes_is_fenced() {
    for successor in [Successor::None, Successor::Node(OTHER)] {
        let mut fixture = Fixture::new();
        let post = fixture.post_at(NODE, "1", reassignable("look"));
        fixture.opened_server_request(Target::Call(post.call));
        reap(&mut fixture, NODE, successor);
        let log = fixture.log(post.stream);
        let late = Target::Call(post.call);
        for class in [Class::Droppable, Class::Notification] {
            let appended = fixture.unchanged(|fixture| fixture.append(late, class, "late message"));
            assert_eq!(appended, AppendOutcome::Fenced);
        }
        assert_eq!(
            fixture.unchanged(|fixture| fixture.open_server_request(late)),
            ServerRequestOpened::CallGone
        );
        assert_eq!(fixture.unchanged(|fixture| fixture.finish(post.call, "done")), Finished::AlreadyFinished);
        fixture.finish(CallNo(1), "of the successor");
        let appended = fixture.append(late, Class::Droppable, "after the answer");
        assert_eq!(appended, AppendOutcome::Fenced);
        assert!(fixture.log(post.stream).starts_with(&log));
        assert!(
            !fixture.session.streams().contains_key(&StreamNo(0)),
            "no message went to a standalone stream"
        );
    }
}

#[test]
fn a_retried_begin_learns_that_its_call_was_reassigned() {
    let mut fixture = Fixture::new();
    let post = fixture.post_at(NODE, "1", reassignable("look"));
    reap(&mut fixture, NODE, Successor::Node(OTHER));
    fixture.resumed(post.stream, 0);
    let already_begun = Begun::AlreadyBegun { stream: post.stream };
    assert_eq!(fixture.unchanged(|fixture| fixture.run(retry(NODE, NODE, 1))), already_begun);
    fixture.finish(CallNo(1), "seen");
    let over = fixture.unchanged(|fixture| fixture.run(retry(NODE, NODE, 1)));
    assert_eq!(over, already_begun, "the call does not begin again");
}

#[test]
fn a_bounded_number_of_reassigned_begins_is_remembered() {
    let mut fixture = Fixture::new();
    for n in 1..=20 {
        fixture.post_at(OTHER, &n.to_string(), not_reassignable("do"));
    }
    for n in 1..=20 {
        fixture.post_at(NODE, &format!("{} {}", n + 100, n + 200), reassignable("look"));
    }
    reap(&mut fixture, NODE, Successor::Node(OTHER));
    let attempts: Vec<u64> =
        fixture.session.meta().forwarded_begins.iter().map(|begin| begin.attempt).collect();
    let newest: Vec<u64> = (5..=20).chain(25..=40).collect();
    assert_eq!(attempts, newest, "the newest of both nodes");
}

/// Attempt numbers are unique within a node only, so two nodes can use the same one.
#[test]
fn begins_of_two_nodes_with_the_same_attempt_number_are_not_confused() {
    let mut fixture = Fixture::new();
    let post = fixture.post_at(OTHER, "1", reassignable("look"));
    assert_eq!(reap(&mut fixture, OTHER, Successor::Node(THIRD)), (0, 1, 0));
    let recall = Begin { mode: BeginMode::Recall, ..retry(OTHER, OTHER, 1) };
    assert_eq!(fixture.unchanged(|fixture| fixture.run(recall)), Begun::Recalled);
    let other = fixture.run(Begin { ids: ids("2"), ..retry(OTHER, OTHER, 1) });
    assert!(matches!(other, Begun::Begun { stream, .. } if stream != post.stream), "{other:?}");
    let retried = fixture.unchanged(|fixture| fixture.run(retry(NODE, OTHER, 1)));
    assert_eq!(retried, Begun::AlreadyBegun { stream: post.stream }, "the receiving node finds its call");
}

fn retry(node: NodeId, owner: NodeId, attempt: u64) -> Begin {
    Begin { owner, mode: BeginMode::Retry, ..Begin::local(node, attempt, ids("1")) }
}

/// The receiving node loses its connection to the store, and retries only after the call has ended
/// or moved.
#[test]
fn a_retried_begin_for_another_node_takes_effect_once() {
    let meanwhile: [fn(&mut Fixture, Post); 3] = [
        |fixture, post| assert!(matches!(fixture.finish(post.call, "done"), Finished::Finished { .. })),
        |fixture, _| assert_eq!(reap(fixture, OTHER, Successor::Node(THIRD)), (0, 1, 0)),
        |fixture, _| assert_eq!(reap(fixture, NODE, Successor::None), (0, 0, 0)),
    ];
    for event in meanwhile {
        let mut fixture = Fixture::new();
        let post = fixture.post_at(OTHER, "1", reassignable("look"));
        event(&mut fixture, post);
        let retried = fixture.unchanged(|fixture| fixture.run(retry(NODE, OTHER, 1)));
        assert_eq!(retried, Begun::AlreadyBegun { stream: post.stream });
        let other = fixture.run(Begin { ids: ids("2"), ..retry(NODE, OTHER, 2) });
        assert!(matches!(other, Begun::Begun { .. }), "no earlier attempt took effect: {other:?}");
    }
}

#[test]
fn a_recalled_begin_begins_nothing() {
    let mut fixture = Fixture::new();
    let recall = |owner, attempt| Begin { mode: BeginMode::Recall, ..retry(NODE, owner, attempt) };
    for owner in [NODE, OTHER] {
        let recalled = fixture.unchanged(|fixture| fixture.run(recall(owner, 7)));
        assert_eq!(recalled, Begun::Recalled);
    }
    let post = fixture.post_at(OTHER, "1", not_reassignable("pay"));
    let begun = fixture.unchanged(|fixture| fixture.run(recall(OTHER, 1)));
    assert!(matches!(begun, Begun::Begun { first, .. } if first == post.call), "{begun:?}");
    fixture.finish(post.call, "paid");
    let over = fixture.unchanged(|fixture| fixture.run(recall(OTHER, 1)));
    assert_eq!(over, Begun::AlreadyBegun { stream: post.stream });
}

#[test]
fn a_bounded_number_of_forwarded_begins_is_remembered() {
    let mut fixture = Fixture::new();
    fixture.post("0");
    assert_eq!(fixture.session.meta().forwarded_begins, [], "a local call is not remembered");
    for n in 1..=100 {
        let post = fixture.post_at(OTHER, &n.to_string(), not_reassignable("do"));
        fixture.finish(post.call, "done");
    }
    let forwarded_begins = &fixture.session.meta().forwarded_begins;
    assert_eq!(
        (forwarded_begins.len(), forwarded_begins.last().unwrap().attempt),
        (32, 101),
        "the newest are remembered"
    );
    fixture.wait(40).sweep();
    assert_eq!(fixture.session.meta().forwarded_begins, [], "not longer than their streams");
}

#[test]
fn a_cancellation_reaches_a_reassigned_call() {
    let mut fixture = Fixture::new();
    let post = fixture.post_at(NODE, "1", reassignable("look"));
    reap(&mut fixture, NODE, Successor::Node(OTHER));
    assert_eq!(fixture.cancel("1"), Cancelled::Cancelled { call: CallNo(1), owner: OTHER });
    assert_eq!(fixture.changes.stopped, [(CallNo(1), OTHER)]);
    fixture.check_log(post.stream, "end");
    assert_eq!(forwarded(&fixture, OTHER), []);
}

#[test]
fn a_call_is_forwarded_to_its_owner() {
    let mut fixture = Fixture::new();
    let post = fixture.post_at(OTHER, "1 2", not_reassignable("do"));
    assert_eq!(fixture.changes.forwarded, [(post.nth(0), OTHER), (post.nth(1), OTHER)]);
    assert_eq!(forwarded(&fixture, NODE), []);
    assert_eq!(forwarded(&fixture, OTHER).len(), 2);
    let Holdings::Held { connections, calls, .. } = fixture.session.held_by(NODE) else { panic!() };
    assert_eq!((connections, calls), (vec![(post.stream, post.connection)], vec![]));

    assert_eq!(reap(&mut fixture, NODE, Successor::None), (0, 0, 0), "the node only served the connection");
    fixture.resumed(post.stream, 0);
    fixture.finish(post.nth(0), "done");
    assert_eq!(
        reap(&mut fixture, OTHER, Successor::Node(NODE)),
        (1, 0, 0),
        "the call may have been executed"
    );
    fixture.check_log(post.stream, "1:done 2:outcome_unknown(2) end");
}

#[test]
fn a_call_can_be_reassigned_to_the_node_that_received_it() {
    let mut fixture = Fixture::new();
    let post = fixture.post_at(OTHER, "1", reassignable("look"));
    assert_eq!(reap(&mut fixture, OTHER, Successor::Node(NODE)), (0, 1, 0));
    assert_eq!(forwarded(&fixture, NODE), [(CallNo(1), "look".to_owned())]);
    fixture.finish(CallNo(1), "seen");
    fixture.check_log(post.stream, "1:seen end");
}

#[test]
fn stored_requests_are_limited() {
    let mut fixture = Fixture::with(|rules| rules.limits.kept_request_bytes = 8);
    fixture.post_at(NODE, "1", reassignable("12345"));
    let too_much = fixture.post_at(NODE, "2", reassignable("6789"));
    assert_eq!(fixture.session.kept_request_bytes(), 5, "the call begins without its request");
    let refused = Begun::OverLimit(Limit::KeptRequestBytes);
    assert_eq!(fixture.unchanged(|fixture| fixture.begin_at(OTHER, "3", not_reassignable("6789"))), refused);
    assert_eq!(reap(&mut fixture, NODE, Successor::Node(OTHER)), (1, 1, 0));
    fixture.check_log(too_much.stream, "1:outcome_unknown(2) end");
    fixture.finish(CallNo(2), "seen");
    assert_eq!(fixture.session.kept_request_bytes(), 0);
    fixture.post_at(OTHER, "3", not_reassignable("12345678"));
}

#[test]
fn commands_with_an_outdated_fence_are_refused() {
    let mut fixture = Fixture::new();
    let StatePut::Put { version: Some(version) } = fixture.put("lease", None, Some("a")) else { panic!() };
    let fence = |version| Some(Fence { key: "lease".into(), version });
    let append = |version| Append {
        target: Target::Standalone,
        class: Class::Notification,
        payload: "message".into(),
        fence: fence(version),
    };
    let server_request = |version| OpenServerRequest {
        target: Target::Standalone,
        owner: NODE,
        rest: r#""method":"ping"}"#.into(),
        fence: fence(version),
    };
    let begin = |version, attempt| Begin { fence: fence(version), ..Begin::local(NODE, attempt, ids("1")) };
    assert!(matches!(fixture.run(append(version)), AppendOutcome::Appended { .. }));
    assert!(matches!(
        fixture.run(server_request(version)),
        ServerRequestOpened::Opened { server_request: ServerRequestNo(0), .. }
    ));
    let StatePut::Put { version: Some(newer) } = fixture.put("lease", Some(version), Some("b")) else {
        panic!()
    };
    for is_released in [false, true] {
        if is_released {
            fixture.put("lease", Some(newer), None);
        }
        assert_eq!(fixture.unchanged(|fixture| fixture.run(append(version))), AppendOutcome::Fenced);
        assert_eq!(
            fixture.unchanged(|fixture| fixture.run(server_request(version))),
            ServerRequestOpened::Fenced
        );
        assert_eq!(fixture.unchanged(|fixture| fixture.run(begin(version, 70))), Begun::Fenced);
        if !is_released {
            assert!(matches!(fixture.run(append(newer)), AppendOutcome::Appended { .. }));
            assert!(matches!(fixture.run(begin(newer, 71)), Begun::Begun { .. }));
        }
    }
}
