//! Room: what gives way to a new message, in a stream and in the whole session.

use super::bench::{Bench, OVERHEAD};
use crate::command::{AppendOutcome, AskOpened, Begun, OpenAsk, Target};
use crate::{AskNo, Class, ConnNo, Limit, NodeId, StreamNo};

const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;
const ONE: u64 = OVERHEAD + 1;

/// A session with a reader, whose streams have room for so many messages of one letter.
fn read(room: u64) -> (Bench, ConnNo) {
    let mut bench = Bench::with(|rules| rules.limits.stream_bytes = room * ONE);
    let (_, connection, _) = bench.get();
    (bench, connection)
}

/// What an ask costs that is open.
fn ask_size(bench: &mut Bench) -> u64 {
    let before = bench.session.bytes();
    bench.asked(Target::Standalone);
    bench.session.bytes() - before
}

#[test]
fn notices_keep_flowing_to_a_reader_that_keeps_up() {
    let (mut bench, connection) = read(3);
    for seq in 1..1000 {
        bench.say(Target::Standalone, "N");
        assert!(bench.session.bytes() <= 3 * ONE);
        if seq % 3 == 0 {
            bench.deliver(FIRST, connection, seq);
        }
    }
    bench.say(Target::Standalone, "X");
    bench.check_log(FIRST, "998:N 999:N 1000:X missing=997");
}

#[test]
fn notices_to_a_reader_that_does_not_keep_up_are_refused() {
    let (mut bench, connection) = read(3);
    for text in ["A", "B", "C"] {
        bench.say(Target::Standalone, text);
    }
    let refuse = |bench: &mut Bench| {
        let refused = bench.unchanged(|bench| bench.append(Target::Standalone, Class::Notice, "D"));
        assert_eq!(refused, AppendOutcome::Full(Limit::StreamBytes));
        assert!(bench.changes.dropped.is_empty());
    };
    refuse(&mut bench);
    bench.deliver(FIRST, connection, 1);
    bench.say(Target::Standalone, "E");
    assert_eq!(bench.changes.dropped, [(FIRST, 1)]);
    refuse(&mut bench);
    bench.check_log(FIRST, "2:B 3:C 4:E missing=1");
}

#[test]
fn asks_and_answers_go_on_for_ever_within_the_bound() {
    let (mut bench, connection) = read(200);
    let mut most = 0;
    for round in 1..=20_000u64 {
        let ask = bench.asked(Target::Standalone);
        bench.answer(ask);
        if round % 64 == 0 {
            bench.deliver(FIRST, connection, round);
        }
        most = most.max(bench.session.bytes());
    }
    assert!(most <= 200 * ONE, "{most}");
    assert!(most > 190 * ONE, "no more is dropped than must be");
}

#[test]
fn an_ask_gives_way_when_it_is_over_even_if_another_is_open() {
    let (mut bench, _) = read(5);
    let (a, b) = (bench.asked(Target::Standalone), bench.asked(Target::Standalone));
    let c = bench.asked(Target::Standalone);
    bench.check_log(FIRST, "1:ask-0 2:ask-1 3:ask-2");
    assert!(bench.session.bytes() > 5 * ONE, "an ask is taken, room or not");
    bench.answer(b);
    bench.append(Target::Standalone, Class::Chatter, "x");
    assert_eq!(bench.changes.dropped, [(FIRST, 2)]);
    bench.check_log(FIRST, "1:ask-0 3:ask-2 4:x missing=1");
    bench.withdraw(a);
    assert_eq!(bench.changes.dropped, [(FIRST, 1), (FIRST, 4)]);
    bench.check_log(FIRST, "3:ask-2 5:withdrawn(ask-0) missing=3");
    bench.answer(c);
    bench.append(Target::Standalone, Class::Response, "!");
    bench.check_log(FIRST, "5:withdrawn(ask-0) 6:! missing=4");
}

#[test]
fn asks_that_are_dropped_at_once_leave_nothing_behind_for_ever() {
    for target in [Target::Standalone, Target::Call(crate::CallNo(0))] {
        let mut bench = Bench::with(|rules| rules.limits.stream_bytes = 100 * ONE);
        bench.post("1");
        for _ in 0..5000 {
            let ask = bench.asked(target);
            bench.withdraw(ask);
        }
        assert!(bench.session.bytes() <= 100 * ONE, "nobody has read them, and nobody needs to");
    }
}

