//! Logs: strictly after, never a silent gap, only what can be spared gives way.

use proptest::prelude::*;

use super::bench::{Bench, NODE, OVERHEAD};
use crate::command::{AppendOutcome, Target};
use crate::{Class, Limit, Read, Stream, StreamNo};

const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;

/// Appends `script` to a stream with room for `room` events of one letter: lower case is chatter, upper case a
/// notice, `!` an answer, `?` an ask that is open no more. A `#` in `outcome` stands for a refused message.
#[track_caller]
fn check(room: u64, script: &str, outcomes: &str, log: &str) {
    let mut bench = Bench::with(|rules| rules.limits.stream_bytes = room * (OVERHEAD + 1));
    let mut seen = String::new();
    for letter in script.chars() {
        let class = match letter {
            '!' => Class::Response,
            '?' => Class::Ask,
            letter if letter.is_lowercase() => Class::Chatter,
            _ => Class::Notice,
        };
        seen.push(match bench.append(Target::Standalone, class, &letter.to_string()) {
            AppendOutcome::Appended { .. } => letter,
            _ => '#',
        });
    }
    assert_eq!(seen, outcomes);
    bench.check_log(FIRST, log);
    let held: u64 = bench.session.streams()[&FIRST].entries.iter().map(|entry| u64::from(entry.size)).sum();
    assert_eq!((bench.session.bytes(), bench.session.streams()[&FIRST].bytes), (held, held));
}

#[test]
fn overflow_drops_old_asks_and_the_oldest_chatter_and_nothing_else() {
    check(3, "abc", "abc", "1:a 2:b 3:c");
    check(3, "abcd", "abcd", "2:b 3:c 4:d missing=1");
    check(3, "AbcD", "AbcD", "1:A 3:c 4:D missing=1");
    check(3, "AbCDE", "AbCD#", "1:A 3:C 4:D missing=1");
    check(3, "ABCd", "ABCd", "1:A 2:B 3:C missing=1");
    check(3, "ABCde", "ABCde", "1:A 2:B 3:C missing=2");
    check(3, "a!B?C", "a!B?C", "2:! 3:B 5:C missing=2");
    check(3, "ab?C", "ab?C", "1:a 2:b 4:C missing=1");
    check(3, "ab!c!", "ab!c!", "3:! 4:c 5:! missing=2");
    check(3, "A!B!?", "A!B!?", "1:A 2:! 3:B 4:! 5:?");
    check(3, "!!!!!", "!!!!!", "1:! 2:! 3:! 4:! 5:!");
    check(3, "?????", "?????", "3:? 4:? 5:? missing=2");
    check(3, "!!!!a!", "!!!!a!", "1:! 2:! 3:! 4:! 6:! missing=1");
    check(3, "a??!!", "a??!!", "1:a 4:! 5:! missing=2");
    check(0, "aA!", "a#!", "2:! missing=1");
}

#[test]
fn what_was_written_out_on_a_standalone_stream_makes_room_for_notices() {
    let mut bench = Bench::with(|rules| rules.limits.stream_bytes = 3 * (OVERHEAD + 1));
    let (stream, connection, _) = bench.get();
    for text in ["A", "B", "C"] {
        bench.say(Target::Standalone, text);
    }
    bench.detach(stream, connection, 2);
    bench.say(Target::Standalone, "D");
    bench.say(Target::Standalone, "E");
    assert_eq!(bench.append(Target::Standalone, Class::Notice, "F"), AppendOutcome::Full(Limit::StreamBytes));
    bench.check_log(stream, "3:C 4:D 5:E missing=2");
}

#[test]
fn what_was_written_out_on_the_stream_of_a_call_stays() {
    let mut bench = Bench::with(|rules| rules.limits.stream_bytes = OVERHEAD + 1);
    let post = bench.post("1");
    bench.say(Target::Call(post.call), "A");
    bench.detach(post.stream, post.connection, 1);
    assert_eq!(
        bench.append(Target::Call(post.call), Class::Notice, "B"),
        AppendOutcome::Full(Limit::StreamBytes)
    );
    bench.finish(post.call, "!");
    bench.check_log(post.stream, "1:A 2:! end");
}

#[test]
fn a_withdrawal_reaches_the_client_through_a_full_stream() {
    // Room for the withdrawal and the answer: the request that it takes back is the first to go.
    let mut bench = Bench::with(|rules| rules.limits.stream_bytes = 5 * OVERHEAD);
    let post = bench.post("1");
    bench.append(Target::Call(post.call), Class::Chatter, "x");
    bench.asked(Target::Call(post.call));
    bench.finish(post.call, "!");
    bench.check_log(post.stream, "1:x 3:withdrawn(ask-0) 4:! missing=1 end");
}

