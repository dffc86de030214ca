//! Leases: a forwarded call starts only under the current lease, and a lease is not released while
//! its holder has calls.

use super::fixture::{Fixture, NODE, OTHER, reassignable};
use crate::command::{Fence, Finished, Forward, Forwarded, Release, Released, Start, Started, StatePut};
use crate::{CallNo, Holdings, NodeId};

const THIRD: NodeId = NodeId(9);

/// Takes the lease, from the holder of `before` if there is one. Returns the new fence.
fn take(fixture: &mut Fixture, before: Option<&Fence>) -> Fence {
    let expected = before.map(|fence| fence.version);
    let StatePut::Put { version: Some(version) } = fixture.put("lease", expected, Some("me")) else {
        panic!()
    };
    Fence { key: "lease".into(), version }
}

fn start(call: CallNo, idempotent: bool, fence: &Fence) -> Start {
    Start { call, node: OTHER, idempotent, fence: Some(fence.clone()) }
}

/// Returns the numbers of the calls that were forwarded to a node.
fn forwarded(fixture: &Fixture, node: NodeId) -> Vec<CallNo> {
    let Holdings::Held { forwarded, .. } = fixture.session.held_by(node) else { return Vec::new() };
    forwarded.iter().map(|forwarded_call| forwarded_call.call).collect()
}

#[test]
fn a_call_does_not_start_under_a_lost_lease() {
    let mut fixture = Fixture::new();
    let old = take(&mut fixture, None);
    let (one, two) =
        (fixture.post_at(OTHER, "1", reassignable("pay")), fixture.post_at(OTHER, "2", reassignable("look")));
    assert_eq!(fixture.unchanged(|fixture| fixture.run(start(two.call, true, &old))), Started::Started);
    assert_eq!(fixture.run(start(one.call, false, &old)), Started::Started);
    assert_eq!(fixture.changes.started, [one.call], "the idempotent call stays reassignable");
    let _new = take(&mut fixture, Some(&old));
    for idempotent in [false, true] {
        let late = fixture.unchanged(|fixture| fixture.run(start(two.call, idempotent, &old)));
        assert_eq!(late, Started::Fenced);
    }
}

#[test]
fn a_call_that_has_not_started_is_forwarded_to_the_holder_of_the_lease() {
    let mut fixture = Fixture::new();
    let old = take(&mut fixture, None);
    let (own, forwarded_post) =
        (fixture.post_at(NODE, "1", reassignable("pay")), fixture.post_at(OTHER, "2", reassignable("pay")));
    let forward = |call, node, fence: &Fence| Forward { call, node, to: THIRD, fence: Some(fence.clone()) };
    let new = take(&mut fixture, Some(&old));
    let fenced = fixture.unchanged(|fixture| fixture.run(forward(forwarded_post.call, OTHER, &old)));
    assert_eq!(fenced, Forwarded::Fenced);
    for (call, node) in [(own.call, NODE), (forwarded_post.call, NODE), (CallNo(7), OTHER)] {
        let outcome = fixture.unchanged(|fixture| fixture.run(forward(call, node, &new)));
        assert_eq!(outcome, Forwarded::Gone, "the call was not forwarded to that node");
    }
    assert_eq!(fixture.run(forward(forwarded_post.call, OTHER, &new)), Forwarded::Forwarded);
    let next = CallNo(2);
    assert_eq!(fixture.changes.forwarded, [(next, THIRD)]);
    assert_eq!((forwarded(&fixture, OTHER), forwarded(&fixture, THIRD)), (vec![], vec![next]));
    assert_eq!(fixture.finish(forwarded_post.call, "too late"), Finished::AlreadyFinished);
    // The call is forwarded as often as the lease changes hands.
    let back = Forward { call: next, node: THIRD, to: NODE, fence: None };
    assert_eq!(fixture.run(back), Forwarded::Forwarded);
    assert_eq!(forwarded(&fixture, NODE), [CallNo(3)], "even to the node that received it");
    fixture.finish(CallNo(3), "paid");
    fixture.check_log(forwarded_post.stream, "1:paid end");
}

#[test]
fn a_lease_is_not_released_while_its_holder_has_calls() {
    let mut fixture = Fixture::new();
    let lease = take(&mut fixture, None);
    let release = Release { node: OTHER, fence: lease.clone() };
    let forwarded_post = fixture.post_at(OTHER, "1", reassignable("pay"));
    let received = fixture.post("2");
    fixture.run(start(forwarded_post.call, false, &lease));
    let busy = fixture.unchanged(|fixture| fixture.run(release.clone()));
    assert_eq!(busy, Released::Busy, "the call has started");
    fixture.finish(forwarded_post.call, "paid");
    let unstarted = fixture.post_at(OTHER, "3", reassignable("pay"));
    let before = fixture.session.state_bytes();
    assert_eq!(
        fixture.run(release.clone()),
        Released::Released,
        "a call that has not started can move to the next holder"
    );
    assert!(fixture.session.state_bytes() < before && fixture.session.state().is_empty());
    assert_eq!(fixture.unchanged(|fixture| fixture.run(release)), Released::Fenced);
    let newer = take(&mut fixture, None);
    let mine = Release { node: NODE, fence: newer };
    assert_eq!(
        fixture.unchanged(|fixture| fixture.run(mine.clone())),
        Released::Busy,
        "the node runs a call that it received"
    );
    fixture.finish(received.call, "done");
    assert_eq!(fixture.run(mine), Released::Released);
    assert_eq!(forwarded(&fixture, OTHER), [unstarted.call]);
}
