//! Calls that one node runs for all, under a lease: without it none begins, and with them it is not given up.

use super::bench::{Bench, NODE, OTHER};
use crate::command::{Fence, Finished, Pass, Passed, Release, Released, Start, Started, StatePut};
use crate::{CallNo, Holdings, NodeId};

const THIRD: NodeId = NodeId(9);

/// Somebody takes the lease, from whoever has it.
fn take(bench: &mut Bench, before: Option<&Fence>) -> Fence {
    let expected = before.map(|fence| fence.version);
    let StatePut::Put { version: Some(version) } = bench.put("lease", expected, Some("me")) else { panic!() };
    Fence { key: "lease".into(), version }
}

fn start(call: CallNo, again: bool, fence: &Fence) -> Start {
    Start { call, node: OTHER, again, fence: Some(fence.clone()) }
}

/// The numbers of calls that a node was given.
fn errands(bench: &Bench, node: NodeId) -> Vec<CallNo> {
    let Holdings::Held { errands, .. } = bench.session.held_by(node) else { return Vec::new() };
    errands.iter().map(|errand| errand.call).collect()
}

#[test]
fn a_call_does_not_begin_under_a_lease_that_is_lost() {
    let mut bench = Bench::new();
    let old = take(&mut bench, None);
    let (one, two) = (bench.post_at(OTHER, "1", "pay", true), bench.post_at(OTHER, "2", "look", true));
    assert_eq!(bench.unchanged(|bench| bench.run(start(two.call, true, &old))), Started::Started);
    assert_eq!(bench.run(start(one.call, false, &old)), Started::Started);
    assert_eq!(bench.changes.started, [one.call], "the other may still be done by others");
    let _new = take(&mut bench, Some(&old));
    for again in [false, true] {
        let late = bench.unchanged(|bench| bench.run(start(two.call, again, &old)));
        assert_eq!(late, Started::Fenced);
    }
}

#[test]
fn a_call_that_has_not_begun_is_passed_on_to_whoever_has_the_lease() {
    let mut bench = Bench::new();
    let old = take(&mut bench, None);
    let (own, given) = (bench.post_at(NODE, "1", "pay", true), bench.post_at(OTHER, "2", "pay", true));
    let pass = |call, node, fence: &Fence| Pass { call, node, to: THIRD, fence: Some(fence.clone()) };
    let new = take(&mut bench, Some(&old));
    let fenced = bench.unchanged(|bench| bench.run(pass(given.call, OTHER, &old)));
    assert_eq!(fenced, Passed::Fenced);
    for (call, node) in [(own.call, NODE), (given.call, NODE), (CallNo(7), OTHER)] {
        let passed = bench.unchanged(|bench| bench.run(pass(call, node, &new)));
        assert_eq!(passed, Passed::Gone, "it was not given to that node");
    }
    assert_eq!(bench.run(pass(given.call, OTHER, &new)), Passed::Passed);
    let next = CallNo(2);
    assert_eq!(bench.changes.errands, [(next, THIRD)]);
    assert_eq!((errands(&bench, OTHER), errands(&bench, THIRD)), (vec![], vec![next]));
    assert_eq!(bench.finish(given.call, "too late"), Finished::AlreadyFinished);
    // As often as the lease changes hands.
    let again = Pass { call: next, node: THIRD, to: NODE, fence: None };
    assert_eq!(bench.run(again), Passed::Passed);
    assert_eq!(errands(&bench, NODE), [CallNo(3)], "even if it had come there first");
    bench.finish(CallNo(3), "paid");
    bench.check_log(given.stream, "1:paid end");
}

#[test]
fn a_lease_is_not_given_up_while_its_holder_has_calls() {
    let mut bench = Bench::new();
    let lease = take(&mut bench, None);
    let release = Release { node: OTHER, fence: lease.clone() };
    let given = bench.post_at(OTHER, "1", "pay", true);
    let theirs = bench.post("2");
    bench.run(start(given.call, false, &lease));
    let busy = bench.unchanged(|bench| bench.run(release.clone()));
    assert_eq!(busy, Released::Busy, "it has begun");
    bench.finish(given.call, "paid");
    let waits = bench.post_at(OTHER, "3", "pay", true);
    let before = bench.session.state_bytes();
    assert_eq!(bench.run(release.clone()), Released::Released, "what others may do is left to them");
    assert!(bench.session.state_bytes() < before && bench.session.state().is_empty());
    assert_eq!(bench.unchanged(|bench| bench.run(release)), Released::Fenced);
    let newer = take(&mut bench, None);
    let mine = Release { node: NODE, fence: newer };
    assert_eq!(bench.unchanged(|bench| bench.run(mine.clone())), Released::Busy, "one has come there");
    bench.finish(theirs.call, "done");
    assert_eq!(bench.run(mine), Released::Released);
    assert_eq!(errands(&bench, OTHER), [waits.call]);
}
