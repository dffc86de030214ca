//! Connections: the newest supersedes the older one, and a lost connection loses no events.

use super::fixture::{Fixture, NODE, OTHER, ids};
use crate::command::{Attach, Attached, Delivered, Detached, Position, Target};
use crate::{Class, ConnNo, Holdings, Lifecycle, Limit, StreamNo};

const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;

#[test]
fn a_resumed_connection_gets_exactly_the_remaining_events() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    fixture.notify(Target::Call(post.call), "a");
    fixture.notify(Target::Call(post.call), "b");
    assert_eq!(fixture.detach(post.stream, post.connection, 1), Detached::Detached);
    fixture.finish(post.call, "answer");
    let attached = fixture.resume(post.stream, 1);
    assert_eq!(attached, Attached::Attached { stream: post.stream, connection: ConnNo(1), after: 1 });
    let rest = fixture.slice(post.stream, 1, u64::MAX);
    assert_eq!(rest.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [2, 3]);
    assert!(rest.ended);
}

#[test]
fn the_newest_connection_supersedes_the_older_one() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    let newer = fixture.resumed(post.stream, 0);
    assert_eq!(fixture.changes.superseded, [(post.stream, newer)]);
    assert_eq!(fixture.unchanged(|fixture| fixture.detach(post.stream, post.connection, 0)), Detached::Stale);
    assert_eq!(fixture.detach(post.stream, newer, 0), Detached::Detached);
    assert_eq!(fixture.unchanged(|fixture| fixture.detach(post.stream, newer, 0)), Detached::Stale);
    fixture.resumed(post.stream, 0);
    assert!(fixture.changes.superseded.is_empty());
    assert_eq!(fixture.detach(StreamNo(99), newer, 0), Detached::Stale);
}

#[test]
fn a_plain_get_starts_after_what_was_delivered() {
    let mut fixture = Fixture::new();
    for text in ["a", "b", "c"] {
        fixture.notify(Target::Standalone, text);
    }
    let (stream, connection, after) = fixture.get();
    assert_eq!((stream, after), (FIRST, 0));
    fixture.detach(stream, connection, 2);
    let (stream, connection, after) = fixture.get();
    assert_eq!((stream, after), (FIRST, 2));
    fixture.detach(stream, connection, 1);
    assert_eq!(fixture.get().2, 2, "the position never moves back");
}

#[test]
fn delivery_cannot_run_ahead_of_the_log() {
    let mut fixture = Fixture::new();
    let (stream, connection, _) = fixture.get();
    fixture.detach(stream, connection, 1000);
    fixture.notify(Target::Standalone, "a");
    assert_eq!(fixture.get().2, 0);
}

#[test]
fn an_open_stream_is_never_fully_delivered() {
    let mut fixture = Fixture::new();
    fixture.notify(Target::Standalone, "a");
    fixture.delivered = vec![FIRST];
    fixture.post("1");
    assert_eq!(fixture.get().2, 0);
}

#[test]
fn a_connection_reports_its_position_and_stays_attached() {
    let mut fixture = Fixture::new();
    let (stream, connection, _) = fixture.get();
    fixture.notify(Target::Standalone, "a");
    fixture.notify(Target::Standalone, "b");
    let delivered = |fixture: &Fixture| fixture.session.streams()[&stream].delivered;
    assert_eq!(fixture.deliver(stream, connection, 1), Delivered::Delivered);
    assert_eq!((delivered(&fixture), &fixture.changes.streams[..]), (1, &[stream][..]));
    for (through, expect) in [(0, 1), (1, 1), (1000, 2), (1, 2)] {
        assert_eq!(fixture.deliver(stream, connection, through), Delivered::Delivered);
        assert_eq!(delivered(&fixture), expect, "{through}");
    }
    fixture.unchanged(|fixture| fixture.deliver(stream, connection, 2));
    assert_eq!(fixture.changes, crate::Changes::default());
    assert!(fixture.session.streams()[&stream].attached.is_some());
    assert_eq!(fixture.lifecycle, []);
}

