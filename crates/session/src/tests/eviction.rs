//! Eviction: what is dropped for a new message, in a stream and in the whole session.

use super::fixture::{Fixture, OVERHEAD};
use crate::command::{AppendOutcome, Begun, OpenServerRequest, ServerRequestOpened, Target};
use crate::{Class, ConnNo, Limit, NodeId, ServerRequestNo, StreamNo};

const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;
/// The size of an event whose payload is one letter.
const ONE: u64 = OVERHEAD + 1;

/// Returns a session with a connection. Its streams have space for `events` events of one letter.
fn with_reader(events: u64) -> (Fixture, ConnNo) {
    let mut fixture = Fixture::with(|rules| rules.limits.stream_bytes = events * ONE);
    let (_, connection, _) = fixture.get();
    (fixture, connection)
}

/// Opens a server request and returns the size of its event.
fn server_request_size(fixture: &mut Fixture) -> u64 {
    let before = fixture.session.bytes();
    fixture.opened_server_request(Target::Standalone);
    fixture.session.bytes() - before
}

#[test]
fn notifications_are_accepted_while_the_reader_keeps_up() {
    let (mut fixture, connection) = with_reader(3);
    for seq in 1..1000 {
        fixture.notify(Target::Standalone, "N");
        assert!(fixture.session.bytes() <= 3 * ONE);
        if seq % 3 == 0 {
            fixture.deliver(FIRST, connection, seq);
        }
    }
    fixture.notify(Target::Standalone, "X");
    fixture.check_log(FIRST, "998:N 999:N 1000:X missing=997");
}

#[test]
fn notifications_are_refused_if_the_reader_does_not_keep_up() {
    let (mut fixture, connection) = with_reader(3);
    for text in ["A", "B", "C"] {
        fixture.notify(Target::Standalone, text);
    }
    let assert_refused = |fixture: &mut Fixture| {
        let refused =
            fixture.unchanged(|fixture| fixture.append(Target::Standalone, Class::Notification, "D"));
        assert_eq!(refused, AppendOutcome::Full(Limit::StreamBytes));
        assert!(fixture.changes.dropped.is_empty());
    };
    assert_refused(&mut fixture);
    fixture.deliver(FIRST, connection, 1);
    fixture.notify(Target::Standalone, "E");
    assert_eq!(fixture.changes.dropped, [(FIRST, 1)]);
    assert_refused(&mut fixture);
    fixture.check_log(FIRST, "2:B 3:C 4:E missing=1");
}

#[test]
fn any_number_of_answered_server_requests_stays_within_the_limit() {
    let (mut fixture, connection) = with_reader(200);
    let mut most = 0;
    for round in 1..=20_000u64 {
        let server_request = fixture.opened_server_request(Target::Standalone);
        fixture.answer(server_request);
        if round % 64 == 0 {
            fixture.deliver(FIRST, connection, round);
        }
        most = most.max(fixture.session.bytes());
    }
    assert!(most <= 200 * ONE, "{most}");
    assert!(most > 190 * ONE, "no more is dropped than necessary");
}

#[test]
fn a_closed_server_request_is_dropped_even_if_another_is_open() {
    let (mut fixture, _) = with_reader(5);
    let (a, b) = (
        fixture.opened_server_request(Target::Standalone),
        fixture.opened_server_request(Target::Standalone),
    );
    let c = fixture.opened_server_request(Target::Standalone);
    fixture.check_log(FIRST, "1:ask-0 2:ask-1 3:ask-2");
    assert!(fixture.session.bytes() > 5 * ONE, "a server request is always accepted");
    fixture.answer(b);
    fixture.append(Target::Standalone, Class::Droppable, "x");
    assert_eq!(fixture.changes.dropped, [(FIRST, 2)]);
    fixture.check_log(FIRST, "1:ask-0 3:ask-2 4:x missing=1");
    fixture.withdraw(a);
    assert_eq!(fixture.changes.dropped, [(FIRST, 1), (FIRST, 4)]);
    fixture.check_log(FIRST, "3:ask-2 5:withdrawn(ask-0) missing=3");
    fixture.answer(c);
    fixture.append(Target::Standalone, Class::Response, "!");
    fixture.check_log(FIRST, "5:withdrawn(ask-0) 6:! missing=4");
}

#[test]
fn withdrawn_server_requests_do_not_accumulate() {
    for target in [Target::Standalone, Target::Call(crate::CallNo(0))] {
        let mut fixture = Fixture::with(|rules| rules.limits.stream_bytes = 100 * ONE);
        fixture.post("1");
        for _ in 0..5000 {
            let server_request = fixture.opened_server_request(target);
            fixture.withdraw(server_request);
        }
        assert!(fixture.session.bytes() <= 100 * ONE, "they are dropped although they were not delivered");
    }
}