#[test]
fn one_full_stream_stalls_no_other() {
    let mut bench = Bench::with(|rules| rules.limits.stream_bytes = OVERHEAD + 1);
    let (a, b) = (bench.post("1"), bench.post("2"));
    bench.say(Target::Call(a.call), "A");
    assert_eq!(
        bench.append(Target::Call(a.call), Class::Notice, "A"),
        AppendOutcome::Full(Limit::StreamBytes)
    );
    bench.say(Target::Call(b.call), "B");
}

#[test]
fn a_budget_is_kept_but_one_event_always_comes() {
    let mut bench = Bench::new();
    for text in ["A", "B", "C"] {
        bench.say(Target::Standalone, text);
    }
    let one = OVERHEAD + 1;
    for (budget, expect) in [(0, 1), (1, 1), (one, 1), (2 * one - 1, 1), (2 * one, 2), (3 * one, 3)] {
        assert_eq!(bench.slice(FIRST, 0, budget).entries.len(), expect, "{budget}");
    }
    assert_eq!(bench.slice(FIRST, 3, u64::MAX).entries, []);
    assert_eq!(bench.session.read(FIRST, 4, 1), Read::UnknownEvent);
}

#[test]
fn only_the_last_slice_of_an_ended_stream_says_so() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    bench.say(Target::Call(post.call), "A");
    assert!(!bench.slice(post.stream, 1, 1).ended);
    bench.finish(post.call, "!");
    assert!(!bench.slice(post.stream, 0, 1).ended);
    assert!(bench.slice(post.stream, 1, 1).ended);
    assert!(bench.slice(post.stream, 2, 1).ended);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_position_and_budget_is_accounted_for(
        script in prop::collection::vec((0..4u8, 0..40usize), 0..40),
        room in 0..12u64,
        finish in any::<bool>(),
    ) {
        let mut bench = Bench::with(|rules| rules.limits.stream_bytes = room * OVERHEAD);
        let post = bench.post("1");
        for (class, len) in script {
            let class = [Class::Chatter, Class::Chatter, Class::Notice, Class::Ask][usize::from(class)];
            bench.append(Target::Call(post.call), class, &"x".repeat(len));
        }
        if finish {
            bench.finish(post.call, "!");
        }
        let log = &bench.session.streams()[&post.stream];
        let kept: Vec<u64> = log.entries.iter().map(|entry| entry.seq).collect();
        for after in 0..=log.last_seq() {
            for budget in [0, OVERHEAD, 3 * OVERHEAD, 5 * OVERHEAD + 17, u64::MAX] {
                let slice = bench.slice(post.stream, after, budget);
                let got: Vec<u64> = slice.entries.iter().map(|entry| entry.seq).collect();
                let want: Vec<u64> =
                    kept.iter().copied().filter(|seq| (after + 1..=slice.through).contains(seq)).collect();
                prop_assert_eq!(&got, &want);
                prop_assert_eq!(got.len() as u64 + slice.missing, slice.through - after);
                let last = slice.through == log.last_seq();
                prop_assert!(last || !got.is_empty());
                prop_assert_eq!(slice.ended, last && finish);
                let size: u64 = slice.entries.iter().map(|entry| u64::from(entry.size)).sum();
                prop_assert!(got.len() <= 1 || size <= budget);
                let window = log.entries.iter().filter(|entry| entry.seq > after).take(got.len() + 1);
                let part = Stream { entries: window.cloned().collect(), ..Stream::clone(log) };
                prop_assert_eq!(part.read(after, budget), Read::Slice(slice), "read from a part of the log");
            }
        }
        prop_assert_eq!(bench.session.read(post.stream, log.last_seq() + 1, 0), Read::UnknownEvent);
    }
}

#[test]
fn shed_payloads_leave_the_accounts_alone() {
    let mut bench = Bench::new();
    bench.say(Target::Standalone, "A");
    let before = bench.session.bytes();
    bench.session.shed_payload(FIRST, 1);
    assert_eq!(bench.slice(FIRST, 0, 0).entries[0].payload, None);
    assert_eq!(bench.session.bytes(), before);
    bench.session.shed_payload(StreamNo(9), 1);
    bench.fail(NODE);
}
