//! A connection is a cursor: the newest wins, and losing one loses nothing.

use super::bench::{Bench, NODE, OTHER, ids};
use crate::command::{Attach, Attached, Delivered, Detached, Position, Target};
use crate::{Class, ConnNo, Holdings, Lifecycle, Limit, StreamNo};

const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;

#[test]
fn detaching_and_resuming_gives_exactly_the_rest() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    bench.say(Target::Call(post.call), "a");
    bench.say(Target::Call(post.call), "b");
    assert_eq!(bench.detach(post.stream, post.connection, 1), Detached::Detached);
    bench.finish(post.call, "answer");
    let attached = bench.resume(post.stream, 1);
    assert_eq!(attached, Attached::Attached { stream: post.stream, connection: ConnNo(1), after: 1 });
    let rest = bench.slice(post.stream, 1, u64::MAX);
    assert_eq!(rest.entries.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [2, 3]);
    assert!(rest.ended);
}

#[test]
fn the_newest_connection_supersedes_the_older_one() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    let newer = bench.resumed(post.stream, 0);
    assert_eq!(bench.changes.superseded, [(post.stream, newer)]);
    assert_eq!(bench.unchanged(|bench| bench.detach(post.stream, post.connection, 0)), Detached::Stale);
    assert_eq!(bench.detach(post.stream, newer, 0), Detached::Detached);
    assert_eq!(bench.unchanged(|bench| bench.detach(post.stream, newer, 0)), Detached::Stale);
    bench.resumed(post.stream, 0);
    assert!(bench.changes.superseded.is_empty());
    assert_eq!(bench.detach(StreamNo(99), newer, 0), Detached::Stale);
}

#[test]
fn a_plain_get_starts_after_what_was_delivered() {
    let mut bench = Bench::new();
    for text in ["a", "b", "c"] {
        bench.say(Target::Standalone, text);
    }
    let (stream, connection, after) = bench.get();
    assert_eq!((stream, after), (FIRST, 0));
    bench.detach(stream, connection, 2);
    let (stream, connection, after) = bench.get();
    assert_eq!((stream, after), (FIRST, 2));
    bench.detach(stream, connection, 1);
    assert_eq!(bench.get().2, 2, "what was delivered stays delivered");
}

#[test]
fn delivery_cannot_run_ahead_of_the_log() {
    let mut bench = Bench::new();
    let (stream, connection, _) = bench.get();
    bench.detach(stream, connection, 1000);
    bench.say(Target::Standalone, "a");
    assert_eq!(bench.get().2, 0);
}

#[test]
fn an_open_stream_is_never_delivered_to_its_end() {
    let mut bench = Bench::new();
    bench.say(Target::Standalone, "a");
    bench.delivered = vec![FIRST];
    bench.post("1");
    assert_eq!(bench.get().2, 0);
}

#[test]
fn a_reader_says_how_far_it_is_and_reads_on() {
    let mut bench = Bench::new();
    let (stream, connection, _) = bench.get();
    bench.say(Target::Standalone, "a");
    bench.say(Target::Standalone, "b");
    let delivered = |bench: &Bench| bench.session.streams()[&stream].delivered;
    assert_eq!(bench.deliver(stream, connection, 1), Delivered::Delivered);
    assert_eq!((delivered(&bench), &bench.changes.streams[..]), (1, &[stream][..]));
    for (through, expect) in [(0, 1), (1, 1), (1000, 2), (1, 2)] {
        assert_eq!(bench.deliver(stream, connection, through), Delivered::Delivered);
        assert_eq!(delivered(&bench), expect, "{through}");
    }
    bench.unchanged(|bench| bench.deliver(stream, connection, 2));
    assert_eq!(bench.changes, crate::Changes::default());
    assert!(bench.session.streams()[&stream].attached.is_some());
    assert_eq!(bench.lifecycle, []);
}

