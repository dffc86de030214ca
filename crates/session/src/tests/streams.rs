//! Streams: reads return exactly the events after a position, gaps are visible, and only evictable
//! events are dropped.

use proptest::prelude::*;

use super::fixture::{Fixture, NODE, OVERHEAD};
use crate::command::{Append, AppendOutcome, Target};
use crate::{CALL_SUBJECT, Class, Limit, Read, Stream, StreamNo};

const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;

/// Appends one event per letter of `script` to a stream with space for `capacity` such events. A
/// lower-case letter is a progress message, an upper-case letter a notification, `!` a response,
/// `?` a closed server request.
///
/// `outcomes` repeats the script, with `#` for each refused message. `log` is the stream
/// afterwards.
#[track_caller]
fn check(capacity: u64, script: &str, outcomes: &str, log: &str) {
    let mut fixture = Fixture::with(|rules| rules.limits.stream_bytes = capacity * (OVERHEAD + 1));
    let mut seen = String::new();
    for letter in script.chars() {
        let class = match letter {
            '!' => Class::Response,
            '?' => Class::ServerRequest,
            letter if letter.is_lowercase() => Class::Droppable,
            _ => Class::Notification,
        };
        seen.push(match fixture.append(Target::Standalone, class, &letter.to_string()) {
            AppendOutcome::Appended { .. } => letter,
            _ => '#',
        });
    }
    assert_eq!(seen, outcomes);
    fixture.check_log(FIRST, log);
    let held: u64 = fixture.session.streams()[&FIRST].events.iter().map(|event| u64::from(event.size)).sum();
    assert_eq!((fixture.session.bytes(), fixture.session.streams()[&FIRST].bytes), (held, held));
}

