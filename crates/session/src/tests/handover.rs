//! Calls of nodes that are gone, calls that one node gives to another, and leases.

use super::bench::{Bench, NODE, OTHER, Post, ids};
use crate::command::{
    Append, AppendOutcome, AskOpened, Attach, Begin, Begun, Cancelled, FailNode, Fence, Finished, Heir,
    NodeFailed, OpenAsk, Position, Remind, Reminded, Start, Started, StatePut, Target,
};
use crate::{AskNo, CallNo, Class, Errand, Holdings, Limit, NodeId, StreamNo};

const THIRD: NodeId = NodeId(9);

fn bury(bench: &mut Bench, node: NodeId, heir: Heir) -> (u64, u64, u64) {
    match bench.run(FailNode { node, heir }) {
        NodeFailed::Failed { calls, handed, left } => (calls, handed, left),
        NodeFailed::NoSession => panic!("the session is open"),
    }
}

fn errands(bench: &Bench, node: NodeId) -> Vec<(CallNo, String)> {
    let Holdings::Held { errands, calls, .. } = bench.session.held_by(node) else { return Vec::new() };
    let text = |errand: &Errand| String::from_utf8(errand.request.to_vec()).unwrap();
    assert!(errands.iter().all(|errand| calls.contains(&(errand.call, errand.id.clone()))));
    errands.iter().map(|errand| (errand.call, text(errand))).collect()
}

#[test]
fn a_call_that_may_be_done_again_goes_to_the_heir_under_a_new_number() {
    let mut bench = Bench::new();
    let safe = bench.post_at(NODE, "1", "look", true);
    let unsafe_one = bench.post_at(NODE, "2", "pay", false);
    let plain = bench.post("3");
    assert_eq!(errands(&bench, NODE), [], "these are known where they came to");

    assert_eq!(bury(&mut bench, NODE, Heir::Node(OTHER)), (2, 1, 0));
    let new = CallNo(3);
    assert_eq!(bench.changes.errands, [(new, OTHER)]);
    assert_eq!(
        bench.changes.stopped,
        [(safe.call, NODE), (unsafe_one.call, NODE), (plain.call, NODE)],
        "whoever ran them has to stop"
    );
    bench.check_log(unsafe_one.stream, "1:outcome_unknown(2) end");
    bench.check_log(plain.stream, "1:outcome_unknown(3) end");
    bench.check_log(safe.stream, "");
    assert_eq!(errands(&bench, OTHER), [(new, "look".to_owned())]);

    assert_eq!(bench.unchanged(|bench| bench.finish(safe.call, "too late")), Finished::AlreadyFinished);
    assert_eq!(bench.begin("1"), Begun::Duplicate(1.into()), "the client's id is still taken");
    bench.resumed(safe.stream, 0);
    bench.say(Target::Call(new), "on it");
    bench.finish(new, "seen");
    bench.check_log(safe.stream, "1:on it 2:seen end");
    assert_eq!((bench.session.kept_request_bytes(), errands(&bench, OTHER)), (0, vec![]));
}

#[test]
fn a_call_is_handed_over_once() {
    let mut bench = Bench::new();
    let post = bench.post_at(NODE, "1", "look", true);
    assert_eq!(bury(&mut bench, NODE, Heir::Node(OTHER)), (0, 1, 0));
    assert_eq!(bury(&mut bench, NODE, Heir::Node(THIRD)), (0, 0, 0), "that one holds nothing any more");
    assert_eq!(bury(&mut bench, OTHER, Heir::Node(THIRD)), (1, 0, 0));
    bench.check_log(post.stream, "1:outcome_unknown(1) end");
}

/// Whoever was given a call and died before it began has done nothing. Once it has begun, nobody knows.
#[test]
fn a_call_that_was_not_begun_goes_to_the_heir_and_one_that_was_does_not() {
    let mut bench = Bench::new();
    let waits = bench.post_at(OTHER, "1", "pay", true);
    let runs = bench.post_at(OTHER, "2", "pay", true);
    let start = |call, node| Start { call, node, again: false, fence: None };
    assert_eq!(
        bench.unchanged(|bench| bench.run(start(runs.call, NODE))),
        Started::Gone,
        "it is not its own"
    );
    assert_eq!(bench.run(start(runs.call, OTHER)), Started::Started);
    assert_eq!(bench.changes.started, [runs.call]);
    assert_eq!(
        bench.unchanged(|bench| bench.run(start(runs.call, OTHER))),
        Started::Started,
        "as often as it likes"
    );
    assert_eq!(bury(&mut bench, OTHER, Heir::Node(NODE)), (1, 1, 0));
    bench.check_log(runs.stream, "1:outcome_unknown(2) end");
    bench.check_log(waits.stream, "");
    assert_eq!(errands(&bench, NODE), [(CallNo(2), "pay".to_owned())]);
    let late = bench.unchanged(|bench| bench.run(start(waits.call, OTHER)));
    assert_eq!(late, Started::Gone, "whoever wakes up finds that it is another's");
    assert_eq!(bench.run(start(CallNo(2), NODE)), Started::Started);
    bench.finish(CallNo(2), "paid");
    bench.check_log(waits.stream, "1:paid end");
}