#[test]
fn only_the_attached_connection_says_how_far_it_is() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    bench.say(Target::Call(post.call), "a");
    let newer = bench.resumed(post.stream, 0);
    bench.unchanged(|bench| {
        for (stream, connection) in
            [(post.stream, post.connection), (StreamNo(99), newer), (post.stream, ConnNo(99))]
        {
            assert_eq!(bench.deliver(stream, connection, 1), Delivered::Stale);
        }
    });
    bench.finish(post.call, "x");
    assert_eq!(bench.deliver(post.stream, newer, 2), Delivered::Delivered);
    assert_eq!(bench.session.spent.len(), 1, "its answer was read");
    bench.detach(post.stream, newer, 0);
    assert_eq!(bench.unchanged(|bench| bench.deliver(post.stream, newer, 2)), Delivered::Stale);
}

#[test]
fn what_is_stuck_in_a_deserted_stream_reaches_the_next_plain_get() {
    let mut bench = Bench::new();
    let (first, a, _) = bench.get();
    let (second, b, _) = bench.get();
    let (third, c, _) = bench.get();
    bench.say(Target::Standalone, "for the third");
    bench.detach(third, c, 0);
    bench.say(Target::Standalone, "had");
    bench.say(Target::Standalone, "stuck");
    bench.detach(second, b, 1);
    let got = [bench.get(), bench.get()].map(|(stream, _, after)| (stream, after));
    assert_eq!(got, [(second, 1), (third, 0)], "although the first is read and there is room for more");
    assert_eq!(bench.get().0, StreamNo(3), "nothing waits any more");
    bench.detach(first, a, 0);
    assert_eq!(bench.get().0, first);
}

#[test]
fn what_waits_goes_before_the_first_stream_and_of_two_the_lower_one() {
    let mut bench = Bench::new();
    let (first, a, _) = bench.get();
    let (second, b, _) = bench.get();
    bench.say(Target::Standalone, "stuck");
    bench.detach(first, a, 0);
    bench.detach(second, b, 0);
    let (stream, connection, _) = bench.get();
    assert_eq!(stream, second, "nothing waits in the first");
    bench.detach(second, connection, 0);
    bench.say(Target::Standalone, "waits too");
    assert_eq!([bench.get().0, bench.get().0], [first, second]);
}

#[test]
fn what_was_delivered_does_not_wait() {
    let mut bench = Bench::new();
    let (first, a, _) = bench.get();
    let (second, b, _) = bench.get();
    bench.say(Target::Standalone, "had");
    bench.deliver(second, b, 1);
    bench.fail(NODE);
    assert_eq!(bench.get().0, first);
    assert_eq!(bench.get().0, StreamNo(2), "a new one while there is room for it");
    assert_eq!(bench.detach(first, a, 0), Detached::Stale);
}

#[test]
fn a_second_plain_get_opens_another_stream() {
    let mut bench = Bench::new();
    let streams = [bench.get().0, bench.get().0, bench.get().0];
    assert_eq!(streams, [FIRST, StreamNo(1), StreamNo(2)]);
    assert!(bench.changes.superseded.is_empty());
}

#[test]
fn at_the_limit_a_newcomer_takes_over_a_deserted_stream_with_all_that_waits_in_it() {
    let mut bench = Bench::with(|rules| rules.limits.standalone_streams = 2);
    bench.get();
    let (second, connection, _) = bench.get();
    bench.say(Target::Standalone, "written");
    bench.say(Target::Standalone, "waiting");
    let ask = bench.asked(Target::Standalone);
    assert_eq!(
        bench.unchanged(|bench| bench.run(Attach { at: Position::Standalone, node: NODE })),
        Attached::OverLimit(Limit::StandaloneStreams)
    );
    bench.detach(second, connection, 1);
    let (stream, _, after) = bench.get();
    assert_eq!((stream, after), (second, 1));
    bench.check_log(second, "1:written 2:waiting 3:ask-0");
    bench.withdraw(ask);
    bench.check_log(second, "1:written 2:waiting 3:ask-0 4:withdrawn(ask-0)");
}

