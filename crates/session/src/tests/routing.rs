//! A message goes to exactly one stream.

use super::fixture::{Fixture, Post};
use crate::StreamNo;
use crate::command::Target;

const FIRST: StreamNo = StreamNo::FIRST_STANDALONE;

#[track_caller]
fn check(fixture: &mut Fixture, target: Target, expect: StreamNo) {
    let before: u64 = fixture.session.streams().values().map(|stream| stream.last_seq()).sum();
    assert_eq!(fixture.notify(target, "m"), expect);
    let after: u64 = fixture.session.streams().values().map(|stream| stream.last_seq()).sum();
    assert_eq!(after, before + 1);
    assert_eq!(fixture.changes.appended.len(), 1);
    assert_eq!(fixture.changes.appended[0].stream, expect);
}

#[test]
fn messages_of_a_call_go_to_its_own_stream_even_with_others_attached() {
    let mut fixture = Fixture::new();
    let (a, b) = (fixture.post("1"), fixture.post("2"));
    fixture.get();
    check(&mut fixture, Target::Call(a.call), a.stream);
    check(&mut fixture, Target::Call(b.call), b.stream);
    fixture.detach(a.stream, a.connection, 0);
    check(&mut fixture, Target::Call(a.call), a.stream);
}

#[test]
fn messages_of_an_ended_call_go_to_a_standalone_stream() {
    let finish = |fixture: &mut Fixture, post: Post| {
        fixture.finish(post.call, "x");
    };
    let cancel = |fixture: &mut Fixture, _: Post| {
        fixture.cancel("1");
    };
    for end in [finish, cancel] {
        let mut fixture = Fixture::new();
        let post = fixture.post("1");
        end(&mut fixture, post);
        check(&mut fixture, Target::Call(post.call), FIRST);
    }
}

#[test]
fn messages_of_a_finished_call_leave_the_stream_of_its_open_batch() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1 2");
    fixture.finish(post.nth(0), "x");
    check(&mut fixture, Target::Call(post.nth(0)), FIRST);
    check(&mut fixture, Target::Call(post.nth(1)), post.stream);
}

#[test]
fn a_response_only_connection_gets_only_its_response() {
    let mut fixture = Fixture::new();
    fixture.response_only = true;
    let post = fixture.post("1");
    check(&mut fixture, Target::Call(post.call), FIRST);
    fixture.opened_server_request(Target::Call(post.call));
    fixture.finish(post.call, "answer");
    fixture.check_log(post.stream, "1:answer end");
    fixture.check_log(FIRST, "1:m 2:ask-0 3:withdrawn(ask-0)");
}

#[test]
fn messages_go_to_the_standalone_stream_with_the_newest_connection() {
    let mut fixture = Fixture::new();
    check(&mut fixture, Target::Standalone, FIRST);
    let (first, ..) = fixture.get();
    let (second, second_connection, _) = fixture.get();
    let (third, third_connection, _) = fixture.get();
    assert_eq!([first, second, third], [FIRST, StreamNo(1), StreamNo(2)]);
    check(&mut fixture, Target::Standalone, third);
    fixture.resumed(second, 0);
    check(&mut fixture, Target::Standalone, second);
    fixture.resumed(first, 0);
    check(&mut fixture, Target::Standalone, first);
    fixture.detach(second, second_connection, 0);
    fixture.detach(third, third_connection, 0);
    check(&mut fixture, Target::Standalone, first);
}

#[test]
fn without_a_connection_messages_go_to_the_first_standalone_stream() {
    let mut fixture = Fixture::new();
    let (first, a, _) = fixture.get();
    let (second, b, _) = fixture.get();
    fixture.detach(first, a, 0);
    check(&mut fixture, Target::Standalone, second);
    fixture.detach(second, b, 1);
    check(&mut fixture, Target::Standalone, FIRST);
}

#[test]
fn messages_without_a_call_never_go_to_the_stream_of_a_post() {
    let mut fixture = Fixture::new();
    fixture.post("1");
    check(&mut fixture, Target::Standalone, FIRST);
}