#[test]
fn only_the_attached_connection_can_report_its_position() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    fixture.notify(Target::Call(post.call), "a");
    let newer = fixture.resumed(post.stream, 0);
    fixture.unchanged(|fixture| {
        for (stream, connection) in
            [(post.stream, post.connection), (StreamNo(99), newer), (post.stream, ConnNo(99))]
        {
            assert_eq!(fixture.deliver(stream, connection, 1), Delivered::Stale);
        }
    });
    fixture.finish(post.call, "x");
    assert_eq!(fixture.deliver(post.stream, newer, 2), Delivered::Delivered);
    assert_eq!(fixture.session.fully_delivered.len(), 1, "the answer was delivered");
    fixture.detach(post.stream, newer, 0);
    assert_eq!(fixture.unchanged(|fixture| fixture.deliver(post.stream, newer, 2)), Delivered::Stale);
}

#[test]
fn undelivered_events_of_a_detached_stream_reach_the_next_plain_get() {
    let mut fixture = Fixture::new();
    let (first, a, _) = fixture.get();
    let (second, b, _) = fixture.get();
    let (third, c, _) = fixture.get();
    fixture.notify(Target::Standalone, "undelivered in third");
    fixture.detach(third, c, 0);
    fixture.notify(Target::Standalone, "delivered");
    fixture.notify(Target::Standalone, "undelivered");
    fixture.detach(second, b, 1);
    let got = [fixture.get(), fixture.get()].map(|(stream, _, after)| (stream, after));
    assert_eq!(got, [(second, 1), (third, 0)], "preferred although a new stream is possible");
    assert_eq!(fixture.get().0, StreamNo(3), "no undelivered events are left");
    fixture.detach(first, a, 0);
    assert_eq!(fixture.get().0, first);
}

#[test]
fn streams_with_undelivered_events_are_preferred_lowest_number_first() {
    let mut fixture = Fixture::new();
    let (first, a, _) = fixture.get();
    let (second, b, _) = fixture.get();
    fixture.notify(Target::Standalone, "undelivered");
    fixture.detach(first, a, 0);
    fixture.detach(second, b, 0);
    let (stream, connection, _) = fixture.get();
    assert_eq!(stream, second, "the first has no undelivered events");
    fixture.detach(second, connection, 0);
    fixture.notify(Target::Standalone, "also undelivered");
    assert_eq!([fixture.get().0, fixture.get().0], [first, second]);
}

#[test]
fn a_fully_delivered_detached_stream_is_not_preferred() {
    let mut fixture = Fixture::new();
    let (first, a, _) = fixture.get();
    let (second, b, _) = fixture.get();
    fixture.notify(Target::Standalone, "delivered");
    fixture.deliver(second, b, 1);
    fixture.fail_node(NODE);
    assert_eq!(fixture.get().0, first);
    assert_eq!(fixture.get().0, StreamNo(2), "a new stream below the limit");
    assert_eq!(fixture.detach(first, a, 0), Detached::Stale);
}

#[test]
fn a_second_plain_get_opens_another_stream() {
    let mut fixture = Fixture::new();
    let streams = [fixture.get().0, fixture.get().0, fixture.get().0];
    assert_eq!(streams, [FIRST, StreamNo(1), StreamNo(2)]);
    assert!(fixture.changes.superseded.is_empty());
}

#[test]
fn at_the_limit_a_new_connection_takes_a_detached_stream_with_its_undelivered_events() {
    let mut fixture = Fixture::with(|rules| rules.limits.standalone_streams = 2);
    fixture.get();
    let (second, connection, _) = fixture.get();
    fixture.notify(Target::Standalone, "delivered");
    fixture.notify(Target::Standalone, "undelivered");
    let server_request = fixture.opened_server_request(Target::Standalone);
    assert_eq!(
        fixture.unchanged(|fixture| fixture.run(Attach { at: Position::Standalone, node: NODE })),
        Attached::OverLimit(Limit::StandaloneStreams)
    );
    fixture.detach(second, connection, 1);
    let (stream, _, after) = fixture.get();
    assert_eq!((stream, after), (second, 1));
    fixture.check_log(second, "1:delivered 2:undelivered 3:ask-0");
    fixture.withdraw(server_request);
    fixture.check_log(second, "1:delivered 2:undelivered 3:ask-0 4:withdrawn(ask-0)");
}