#[test]
fn an_ask_on_another_stream_keeps_nothing_here() {
    let (mut bench, connection) = read(2);
    let post = bench.post("1");
    let mine = bench.asked(Target::Standalone);
    bench.asked(Target::Call(post.call));
    bench.answer(mine);
    bench.deliver(FIRST, connection, 1);
    bench.say(Target::Standalone, "A");
    bench.check_log(FIRST, "2:A missing=1");
}

#[test]
fn a_calls_stream_keeps_its_notices_even_if_read_and_its_asks_while_open() {
    let mut bench = Bench::with(|rules| rules.limits.stream_bytes = 3 * ONE);
    let post = bench.post("1");
    let target = Target::Call(post.call);
    bench.append(target, Class::Chatter, "c");
    bench.say(target, "A");
    bench.deliver(post.stream, post.connection, 2);
    let ask = bench.asked(target);
    bench.check_log(post.stream, "2:A 3:ask-0 missing=1");
    bench.deliver(post.stream, post.connection, 3);
    assert_eq!(bench.append(target, Class::Notice, "B"), AppendOutcome::Full(Limit::StreamBytes));
    bench.answer(ask);
    bench.say(target, "B");
    bench.say(target, "C");
    assert_eq!(bench.append(target, Class::Notice, "D"), AppendOutcome::Full(Limit::StreamBytes));
    bench.finish(post.call, "!");
    bench.check_log(post.stream, "2:A 4:B 5:C 6:! missing=2 end");
}

#[test]
fn chatter_gives_way_to_answers_and_asks_all_or_nothing() {
    let mut bench = Bench::with(|rules| rules.limits.stream_bytes = 3 * ONE);
    let post = bench.post("1 2");
    for text in ["a", "b", "c"] {
        bench.append(Target::Call(post.call), Class::Chatter, text);
    }
    bench.finish(post.nth(1), "!");
    assert_eq!(bench.changes.dropped, [(post.stream, 1)]);
    let rest = "x".repeat(1000).into();
    let asked = bench.run(OpenAsk { target: Target::Call(post.call), owner: NodeId(7), rest, fence: None });
    assert_eq!(asked, AskOpened::Opened { ask: AskNo(0), stream: post.stream, seq: 5 });
    assert_eq!(bench.changes.dropped, [], "no room could have been made");
    bench.answer(AskNo(0));
    bench.finish(post.call, "?");
    bench.check_log(post.stream, "3:c 4:! 6:? missing=3 end");
}

#[test]
fn a_full_session_refuses_notices_and_drops_chatter_but_takes_the_rest() {
    let mut bench = Bench::with(|rules| rules.limits.session_bytes = 3 * ONE);
    let (a, b) = (bench.post("1"), bench.post("2"));
    bench.say(Target::Call(a.call), "A");
    bench.append(Target::Call(a.call), Class::Chatter, "c");
    bench.say(Target::Call(b.call), "B");
    for target in [Target::Call(a.call), Target::Call(b.call)] {
        let refused = bench.unchanged(|bench| bench.append(target, Class::Notice, "C"));
        assert_eq!(refused, AppendOutcome::Full(Limit::StreamBytes));
    }
    let dropped = bench.append(Target::Call(b.call), Class::Chatter, "d");
    assert_eq!(dropped, AppendOutcome::Appended { stream: b.stream, seq: 2 });
    assert_eq!((bench.changes.appended.len(), &bench.changes.dropped[..]), (0, &[][..]));
    assert_eq!(bench.changes.streams, [b.stream]);
    bench.check_log(b.stream, "1:B missing=1");
    let ask = bench.asked(Target::Call(b.call));
    bench.withdraw(ask);
    bench.finish(b.call, "!");
    bench.check_log(b.stream, "1:B 4:withdrawn(ask-0) 5:! missing=2 end");
    bench.check_log(a.stream, "1:A 2:c");
    assert_eq!(bench.begin("3"), Begun::OverLimit(Limit::SessionBytes));
}