/// The word of a call may be lost. Whoever waits for it says so again, until it has begun.
#[test]
fn nodes_are_reminded_of_calls_that_they_have_not_begun() {
    let mut bench = Bench::new();
    let own = bench.post_at(NODE, "1", "look", true);
    let waits = bench.post_at(OTHER, "2", "pay", true);
    let runs = bench.post_at(OTHER, "3", "pay", true);
    bench.run(Start { call: runs.call, node: OTHER, again: false, fence: None });
    let remind = |bench: &mut Bench, node| {
        let calls = bench.session.calls().clone();
        let reminded = bench.run(Remind { node });
        assert_eq!(&calls, bench.session.calls(), "nothing has changed");
        let told = bench.changes.errands.clone();
        assert_eq!(reminded, Reminded::Reminded { calls: told.len() as u64 });
        told
    };
    assert_eq!(remind(&mut bench, NODE), [(waits.call, OTHER)], "that is all that others have to begin");
    assert_eq!(remind(&mut bench, OTHER), [], "nobody reminds itself");
    assert_eq!(remind(&mut bench, THIRD), [], "it waits for nothing");
    let at = Position::After { stream: waits.stream, seq: 0 };
    bench.run(Attach { at, node: THIRD });
    assert_eq!(remind(&mut bench, THIRD), [(waits.call, OTHER)], "its client has come back there");
    bench.finish(own.call, "seen");
    bench.finish(waits.call, "paid");
    assert_eq!(remind(&mut bench, NODE), []);
}

#[test]
fn without_an_heir_all_fail_and_for_a_later_one_some_wait() {
    let mut bench = Bench::new();
    let post = bench.post_at(NODE, "1", "look", true);
    let other = bench.post_at(NODE, "2", "pay", false);
    let ask = bench.asked(Target::Call(post.call));
    assert_eq!(bury(&mut bench, NODE, Heir::Later), (1, 0, 1));
    assert_eq!(bench.changes.withdrawn, [(ask, NODE)]);
    bench.check_log(other.stream, "1:outcome_unknown(2) end");
    bench.check_log(post.stream, "1:ask-0 2:withdrawn(ask-0)");
    assert_eq!(bury(&mut bench, NODE, Heir::Node(OTHER)), (0, 1, 0));

    let post = bench.post_at(NODE, "3", "look", true);
    assert_eq!(bury(&mut bench, NODE, Heir::Nobody), (1, 0, 0));
    bench.check_log(post.stream, "1:outcome_unknown(3) end");
}

#[test]
fn whoever_wakes_up_after_its_burial_has_no_say() {
    for heir in [Heir::Nobody, Heir::Node(OTHER)] {
        let mut bench = Bench::new();
        let post = bench.post_at(NODE, "1", "look", true);
        bench.asked(Target::Call(post.call));
        bury(&mut bench, NODE, heir);
        let log = bench.log(post.stream);
        let late = Target::Call(post.call);
        for class in [Class::Chatter, Class::Notice] {
            let said = bench.unchanged(|bench| bench.append(late, class, "still at it"));
            assert_eq!(said, AppendOutcome::Fenced);
        }
        assert_eq!(bench.unchanged(|bench| bench.ask(late)), AskOpened::CallGone);
        assert_eq!(bench.unchanged(|bench| bench.finish(post.call, "done")), Finished::AlreadyFinished);
        bench.finish(CallNo(1), "the heir's");
        let said = bench.append(late, Class::Chatter, "and after the answer");
        assert_eq!(said, AppendOutcome::Fenced);
        assert!(bench.log(post.stream).starts_with(&log));
        assert!(!bench.session.streams().contains_key(&StreamNo(0)), "nothing went astray");
    }
}

#[test]
fn a_begin_that_is_sent_again_is_told_that_its_call_was_taken() {
    let mut bench = Bench::new();
    let post = bench.post_at(NODE, "1", "look", true);
    bury(&mut bench, NODE, Heir::Node(OTHER));
    bench.resumed(post.stream, 0);
    let taken = Begun::Taken { stream: post.stream };
    assert_eq!(bench.unchanged(|bench| bench.run(sent_again(NODE, NODE, 1))), taken);
    bench.finish(CallNo(1), "seen");
    let over = bench.unchanged(|bench| bench.run(sent_again(NODE, NODE, 1)));
    assert_eq!(over, taken, "it is not done once more");
}