#[test]
fn an_open_server_request_protects_no_event_of_another_stream() {
    let (mut fixture, connection) = with_reader(2);
    let post = fixture.post("1");
    let mine = fixture.opened_server_request(Target::Standalone);
    fixture.opened_server_request(Target::Call(post.call));
    fixture.answer(mine);
    fixture.deliver(FIRST, connection, 1);
    fixture.notify(Target::Standalone, "A");
    fixture.check_log(FIRST, "2:A missing=1");
}

#[test]
fn the_stream_of_a_call_keeps_delivered_notifications_and_open_server_requests() {
    let mut fixture = Fixture::with(|rules| rules.limits.stream_bytes = 3 * ONE);
    let post = fixture.post("1");
    let target = Target::Call(post.call);
    fixture.append(target, Class::Droppable, "c");
    fixture.notify(target, "A");
    fixture.deliver(post.stream, post.connection, 2);
    let server_request = fixture.opened_server_request(target);
    fixture.check_log(post.stream, "2:A 3:ask-0 missing=1");
    fixture.deliver(post.stream, post.connection, 3);
    assert_eq!(fixture.append(target, Class::Notification, "B"), AppendOutcome::Full(Limit::StreamBytes));
    fixture.answer(server_request);
    fixture.notify(target, "B");
    fixture.notify(target, "C");
    assert_eq!(fixture.append(target, Class::Notification, "D"), AppendOutcome::Full(Limit::StreamBytes));
    fixture.finish(post.call, "!");
    fixture.check_log(post.stream, "2:A 4:B 5:C 6:! missing=2 end");
}

#[test]
fn progress_is_dropped_for_answers_and_server_requests_only_if_that_suffices() {
    let mut fixture = Fixture::with(|rules| rules.limits.stream_bytes = 3 * ONE);
    let post = fixture.post("1 2");
    for text in ["a", "b", "c"] {
        fixture.append(Target::Call(post.call), Class::Droppable, text);
    }
    fixture.finish(post.nth(1), "!");
    assert_eq!(fixture.changes.dropped, [(post.stream, 1)]);
    let rest = "x".repeat(1000).into();
    let opened = fixture.run(OpenServerRequest {
        target: Target::Call(post.call),
        owner: NodeId(7),
        rest,
        fence: None,
    });
    assert_eq!(
        opened,
        ServerRequestOpened::Opened { server_request: ServerRequestNo(0), stream: post.stream, seq: 5 }
    );
    assert_eq!(fixture.changes.dropped, [], "dropping could not have freed enough space");
    fixture.answer(ServerRequestNo(0));
    fixture.finish(post.call, "?");
    fixture.check_log(post.stream, "3:c 4:! 6:? missing=3 end");
}

#[test]
fn a_full_session_refuses_notifications_drops_progress_and_accepts_the_rest() {
    let mut fixture = Fixture::with(|rules| rules.limits.session_bytes = 3 * ONE);
    let (a, b) = (fixture.post("1"), fixture.post("2"));
    fixture.notify(Target::Call(a.call), "A");
    fixture.append(Target::Call(a.call), Class::Droppable, "c");
    fixture.notify(Target::Call(b.call), "B");
    for target in [Target::Call(a.call), Target::Call(b.call)] {
        let refused = fixture.unchanged(|fixture| fixture.append(target, Class::Notification, "C"));
        assert_eq!(refused, AppendOutcome::Full(Limit::StreamBytes));
    }
    let dropped = fixture.append(Target::Call(b.call), Class::Droppable, "d");
    assert_eq!(dropped, AppendOutcome::Appended { stream: b.stream, seq: 2 });
    assert_eq!((fixture.changes.appended.len(), &fixture.changes.dropped[..]), (0, &[][..]));
    assert_eq!(fixture.changes.streams, [b.stream]);
    fixture.check_log(b.stream, "1:B missing=1");
    let server_request = fixture.opened_server_request(Target::Call(b.call));
    fixture.withdraw(server_request);
    fixture.finish(b.call, "!");
    fixture.check_log(b.stream, "1:B 4:withdrawn(ask-0) 5:! missing=2 end");
    fixture.check_log(a.stream, "1:A 2:c");
    assert_eq!(fixture.begin("3"), Begun::OverLimit(Limit::SessionBytes));
}

