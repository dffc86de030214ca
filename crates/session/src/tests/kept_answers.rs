//! An answer that comes to another node than the asker's is kept for it, once, and goes with its ask.

use super::bench::{Act, Bench, NODE, OTHER};
use crate::command::{Answer, Answered, AskOpened, Collect, Collected, Target, Withdrawn};
use crate::{AskNo, CallNo, Holdings, Limit, NodeId, StreamNo};

const KEPT: Answered = Answered::Kept { owner: NODE };

fn kept_for(bench: &Bench, node: NodeId) -> Vec<(AskNo, String)> {
    let Holdings::Held { answers, .. } = bench.session.held_by(node) else { return Vec::new() };
    answers.into_iter().map(|(ask, text)| (ask, String::from_utf8(text.to_vec()).unwrap())).collect()
}

fn collect(bench: &mut Bench, node: NodeId, asks: &[AskNo]) -> Collected {
    bench.run(Collect { node, asks: asks.to_vec() })
}

#[test]
fn it_is_kept_until_its_owner_has_it() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    let ask = bench.asked(Target::Call(post.call));
    assert_eq!(bench.answer_at(OTHER, ask, "heard"), KEPT);
    assert_eq!(bench.changes.kept, [(ask, NODE)]);
    assert_eq!(kept_for(&bench, OTHER), []);
    for _ in 0..2 {
        assert_eq!(kept_for(&bench, NODE), [(ask, "heard".to_owned())], "looking does not take it");
    }
    assert_eq!(bench.session.kept_answer_bytes(), 5);
    assert_eq!(collect(&mut bench, NODE, &[ask]), Collected::Collected);
    assert_eq!(bench.changes.asks, [ask]);
    assert_eq!(bench.changes.withdrawn, [], "its asker has it");
    assert_eq!((kept_for(&bench, NODE), bench.session.asks().len()), (vec![], 0));
    assert_eq!(bench.session.kept_answer_bytes(), 0);
    bench.unchanged(|bench| collect(bench, NODE, &[ask, AskNo(99)]));
    assert_eq!(bench.answer_at(OTHER, ask, "again"), Answered::Unknown);
    bench.finish(post.call, "x");
    bench.check_log(post.stream, "1:ask-0 2:x end");
}

#[test]
fn the_first_answer_is_the_one() {
    let mut bench = Bench::new();
    let ask = bench.asked(Target::Standalone);
    assert_eq!(bench.answer_at(OTHER, ask, "first"), KEPT);
    for node in [OTHER, NODE, NodeId(9)] {
        assert_eq!(bench.unchanged(|bench| bench.answer_at(node, ask, "second")), Answered::Before);
    }
    assert_eq!(kept_for(&bench, NODE), [(ask, "first".to_owned())]);
}

#[test]
fn the_same_command_is_told_the_same_again() {
    let mut bench = Bench::new();
    let ask = bench.asked(Target::Standalone);
    let answer = Answer { ask, node: OTHER, attempt: 77, message: "heard".into() };
    assert_eq!(bench.run(answer.clone()), KEPT);
    assert_eq!(bench.unchanged(|bench| bench.run(answer.clone())), KEPT);
    for other in [
        Answer { attempt: 78, ..answer.clone() },
        Answer { node: NODE, ..answer.clone() },
        Answer { node: NodeId(9), ..answer },
    ] {
        assert_eq!(bench.unchanged(|bench| bench.run(other.clone())), Answered::Before, "{other:?}");
    }
}

#[test]
fn nobody_collects_what_is_not_kept_for_it() {
    let mut bench = Bench::new();
    let (kept, open) = (bench.asked(Target::Standalone), bench.asked(Target::Standalone));
    bench.answer_at(OTHER, kept, "heard");
    bench.unchanged(|bench| collect(bench, OTHER, &[kept, open]));
    bench.unchanged(|bench| collect(bench, NODE, &[open]));
    assert_eq!(bench.answer(open), Answered::Answered { call: None });
}

#[test]
fn it_goes_with_whatever_ends_its_ask_and_the_client_is_not_bothered() {
    let ends: [(&str, Act, &str); 5] = [
        ("finish", |bench| _ = bench.finish(CallNo(0), "x"), "1:ask-0 2:x end"),
        ("cancel", |bench| _ = bench.cancel("1"), "1:ask-0 end"),
        ("close", |bench| _ = bench.close(), "1:ask-0 2:session_closed(1) end"),
        ("its node", |bench| _ = bench.fail(NODE), "1:ask-0 2:outcome_unknown(1) end"),
        ("withdraw", |bench| assert_eq!(bench.withdraw(AskNo(0)), Withdrawn::Withdrawn), "1:ask-0"),
    ];
    for (name, end, expect) in ends {
        let mut bench = Bench::new();
        let post = bench.post("1");
        let ask = bench.asked(Target::Call(post.call));
        bench.answer_at(OTHER, ask, "heard");
        end(&mut bench);
        assert_eq!(bench.log(post.stream), expect, "{name}");
        assert_eq!(bench.changes.withdrawn, [(ask, NODE)], "{name}");
        assert_eq!((bench.session.asks().len(), bench.session.kept_answer_bytes()), (0, 0), "{name}");
        assert_eq!(kept_for(&bench, NODE), [], "{name}");
    }
}

#[test]
fn it_survives_the_node_that_it_came_to() {
    let mut bench = Bench::new();
    let ask = bench.asked(Target::Standalone);
    bench.answer_at(OTHER, ask, "heard");
    bench.fail(OTHER);
    assert_eq!(kept_for(&bench, NODE), [(ask, "heard".to_owned())]);
    bench.check_log(StreamNo(0), "1:ask-0");
}

#[test]
fn what_is_kept_has_a_bound() {
    let mut bench = Bench::with(|rules| rules.limits.kept_answer_bytes = 8);
    let asks: Vec<AskNo> = (0..3).map(|_| bench.asked(Target::Standalone)).collect();
    assert_eq!(bench.answer_at(OTHER, asks[0], "four"), KEPT);
    let refused = bench.unchanged(|bench| bench.answer_at(OTHER, asks[1], "five!"));
    assert_eq!(refused, Answered::OverLimit(Limit::KeptAnswerBytes));
    assert_eq!(bench.answer_at(OTHER, asks[1], "more"), KEPT);
    assert_eq!(bench.answer_at(OTHER, asks[2], "x"), Answered::OverLimit(Limit::KeptAnswerBytes));
    assert_eq!(bench.answer_at(NODE, asks[2], "as long as it likes"), Answered::Answered { call: None });
    collect(&mut bench, NODE, &asks[..1]);
    assert_eq!(bench.session.kept_answer_bytes(), 4);
}

#[test]
fn an_ask_counts_until_its_answer_is_collected() {
    let mut bench = Bench::with(|rules| rules.limits.asks = 1);
    let ask = bench.asked(Target::Standalone);
    bench.answer_at(OTHER, ask, "heard");
    assert_eq!(bench.ask(Target::Standalone), AskOpened::OverLimit(Limit::Asks));
    collect(&mut bench, NODE, &[ask]);
    bench.asked(Target::Standalone);
}