#[test]
fn what_was_taken_from_a_node_is_remembered_within_bounds() {
    let mut bench = Bench::new();
    for n in 1..=20 {
        bench.post_at(OTHER, &n.to_string(), "do", false);
    }
    for n in 1..=20 {
        bench.post_at(NODE, &format!("{} {}", n + 100, n + 200), "look", true);
    }
    bury(&mut bench, NODE, Heir::Node(OTHER));
    let attempts: Vec<u64> = bench.session.meta().mailed.iter().map(|mailed| mailed.attempt).collect();
    let newest: Vec<u64> = (5..=20).chain(25..=40).collect();
    assert_eq!(attempts, newest, "the newest of both");
}

/// Each node counts its commands for itself, so two of them have the same number.
#[test]
fn a_begin_of_the_node_that_was_buried_is_not_taken_for_that_of_the_one_that_gave_it_a_call() {
    let mut bench = Bench::new();
    let post = bench.post_at(OTHER, "1", "look", true);
    assert_eq!(bury(&mut bench, OTHER, Heir::Node(THIRD)), (0, 1, 0));
    let recall = Begin { again: false, recall: true, ..sent_again(OTHER, OTHER, 1) };
    assert_eq!(bench.unchanged(|bench| bench.run(recall)), Begun::Recalled);
    let other = bench.run(Begin { ids: ids("2"), ..sent_again(OTHER, OTHER, 1) });
    assert!(matches!(other, Begun::Begun { stream, .. } if stream != post.stream), "{other:?}");
    let again = bench.unchanged(|bench| bench.run(sent_again(NODE, OTHER, 1)));
    assert_eq!(again, Begun::Taken { stream: post.stream }, "the one that it came to finds it");
}

fn sent_again(node: NodeId, owner: NodeId, attempt: u64) -> Begin {
    Begin { owner, again: true, ..Begin::here(node, attempt, ids("1")) }
}

/// The node that a call came to was cut off, and hears of nothing until the call is over.
#[test]
fn a_begin_for_another_node_that_is_sent_again_takes_effect_once() {
    let meanwhile: [fn(&mut Bench, Post); 3] = [
        |bench, post| assert!(matches!(bench.finish(post.call, "done"), Finished::Finished { .. })),
        |bench, _| assert_eq!(bury(bench, OTHER, Heir::Node(THIRD)), (0, 1, 0)),
        |bench, _| assert_eq!(bury(bench, NODE, Heir::Nobody), (0, 0, 0)),
    ];
    for happens in meanwhile {
        let mut bench = Bench::new();
        let post = bench.post_at(OTHER, "1", "look", true);
        happens(&mut bench, post);
        let again = bench.unchanged(|bench| bench.run(sent_again(NODE, OTHER, 1)));
        assert_eq!(again, Begun::Taken { stream: post.stream });
        let other = bench.run(Begin { ids: ids("2"), ..sent_again(NODE, OTHER, 2) });
        assert!(matches!(other, Begun::Begun { .. }), "the first never arrived: {other:?}");
    }
}

#[test]
fn a_begin_that_is_recalled_begins_nothing() {
    let mut bench = Bench::new();
    let recall = |owner, attempt| Begin { again: false, recall: true, ..sent_again(NODE, owner, attempt) };
    for owner in [NODE, OTHER] {
        let never = bench.unchanged(|bench| bench.run(recall(owner, 7)));
        assert_eq!(never, Begun::Recalled);
    }
    let post = bench.post_at(OTHER, "1", "pay", false);
    let begun = bench.unchanged(|bench| bench.run(recall(OTHER, 1)));
    assert!(matches!(begun, Begun::Begun { first, .. } if first == post.call), "{begun:?}");
    bench.finish(post.call, "paid");
    let over = bench.unchanged(|bench| bench.run(recall(OTHER, 1)));
    assert_eq!(over, Begun::Taken { stream: post.stream });
}

#[test]
fn what_was_given_to_another_node_is_remembered_within_bounds() {
    let mut bench = Bench::new();
    bench.post("0");
    assert_eq!(bench.session.meta().mailed, [], "a call that stays leaves nothing");
    for n in 1..=100 {
        let post = bench.post_at(OTHER, &n.to_string(), "do", false);
        bench.finish(post.call, "done");
    }
    let mailed = &bench.session.meta().mailed;
    assert_eq!((mailed.len(), mailed.last().unwrap().attempt), (32, 101), "the newest");
    bench.wait(40).sweep();
    assert_eq!(bench.session.meta().mailed, [], "no longer than their streams");
}