#[test]
fn unknown_events_differ_from_removed_streams() {
    let mut fixture = Fixture::with(|rules| rules.limits.delivered_streams = 0);
    let old = fixture.post("1");
    fixture.finish(old.call, "x");
    fixture.delivered = vec![old.stream];
    let new = fixture.post("2");
    for (stream, seq, expect) in [
        (old.stream, 0, Attached::Gone),
        (old.stream, 99, Attached::Gone),
        (new.stream, 1, Attached::UnknownEvent),
        (StreamNo(3), 0, Attached::UnknownEvent),
        (FIRST, 0, Attached::UnknownEvent),
        (StreamNo(u64::MAX), u64::MAX, Attached::UnknownEvent),
    ] {
        assert_eq!(fixture.unchanged(|fixture| fixture.resume(stream, seq)), expect, "{stream} {seq}");
    }
    fixture.append(Target::Standalone, Class::Droppable, "c");
    assert!(matches!(fixture.resume(FIRST, 1), Attached::Attached { .. }));
    assert_eq!(fixture.resume(FIRST, 2), Attached::UnknownEvent);
}

#[test]
fn losing_the_last_connection_detaches_and_the_next_one_reattaches() {
    use Lifecycle::{Detached, Reattached};
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    let (get, connection, _) = fixture.get();
    fixture.detach(get, connection, 0);
    assert_eq!(fixture.lifecycle, []);
    fixture.detach(post.stream, post.connection, 0);
    assert_eq!(fixture.lifecycle, [Detached]);
    fixture.resumed(post.stream, 0);
    fixture.get();
    assert_eq!(fixture.lifecycle, [Detached, Reattached]);
}

#[test]
fn a_new_post_reattaches() {
    let mut fixture = Fixture::new();
    let (get, connection, _) = fixture.get();
    fixture.detach(get, connection, 0);
    fixture.post("1");
    assert_eq!(fixture.lifecycle, [Lifecycle::Detached, Lifecycle::Reattached]);
}

#[test]
fn closing_a_connection_to_a_finished_stream_does_not_detach() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    fixture.finish(post.call, "x");
    assert_eq!(fixture.detach(post.stream, post.connection, 1), Detached::Detached);
    assert_eq!(fixture.lifecycle, []);
}

#[test]
fn failing_a_node_detaches_only_its_connections() {
    let mut fixture = Fixture::new();
    let (mine, connection, _) = fixture.get();
    let Attached::Attached { stream: theirs, .. } =
        fixture.run(Attach { at: Position::Standalone, node: OTHER })
    else {
        panic!()
    };
    fixture.fail_node(NODE);
    assert_eq!(fixture.session.streams()[&mine].attached, None);
    assert!(fixture.session.streams()[&theirs].attached.is_some());
    assert_eq!(fixture.lifecycle, []);
    assert_eq!(fixture.detach(mine, connection, 0), Detached::Stale);
    fixture.fail_node(OTHER);
    assert_eq!(fixture.lifecycle, [Lifecycle::Detached]);
}

#[test]
fn holdings_list_what_a_node_holds() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    let server_request = fixture.opened_server_request(Target::Call(post.call));
    let (get, connection, _) = fixture.get();
    let theirs = fixture.session.held_by(OTHER);
    let nothing = Holdings::Held {
        calls: vec![],
        forwarded: vec![],
        server_requests: vec![],
        answers: vec![],
        connections: vec![],
        detached_at: None,
    };
    assert_eq!(theirs, nothing);
    let mine = Holdings::Held {
        calls: vec![(post.call, ids("1")[0].clone())],
        forwarded: vec![],
        server_requests: vec![server_request],
        answers: vec![],
        connections: vec![(get, connection), (post.stream, post.connection)],
        detached_at: None,
    };
    assert_eq!(fixture.session.held_by(NODE), mine);
    fixture.detach(get, connection, 0);
    assert!(matches!(fixture.session.held_by(OTHER), Holdings::Held { detached_at: None, .. }));
    fixture.detach(post.stream, post.connection, 0);
    let lost = Some(fixture.now);
    assert!(
        matches!(fixture.session.held_by(OTHER), Holdings::Held { detached_at, .. } if detached_at == lost)
    );
    fixture.close();
    assert_eq!(fixture.session.held_by(NODE), Holdings::NoSession);
}