#[test]
fn a_full_stream_drops_closed_server_requests_and_the_oldest_progress_messages() {
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
fn delivered_events_of_a_standalone_stream_are_dropped_for_notifications() {
    let mut fixture = Fixture::with(|rules| rules.limits.stream_bytes = 3 * (OVERHEAD + 1));
    let (stream, connection, _) = fixture.get();
    for text in ["A", "B", "C"] {
        fixture.notify(Target::Standalone, text);
    }
    fixture.detach(stream, connection, 2);
    fixture.notify(Target::Standalone, "D");
    fixture.notify(Target::Standalone, "E");
    assert_eq!(
        fixture.append(Target::Standalone, Class::Notification, "F"),
        AppendOutcome::Full(Limit::StreamBytes)
    );
    fixture.check_log(stream, "3:C 4:D 5:E missing=2");
}

#[test]
fn delivered_events_of_a_call_stay() {
    let mut fixture = Fixture::with(|rules| rules.limits.stream_bytes = OVERHEAD + 1);
    let post = fixture.post("1");
    fixture.notify(Target::Call(post.call), "A");
    fixture.detach(post.stream, post.connection, 1);
    assert_eq!(
        fixture.append(Target::Call(post.call), Class::Notification, "B"),
        AppendOutcome::Full(Limit::StreamBytes)
    );
    fixture.finish(post.call, "!");
    fixture.check_log(post.stream, "1:A 2:! end");
}

#[test]
fn a_withdrawal_reaches_the_client_through_a_full_stream() {
    // There is space for the withdrawal and the answer only. The withdrawn request is dropped
    // first.
    let mut fixture = Fixture::with(|rules| rules.limits.stream_bytes = 5 * OVERHEAD);
    let post = fixture.post("1");
    fixture.append(Target::Call(post.call), Class::Droppable, "x");
    fixture.opened_server_request(Target::Call(post.call));
    fixture.finish(post.call, "!");
    fixture.check_log(post.stream, "1:x 3:withdrawn(ask-0) 4:! missing=1 end");
}

#[test]
fn a_full_stream_does_not_affect_other_streams() {
    let mut fixture = Fixture::with(|rules| rules.limits.stream_bytes = OVERHEAD + 1);
    let (a, b) = (fixture.post("1"), fixture.post("2"));
    fixture.notify(Target::Call(a.call), "A");
    assert_eq!(
        fixture.append(Target::Call(a.call), Class::Notification, "A"),
        AppendOutcome::Full(Limit::StreamBytes)
    );
    fixture.notify(Target::Call(b.call), "B");
}

#[test]
fn a_read_respects_its_budget_but_returns_at_least_one_event() {
    let mut fixture = Fixture::new();
    for text in ["A", "B", "C"] {
        fixture.notify(Target::Standalone, text);
    }
    let one = OVERHEAD + 1;
    for (budget, expect) in [(0, 1), (1, 1), (one, 1), (2 * one - 1, 1), (2 * one, 2), (3 * one, 3)] {
        assert_eq!(fixture.slice(FIRST, 0, budget).events.len(), expect, "{budget}");
    }
    assert_eq!(fixture.slice(FIRST, 3, u64::MAX).events, []);
    assert_eq!(fixture.session.read(FIRST, 4, 1), Read::UnknownEvent);
}

#[test]
fn only_the_last_slice_of_a_finished_stream_reports_its_end() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    fixture.notify(Target::Call(post.call), "A");
    assert!(!fixture.slice(post.stream, 1, 1).ended);
    fixture.finish(post.call, "!");
    assert!(!fixture.slice(post.stream, 0, 1).ended);
    assert!(fixture.slice(post.stream, 1, 1).ended);
    assert!(fixture.slice(post.stream, 2, 1).ended);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_event_is_returned_or_counted_as_missing(
        script in prop::collection::vec((0..4u8, 0..40usize), 0..40),
        capacity in 0..12u64,
        finish in any::<bool>(),
    ) {
        let mut fixture = Fixture::with(|rules| rules.limits.stream_bytes = capacity * OVERHEAD);
        let post = fixture.post("1");
        for (class, len) in script {
            let class = [Class::Droppable, Class::Droppable, Class::Notification, Class::ServerRequest][usize::from(class)];
            fixture.append(Target::Call(post.call), class, &"x".repeat(len));
        }
        if finish {
            fixture.finish(post.call, "!");
        }
        let log = &fixture.session.streams()[&post.stream];
        let kept: Vec<u64> = log.events.iter().map(|event| event.seq).collect();
        for after in 0..=log.last_seq() {
            for budget in [0, OVERHEAD, 3 * OVERHEAD, 5 * OVERHEAD + 17, u64::MAX] {
                let slice = fixture.slice(post.stream, after, budget);
                let got: Vec<u64> = slice.events.iter().map(|event| event.seq).collect();
                let want: Vec<u64> =
                    kept.iter().copied().filter(|seq| (after + 1..=slice.through).contains(seq)).collect();
                prop_assert_eq!(&got, &want);
                prop_assert_eq!(got.len() as u64 + slice.missing, slice.through - after);
                let last = slice.through == log.last_seq();
                prop_assert!(last || !got.is_empty());
                prop_assert_eq!(slice.ended, last && finish);
                let size: u64 = slice.events.iter().map(|event| u64::from(event.size)).sum();
                prop_assert!(got.len() <= 1 || size <= budget);
                let window = log.events.iter().filter(|event| event.seq > after).take(got.len() + 1);
                let part = Stream { events: window.cloned().collect(), ..Stream::clone(log) };
                prop_assert_eq!(part.read(after, budget), Read::Slice(slice), "read from a part of the events");
            }
        }
        prop_assert_eq!(fixture.session.read(post.stream, log.last_seq() + 1, 0), Read::UnknownEvent);
    }
}

#[test]
fn dropping_a_payload_does_not_change_the_byte_count() {
    let mut fixture = Fixture::new();
    fixture.notify(Target::Standalone, "A");
    let before = fixture.session.bytes();
    fixture.session.drop_payload(FIRST, 1);
    assert_eq!(fixture.slice(FIRST, 0, 0).events[0].payload, None);
    assert_eq!(fixture.session.bytes(), before);
    fixture.session.drop_payload(StreamNo(9), 1);
    fixture.fail_node(NODE);
}

/// No client can read a standalone stream of a job.
#[test]
fn a_message_of_the_ended_call_of_a_job_is_refused() {
    let mut fixture = Fixture::internal(CALL_SUBJECT);
    let post = fixture.post("1");
    fixture.finish(post.call, "x");
    let append = Append {
        target: Target::Call(post.call),
        class: Class::Notification,
        payload: "late".into(),
        fence: None,
    };
    assert_eq!(fixture.run(append), AppendOutcome::Fenced);
    assert_eq!(fixture.session.streams().len(), 1);
}
