//! A server request is answered once or withdrawn, and a withdrawal notifies the client.

use super::fixture::{Action, Fixture, NODE, OTHER, ids};
use crate::command::{
    Answered, Finished, NodeFailed, OpenServerRequest, ServerRequestOpened, Target, Withdrawn,
};
use crate::{ServerRequestNo, StreamNo};

#[test]
fn each_server_request_gets_its_own_id() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    for no in 0..3 {
        let opened = fixture.open_server_request(Target::Call(post.call));
        assert_eq!(
            opened,
            ServerRequestOpened::Opened {
                server_request: ServerRequestNo(no),
                stream: post.stream,
                seq: no + 1
            }
        );
    }
    let payload = fixture.changes.appended[0].payload.clone();
    assert_eq!(&payload[..], br#"{"jsonrpc":"2.0","id":"ask-2","method":"sampling/createMessage"}"#);
}

#[test]
fn wire_ids_are_parsed_strictly() {
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
        assert_eq!(ServerRequestNo::from_wire_id(&ids(id)[0]), expect.map(ServerRequestNo), "{id}");
    }
    for no in [0, 9, 10, u64::MAX] {
        let id = steadfast_wire::RequestId::text(ServerRequestNo(no).wire_id());
        assert_eq!(ServerRequestNo::from_wire_id(&id), Some(ServerRequestNo(no)));
    }
}

#[test]
fn server_requests_are_answered_once_in_any_order() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    let (a, b) = (
        fixture.opened_server_request(Target::Call(post.call)),
        fixture.opened_server_request(Target::Standalone),
    );
    assert_eq!(fixture.answer(b), Answered::Answered { call: None });
    assert_eq!(fixture.answer(a), Answered::Answered { call: Some(post.call) });
    for server_request in [a, b, ServerRequestNo(99)] {
        assert_eq!(fixture.unchanged(|fixture| fixture.answer(server_request)), Answered::Unknown);
        assert_eq!(fixture.unchanged(|fixture| fixture.withdraw(server_request)), Withdrawn::Unknown);
    }
    assert_eq!(
        fixture.opened_server_request(Target::Standalone),
        ServerRequestNo(2),
        "numbers are never reused"
    );
}

#[test]
fn an_answered_server_request_is_not_withdrawn_with_its_call() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    let server_request = fixture.opened_server_request(Target::Call(post.call));
    fixture.answer(server_request);
    fixture.finish(post.call, "x");
    fixture.check_log(post.stream, "1:ask-0 2:x end");
    assert!(fixture.changes.withdrawn.is_empty());
}

#[test]
fn the_end_of_a_call_withdraws_its_server_requests() {
    let ends: [(&str, Action, &str); 3] = [
        (
            "finish",
            |fixture| {
                fixture.finish(crate::CallNo(0), "x");
            },
            "1:ask-0 2:ask-2 3:withdrawn(ask-0) 4:withdrawn(ask-2) 5:x end",
        ),
        (
            "cancel",
            |fixture| {
                fixture.cancel("1");
            },
            "1:ask-0 2:ask-2 3:withdrawn(ask-0) 4:withdrawn(ask-2) end",
        ),
        (
            "close",
            |fixture| {
                fixture.close();
            },
            "1:ask-0 2:ask-2 3:withdrawn(ask-0) 4:withdrawn(ask-2) 5:session_closed(1) end",
        ),
    ];
    for (name, end, expect) in ends {
        let mut fixture = Fixture::new();
        let (post, other) = (fixture.post("1"), fixture.post("2"));
        fixture.opened_server_request(Target::Call(post.call));
        fixture.opened_server_request(Target::Call(other.call));
        fixture.opened_server_request(Target::Call(post.call));
        end(&mut fixture);
        assert_eq!(fixture.log(post.stream), expect, "{name}");
        assert_eq!(
            fixture.changes.withdrawn[..2],
            [(ServerRequestNo(0), NODE), (ServerRequestNo(2), NODE)],
            "{name}"
        );
        assert_eq!(fixture.session.server_requests().len(), usize::from(name != "close"), "{name}");
    }
}

#[test]
fn an_ended_call_cannot_open_a_server_request() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    fixture.finish(post.call, "x");
    assert_eq!(
        fixture.unchanged(|fixture| fixture.open_server_request(Target::Call(post.call))),
        ServerRequestOpened::CallGone
    );
}

#[test]
fn a_withdrawal_goes_to_the_stream_of_its_server_request() {
    let mut fixture = Fixture::new();
    let (first, connection, _) = fixture.get();
    let server_request = fixture.opened_server_request(Target::Standalone);
    fixture.detach(first, connection, 1);
    fixture.get();
    let (second, ..) = fixture.get();
    assert_eq!(fixture.withdraw(server_request), Withdrawn::Withdrawn);
    fixture.check_log(first, "1:ask-0 2:withdrawn(ask-0)");
    fixture.check_log(second, "");
    assert_eq!(fixture.changes.withdrawn, [(server_request, NODE)]);
    assert_eq!(fixture.withdraw(server_request), Withdrawn::Unknown);
}

#[test]
fn failing_a_node_withdraws_all_its_server_requests() {
    let mut fixture = Fixture::new();
    let post = fixture.post("1");
    for target in [Target::Standalone, Target::Call(post.call)] {
        fixture.run(OpenServerRequest {
            target,
            owner: OTHER,
            rest: r#""method":"ping"}"#.into(),
            fence: None,
        });
    }
    let mine = fixture.opened_server_request(Target::Standalone);
    assert_eq!(fixture.fail_node(OTHER), NodeFailed::Failed { failed: 0, reassigned: 0, kept: 0 });
    fixture.check_log(StreamNo(0), "1:ask-0 2:ask-2 3:withdrawn(ask-0)");
    fixture.check_log(post.stream, "1:ask-1 2:withdrawn(ask-1)");
    assert_eq!(fixture.session.server_requests().keys().copied().collect::<Vec<_>>(), [mine]);
    assert!(matches!(fixture.finish(post.call, "x"), Finished::Finished { seq: 3, .. }));
}