#[test]
fn nothing_is_dropped_in_a_stream_for_a_message_that_the_session_has_no_room_for() {
    let mut bench = Bench::with(|rules| {
        rules.limits.stream_bytes = 2 * ONE;
        rules.limits.session_bytes = 3 * ONE;
    });
    let (a, b) = (bench.post("1"), bench.post("2"));
    let target = Target::Call(a.call);
    bench.append(target, Class::Chatter, "a");
    bench.append(target, Class::Chatter, "b");
    bench.finish(b.call, "twice as long as one, and some more......................................");
    assert!(bench.session.bytes() > 3 * ONE);
    let refused = bench.unchanged(|bench| bench.append(target, Class::Notice, "C"));
    assert_eq!((refused, &bench.changes.dropped[..]), (AppendOutcome::Full(Limit::StreamBytes), &[][..]));
    bench.append(target, Class::Chatter, "d");
    assert_eq!(bench.changes.dropped, []);
    bench.check_log(a.stream, "1:a 2:b missing=1");
}

#[test]
fn what_a_message_displaces_counts_as_room_in_the_session() {
    let mut bench = Bench::with(|rules| {
        rules.limits.stream_bytes = 2 * ONE;
        rules.limits.session_bytes = 2 * ONE;
    });
    for text in ["a", "b", "c"] {
        bench.append(Target::Standalone, Class::Chatter, text);
    }
    bench.say(Target::Standalone, "D");
    bench.check_log(FIRST, "3:c 4:D missing=2");
    assert_eq!(bench.session.bytes(), 2 * ONE);
}

#[test]
fn a_message_fits_to_the_byte() {
    for (stream, session, taken) in [(0, 0, true), (1, 0, false), (0, 1, false)] {
        let mut bench = Bench::new();
        let ask = ask_size(&mut bench);
        bench.rules.limits.stream_bytes = ask + ONE - stream;
        bench.rules.limits.session_bytes = ask + ONE - session;
        let outcome = bench.append(Target::Standalone, Class::Notice, "A");
        assert_eq!(outcome != AppendOutcome::Full(Limit::StreamBytes), taken, "{stream} {session}");
    }
}

#[test]
fn what_was_read_to_its_end_does_not_keep_a_notice_out() {
    let mut bench = Bench::with(|rules| rules.limits.session_bytes = 4 * ONE);
    let spent: Vec<_> = ["1", "2", "3"].map(|id| bench.post(id)).to_vec();
    for post in &spent {
        bench.finish(post.call, "!");
    }
    bench.delivered = vec![spent[0].stream, spent[1].stream];
    let busy = bench.post("4");
    let target = Target::Call(busy.call);
    bench.say(target, "A");
    bench.append(target, Class::Chatter, "c");
    assert_eq!(bench.changes.appended, [], "not for a message that can be spared");
    bench.say(target, "B");
    assert!(!bench.session.streams().contains_key(&spent[0].stream), "the oldest goes");
    assert!(bench.session.streams().contains_key(&spent[1].stream), "and no more than is needed");
    bench.say(target, "C");
    let refused = bench.unchanged(|bench| bench.append(target, Class::Notice, "D"));
    assert_eq!(refused, AppendOutcome::Full(Limit::StreamBytes), "an answer that nobody has read stays");
    bench.check_log(spent[2].stream, "1:! end");
}

#[test]
fn nothing_that_was_read_goes_for_a_notice_that_is_refused() {
    let mut bench = Bench::with(|rules| rules.limits.session_bytes = 2 * ONE);
    let (a, b) = (bench.post("1"), bench.post("2"));
    bench.finish(a.call, "!");
    bench.delivered = vec![a.stream];
    let c = bench.post("3");
    bench.finish(b.call, "!");
    let long = "x".repeat(2 * usize::try_from(ONE).unwrap());
    let refused = bench.unchanged(|bench| bench.append(Target::Call(c.call), Class::Notice, &long));
    assert_eq!(refused, AppendOutcome::Full(Limit::StreamBytes));
    bench.check_log(a.stream, "1:! end");
}

#[test]
fn asks_that_are_over_make_room_in_a_full_session() {
    let mut bench = Bench::with(|rules| rules.limits.session_bytes = 4 * ONE);
    let post = bench.post("1");
    let target = Target::Call(post.call);
    let (a, _) = (bench.asked(target), bench.asked(target));
    let refused = bench.unchanged(|bench| bench.append(target, Class::Notice, "A"));
    assert_eq!(refused, AppendOutcome::Full(Limit::StreamBytes));
    bench.answer(a);
    bench.say(target, "A");
    bench.check_log(post.stream, "2:ask-1 3:A missing=1");
}