#[test]
fn nothing_is_dropped_for_a_message_that_does_not_fit_into_the_session() {
    let mut fixture = Fixture::with(|rules| {
        rules.limits.stream_bytes = 2 * ONE;
        rules.limits.session_bytes = 3 * ONE;
    });
    let (a, b) = (fixture.post("1"), fixture.post("2"));
    let target = Target::Call(a.call);
    fixture.append(target, Class::Droppable, "a");
    fixture.append(target, Class::Droppable, "b");
    fixture.finish(b.call, "twice as long as one, and some more......................................");
    assert!(fixture.session.bytes() > 3 * ONE);
    let refused = fixture.unchanged(|fixture| fixture.append(target, Class::Notification, "C"));
    assert_eq!((refused, &fixture.changes.dropped[..]), (AppendOutcome::Full(Limit::StreamBytes), &[][..]));
    fixture.append(target, Class::Droppable, "d");
    assert_eq!(fixture.changes.dropped, []);
    fixture.check_log(a.stream, "1:a 2:b missing=1");
}

#[test]
fn events_dropped_from_a_stream_free_space_in_the_session() {
    let mut fixture = Fixture::with(|rules| {
        rules.limits.stream_bytes = 2 * ONE;
        rules.limits.session_bytes = 2 * ONE;
    });
    for text in ["a", "b", "c"] {
        fixture.append(Target::Standalone, Class::Droppable, text);
    }
    fixture.notify(Target::Standalone, "D");
    fixture.check_log(FIRST, "3:c 4:D missing=2");
    assert_eq!(fixture.session.bytes(), 2 * ONE);
}

#[test]
fn limits_are_exact_to_the_byte() {
    for (stream, session, is_accepted) in [(0, 0, true), (1, 0, false), (0, 1, false)] {
        let mut fixture = Fixture::new();
        let server_request = server_request_size(&mut fixture);
        fixture.rules.limits.stream_bytes = server_request + ONE - stream;
        fixture.rules.limits.session_bytes = server_request + ONE - session;
        let outcome = fixture.append(Target::Standalone, Class::Notification, "A");
        assert_eq!(outcome != AppendOutcome::Full(Limit::StreamBytes), is_accepted, "{stream} {session}");
    }
}

#[test]
fn fully_delivered_streams_are_removed_for_a_notification() {
    let mut fixture = Fixture::with(|rules| rules.limits.session_bytes = 4 * ONE);
    let finished: Vec<_> = ["1", "2", "3"].map(|id| fixture.post(id)).to_vec();
    for post in &finished {
        fixture.finish(post.call, "!");
    }
    fixture.delivered = vec![finished[0].stream, finished[1].stream];
    let busy = fixture.post("4");
    let target = Target::Call(busy.call);
    fixture.notify(target, "A");
    fixture.append(target, Class::Droppable, "c");
    assert_eq!(fixture.changes.appended, [], "not for a progress message");
    fixture.notify(target, "B");
    assert!(!fixture.session.streams().contains_key(&finished[0].stream), "the oldest is removed");
    assert!(fixture.session.streams().contains_key(&finished[1].stream), "not more than necessary");
    fixture.notify(target, "C");
    let refused = fixture.unchanged(|fixture| fixture.append(target, Class::Notification, "D"));
    assert_eq!(refused, AppendOutcome::Full(Limit::StreamBytes), "an undelivered answer stays");
    fixture.check_log(finished[2].stream, "1:! end");
}

#[test]
fn no_stream_is_removed_for_a_refused_notification() {
    let mut fixture = Fixture::with(|rules| rules.limits.session_bytes = 2 * ONE);
    let (a, b) = (fixture.post("1"), fixture.post("2"));
    fixture.finish(a.call, "!");
    fixture.delivered = vec![a.stream];
    let c = fixture.post("3");
    fixture.finish(b.call, "!");
    let long = "x".repeat(2 * usize::try_from(ONE).unwrap());
    let refused =
        fixture.unchanged(|fixture| fixture.append(Target::Call(c.call), Class::Notification, &long));
    assert_eq!(refused, AppendOutcome::Full(Limit::StreamBytes));
    fixture.check_log(a.stream, "1:! end");
}

#[test]
fn closed_server_requests_are_dropped_in_a_full_session() {
    let mut fixture = Fixture::with(|rules| rules.limits.session_bytes = 4 * ONE);
    let post = fixture.post("1");
    let target = Target::Call(post.call);
    let (a, _) = (fixture.opened_server_request(target), fixture.opened_server_request(target));
    let refused = fixture.unchanged(|fixture| fixture.append(target, Class::Notification, "A"));
    assert_eq!(refused, AppendOutcome::Full(Limit::StreamBytes));
    fixture.answer(a);
    fixture.notify(target, "A");
    fixture.check_log(post.stream, "2:ask-1 3:A missing=1");
}