#[test]
fn what_the_client_cancels_is_cancelled_wherever_it_went() {
    let mut bench = Bench::new();
    let post = bench.post_at(NODE, "1", "look", true);
    bury(&mut bench, NODE, Heir::Node(OTHER));
    assert_eq!(bench.cancel("1"), Cancelled::Cancelled { call: CallNo(1), owner: OTHER });
    assert_eq!(bench.changes.stopped, [(CallNo(1), OTHER)]);
    bench.check_log(post.stream, "end");
    assert_eq!(errands(&bench, OTHER), []);
}

#[test]
fn a_call_is_given_to_the_node_that_has_to_run_it() {
    let mut bench = Bench::new();
    let post = bench.post_at(OTHER, "1 2", "do", false);
    assert_eq!(bench.changes.errands, [(post.nth(0), OTHER), (post.nth(1), OTHER)]);
    assert_eq!(errands(&bench, NODE), []);
    assert_eq!(errands(&bench, OTHER).len(), 2);
    let Holdings::Held { connections, calls, .. } = bench.session.held_by(NODE) else { panic!() };
    assert_eq!((connections, calls), (vec![(post.stream, post.connection)], vec![]));

    assert_eq!(bury(&mut bench, NODE, Heir::Nobody), (0, 0, 0), "it only read");
    bench.resumed(post.stream, 0);
    bench.finish(post.nth(0), "done");
    assert_eq!(bury(&mut bench, OTHER, Heir::Node(NODE)), (1, 0, 0), "nobody knows how far it got");
    bench.check_log(post.stream, "1:done 2:outcome_unknown(2) end");
}

#[test]
fn the_node_that_a_call_came_to_may_inherit_it() {
    let mut bench = Bench::new();
    let post = bench.post_at(OTHER, "1", "look", true);
    assert_eq!(bury(&mut bench, OTHER, Heir::Node(NODE)), (0, 1, 0));
    assert_eq!(errands(&bench, NODE), [(CallNo(1), "look".to_owned())]);
    bench.finish(CallNo(1), "seen");
    bench.check_log(post.stream, "1:seen end");
}

#[test]
fn requests_are_kept_within_a_bound() {
    let mut bench = Bench::with(|rules| rules.limits.kept_request_bytes = 8);
    bench.post_at(NODE, "1", "12345", true);
    let too_much = bench.post_at(NODE, "2", "6789", true);
    assert_eq!(bench.session.kept_request_bytes(), 5, "it runs all the same");
    let refused = Begun::OverLimit(Limit::KeptRequestBytes);
    assert_eq!(bench.unchanged(|bench| bench.begin_at(OTHER, "3", "6789", false)), refused);
    assert_eq!(bury(&mut bench, NODE, Heir::Node(OTHER)), (1, 1, 0));
    bench.check_log(too_much.stream, "1:outcome_unknown(2) end");
    bench.finish(CallNo(2), "seen");
    assert_eq!(bench.session.kept_request_bytes(), 0);
    bench.post_at(OTHER, "3", "12345678", false);
}

#[test]
fn a_lease_that_somebody_else_has_taken_lets_nothing_through() {
    let mut bench = Bench::new();
    let StatePut::Put { version: Some(version) } = bench.put("lease", None, Some("a")) else { panic!() };
    let under = |version| Some(Fence { key: "lease".into(), version });
    let append = |version| Append {
        target: Target::Standalone,
        class: Class::Notice,
        payload: "news".into(),
        fence: under(version),
    };
    let ask = |version| OpenAsk {
        target: Target::Standalone,
        owner: NODE,
        rest: r#""method":"ping"}"#.into(),
        fence: under(version),
    };
    let begin = |version, attempt| Begin { fence: under(version), ..Begin::here(NODE, attempt, ids("1")) };
    assert!(matches!(bench.run(append(version)), AppendOutcome::Appended { .. }));
    assert!(matches!(bench.run(ask(version)), AskOpened::Opened { ask: AskNo(0), .. }));
    let StatePut::Put { version: Some(newer) } = bench.put("lease", Some(version), Some("b")) else {
        panic!()
    };
    for is_given_up in [false, true] {
        if is_given_up {
            bench.put("lease", Some(newer), None);
        }
        assert_eq!(bench.unchanged(|bench| bench.run(append(version))), AppendOutcome::Fenced);
        assert_eq!(bench.unchanged(|bench| bench.run(ask(version))), AskOpened::Fenced);
        assert_eq!(bench.unchanged(|bench| bench.run(begin(version, 70))), Begun::Fenced);
        if !is_given_up {
            assert!(matches!(bench.run(append(newer)), AppendOutcome::Appended { .. }));
            assert!(matches!(bench.run(begin(newer, 71)), Begun::Begun { .. }));
        }
    }
}
