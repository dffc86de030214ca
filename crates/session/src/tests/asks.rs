//! An ask is answered once or withdrawn, and the client is told.

use super::bench::{Act, Bench, NODE, OTHER, ids};
use crate::command::{Answered, AskOpened, Finished, NodeFailed, OpenAsk, Target, Withdrawn};
use crate::{AskNo, StreamNo};

#[test]
fn an_ask_gets_an_id_of_its_own() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    for no in 0..3 {
        let opened = bench.ask(Target::Call(post.call));
        assert_eq!(opened, AskOpened::Opened { ask: AskNo(no), stream: post.stream, seq: no + 1 });
    }
    let payload = bench.changes.appended[0].payload.clone();
    assert_eq!(&payload[..], br#"{"jsonrpc":"2.0","id":"ask-2","method":"sampling/createMessage"}"#);
}

#[test]
fn wire_ids_are_read_strictly() {
    for (id, expect) in [
        (r#""ask-0""#, Some(0)),
        (r#""ask-17""#, Some(17)),
        (r#""ask-18446744073709551615""#, Some(u64::MAX)),
        (r#""ask-18446744073709551616""#, None),
        (r#""ask-""#, None),
        (r#""ask-00""#, None),
        (r#""ask-01""#, None),
        (r#""ask-+1""#, None),
        (r#""ask--1""#, None),
        (r#""ask-1\u0020""#, None),
        (r#""\u0020ask-1""#, None),
        (r#""Ask-1""#, None),
        (r#""ask-ask-1""#, None),
        (r#""1""#, None),
        (r#""""#, None),
        ("1", None),
        ("0", None),
    ] {
        assert_eq!(AskNo::from_wire_id(&ids(id)[0]), expect.map(AskNo), "{id}");
    }
    for no in [0, 9, 10, u64::MAX] {
        let id = steadfast_wire::RequestId::text(AskNo(no).wire_id());
        assert_eq!(AskNo::from_wire_id(&id), Some(AskNo(no)));
    }
}

#[test]
fn an_ask_is_answered_once_in_any_order() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    let (a, b) = (bench.asked(Target::Call(post.call)), bench.asked(Target::Standalone));
    assert_eq!(bench.answer(b), Answered::Answered { call: None });
    assert_eq!(bench.answer(a), Answered::Answered { call: Some(post.call) });
    for ask in [a, b, AskNo(99)] {
        assert_eq!(bench.unchanged(|bench| bench.answer(ask)), Answered::Unknown);
        assert_eq!(bench.unchanged(|bench| bench.withdraw(ask)), Withdrawn::Unknown);
    }
    assert_eq!(bench.asked(Target::Standalone), AskNo(2), "numbers never come back");
}

#[test]
fn an_answered_ask_is_not_withdrawn_with_its_call() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    let ask = bench.asked(Target::Call(post.call));
    bench.answer(ask);
    bench.finish(post.call, "x");
    bench.check_log(post.stream, "1:ask-0 2:x end");
    assert!(bench.changes.withdrawn.is_empty());
}

#[test]
fn a_call_that_ends_takes_its_asks_with_it() {
    let ends: [(&str, Act, &str); 3] = [
        (
            "finish",
            |bench| {
                bench.finish(crate::CallNo(0), "x");
            },
            "1:ask-0 2:ask-2 3:withdrawn(ask-0) 4:withdrawn(ask-2) 5:x end",
        ),
        (
            "cancel",
            |bench| {
                bench.cancel("1");
            },
            "1:ask-0 2:ask-2 3:withdrawn(ask-0) 4:withdrawn(ask-2) end",
        ),
        (
            "close",
            |bench| {
                bench.close();
            },
            "1:ask-0 2:ask-2 3:withdrawn(ask-0) 4:withdrawn(ask-2) 5:session_closed(1) end",
        ),
    ];
    for (name, end, expect) in ends {
        let mut bench = Bench::new();
        let (post, other) = (bench.post("1"), bench.post("2"));
        bench.asked(Target::Call(post.call));
        bench.asked(Target::Call(other.call));
        bench.asked(Target::Call(post.call));
        end(&mut bench);
        assert_eq!(bench.log(post.stream), expect, "{name}");
        assert_eq!(bench.changes.withdrawn[..2], [(AskNo(0), NODE), (AskNo(2), NODE)], "{name}");
        assert_eq!(bench.session.asks().len(), usize::from(name != "close"), "{name}");
    }
}

#[test]
fn a_call_that_has_ended_asks_nothing() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    bench.finish(post.call, "x");
    assert_eq!(bench.unchanged(|bench| bench.ask(Target::Call(post.call))), AskOpened::CallGone);
}

#[test]
fn a_withdrawn_ask_is_taken_back_where_it_was_sent() {
    let mut bench = Bench::new();
    let (first, connection, _) = bench.get();
    let ask = bench.asked(Target::Standalone);
    bench.detach(first, connection, 1);
    bench.get();
    let (second, ..) = bench.get();
    assert_eq!(bench.withdraw(ask), Withdrawn::Withdrawn);
    bench.check_log(first, "1:ask-0 2:withdrawn(ask-0)");
    bench.check_log(second, "");
    assert_eq!(bench.changes.withdrawn, [(ask, NODE)]);
    assert_eq!(bench.withdraw(ask), Withdrawn::Unknown);
}

#[test]
fn a_dead_nodes_asks_are_withdrawn_whatever_they_belong_to() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    for target in [Target::Standalone, Target::Call(post.call)] {
        bench.run(OpenAsk { target, owner: OTHER, rest: r#""method":"ping"}"#.into(), fence: None });
    }
    let mine = bench.asked(Target::Standalone);
    assert_eq!(bench.fail(OTHER), NodeFailed::Failed { calls: 0, handed: 0, left: 0 });
    bench.check_log(StreamNo(0), "1:ask-0 2:ask-2 3:withdrawn(ask-0)");
    bench.check_log(post.stream, "1:ask-1 2:withdrawn(ask-1)");
    assert_eq!(bench.session.asks().keys().copied().collect::<Vec<_>>(), [mine]);
    assert!(matches!(bench.finish(post.call, "x"), Finished::Finished { seq: 3, .. }));
}