#[test]
fn events_that_never_were_differ_from_streams_that_are_gone() {
    let mut bench = Bench::with(|rules| rules.limits.delivered_streams = 0);
    let old = bench.post("1");
    bench.finish(old.call, "x");
    bench.delivered = vec![old.stream];
    let new = bench.post("2");
    for (stream, seq, expect) in [
        (old.stream, 0, Attached::Gone),
        (old.stream, 99, Attached::Gone),
        (new.stream, 1, Attached::UnknownEvent),
        (StreamNo(3), 0, Attached::UnknownEvent),
        (FIRST, 0, Attached::UnknownEvent),
        (StreamNo(u64::MAX), u64::MAX, Attached::UnknownEvent),
    ] {
        assert_eq!(bench.unchanged(|bench| bench.resume(stream, seq)), expect, "{stream} {seq}");
    }
    bench.append(Target::Standalone, Class::Chatter, "c");
    assert!(matches!(bench.resume(FIRST, 1), Attached::Attached { .. }));
    assert_eq!(bench.resume(FIRST, 2), Attached::UnknownEvent);
}

#[test]
fn the_last_lost_connection_detaches_and_the_next_one_reattaches() {
    use Lifecycle::{Detached, Reattached};
    let mut bench = Bench::new();
    let post = bench.post("1");
    let (get, connection, _) = bench.get();
    bench.detach(get, connection, 0);
    assert_eq!(bench.lifecycle, []);
    bench.detach(post.stream, post.connection, 0);
    assert_eq!(bench.lifecycle, [Detached]);
    bench.resumed(post.stream, 0);
    bench.get();
    assert_eq!(bench.lifecycle, [Detached, Reattached]);
}

#[test]
fn a_new_post_reattaches_too() {
    let mut bench = Bench::new();
    let (get, connection, _) = bench.get();
    bench.detach(get, connection, 0);
    bench.post("1");
    assert_eq!(bench.lifecycle, [Lifecycle::Detached, Lifecycle::Reattached]);
}

#[test]
fn a_connection_whose_stream_has_ended_is_not_lost() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    bench.finish(post.call, "x");
    assert_eq!(bench.detach(post.stream, post.connection, 1), Detached::Detached);
    assert_eq!(bench.lifecycle, []);
}

#[test]
fn a_dead_node_loses_its_connections_only() {
    let mut bench = Bench::new();
    let (mine, connection, _) = bench.get();
    let Attached::Attached { stream: theirs, .. } =
        bench.run(Attach { at: Position::Standalone, node: OTHER })
    else {
        panic!()
    };
    bench.fail(NODE);
    assert_eq!(bench.session.streams()[&mine].attached, None);
    assert!(bench.session.streams()[&theirs].attached.is_some());
    assert_eq!(bench.lifecycle, []);
    assert_eq!(bench.detach(mine, connection, 0), Detached::Stale);
    bench.fail(OTHER);
    assert_eq!(bench.lifecycle, [Lifecycle::Detached]);
}

#[test]
fn a_node_learns_what_it_holds() {
    let mut bench = Bench::new();
    let post = bench.post("1");
    let ask = bench.asked(Target::Call(post.call));
    let (get, connection, _) = bench.get();
    let theirs = bench.session.held_by(OTHER);
    let nothing =
        Holdings::Held { calls: vec![], errands: vec![], asks: vec![], answers: vec![], connections: vec![] };
    assert_eq!(theirs, nothing);
    let mine = Holdings::Held {
        calls: vec![(post.call, ids("1")[0].clone())],
        errands: vec![],
        asks: vec![ask],
        answers: vec![],
        connections: vec![(get, connection), (post.stream, post.connection)],
    };
    assert_eq!(bench.session.held_by(NODE), mine);
    bench.close();
    assert_eq!(bench.session.held_by(NODE), Holdings::NoSession);
}
