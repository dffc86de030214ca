//! Tests of the router.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use steadfast_wire::{Message, MessageKind, RequestId};

use super::receive::{Problem, Received};
use super::router::{MAX_CALLS, MAX_SESSIONS, Router, Sender, TooManyCalls};
use crate::stdio::routing::outbox::{End, Item, Outbox};

fn message(text: &str) -> Message<'_> {
    Message::parse(text).expect("a message")
}

/// Returns the items in an outbox.
fn read(outbox: &Arc<Outbox>) -> Vec<String> {
    let mut reader = outbox.reader();
    let mut seen = Vec::new();
    while let Poll::Ready(next) = reader.poll_next(&mut Context::from_waker(Waker::noop())) {
        match next {
            Item::Message(text) => seen.push(String::from_utf8_lossy(&text).into_owned()),
            Item::End(end) => {
                seen.push(match end {
                    End::Answer(text) => format!("answer {}", String::from_utf8_lossy(&text)),
                    End::Broken(why) => format!("broken {why}"),
                    End::Closed => "over".to_owned(),
                });
                break;
            }
        }
    }
    seen
}

/// Adds a request. Returns its id in the process, the line, and the outbox for its answer.
fn begin_request(router: &mut Router, sender: Sender, text: &str) -> (i64, String, Arc<Outbox>) {
    let outbox = Arc::new(Outbox::default());
    let message = message(text);
    let MessageKind::Request(id) = message.kind.clone() else { panic!("no request") };
    let (own_id, line) = router.begin_request(sender, &message, &id, &outbox).expect("there is room");
    (own_id, String::from_utf8_lossy(&line).into_owned(), outbox)
}

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"_meta":{"progressToken":"t"}}}"#;

#[test]
fn ids_and_tokens_are_exchanged_and_given_back() {
    let mut router = Router::default();
    let sessions = (router.add_session().0, router.add_session().0);
    let (own_id, line, outbox) = begin_request(&mut router, Sender::Session(sessions.0), CALL);
    let (_, other, other_outbox) = begin_request(&mut router, Sender::Session(sessions.1), CALL);
    let expect = |id| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{"progressToken":{id}}}}}}}"#
        )
    };
    assert_eq!((line, other), (expect(1), expect(2)));
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":1}}"#;
    assert_eq!(router.receive(&message(progress)), Received::default());
    let answer = format!(r#"{{"result":{{ "x":1.0 }},"id":{own_id},"jsonrpc":"2.0"}}"#);
    assert_eq!(router.receive(&message(&answer)), Received::default());
    assert_eq!(
        read(&outbox),
        [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":"t"}}"#,
            r#"answer {"result":{ "x":1.0 },"id":"a","jsonrpc":"2.0"}"#,
        ]
    );
    assert_eq!(read(&other_outbox), [""; 0]);
    // A second answer is ignored.
    assert_eq!(router.receive(&message(&answer)).problem, Some(Problem::UnknownAnswer));
}

/// Where a message of the process goes while certain requests are in flight.
#[derive(Debug, PartialEq)]
enum Destination {
    Call(usize),
    Session(usize),
    AllSessions,
    Nowhere,
}

fn check(sessions: usize, calls: &[Sender], text: &str, expect: &Destination) {
    let mut router = Router::default();
    let sessions: Vec<u64> = (0..sessions).map(|_| router.add_session().0).collect();
    let calls: Vec<_> = calls.iter().map(|sender| begin_request(&mut router, *sender, CALL).2).collect();
    let received = router.receive(&message(text));
    let has_message = |outbox: &Arc<Outbox>| !read(outbox).is_empty();
    let sessions_with_message: Vec<usize> = (0..sessions.len())
        .filter(|at| has_message(&router.outbox_of(sessions[*at]).expect("it exists")))
        .collect();
    let calls_with_message: Vec<usize> = (0..calls.len()).filter(|at| has_message(&calls[*at])).collect();
    let destination = match (&sessions_with_message[..], &calls_with_message[..]) {
        ([], []) => Destination::Nowhere,
        ([], [call]) => Destination::Call(*call),
        ([session], []) => Destination::Session(*session),
        (list, []) if list.len() == sessions.len() => Destination::AllSessions,
        other => panic!("delivered to {other:?}"),
    };
    assert_eq!(&destination, expect, "{text} with {calls:?}");
    let is_server_request = message(text).is_request();
    assert_eq!(
        received.reply.is_some(),
        is_server_request && destination == Destination::Nowhere,
        "a server request is delivered or refused"
    );
}

#[test]
fn messages_that_name_no_recipient() {
    use Sender::{Opening, Session, Stateless};
    let server_request = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    let list = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let updated = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}"#;
    for (sessions, calls, text, expect) in [
        // A process of one session.
        (1, &[][..], server_request, Destination::Session(0)),
        (1, &[], log, Destination::Session(0)),
        (1, &[Session(1)], server_request, Destination::Call(0)),
        (1, &[Session(1)], log, Destination::Call(0)),
        (1, &[Session(1)], list, Destination::Call(0)),
        (1, &[Session(1), Session(1)], server_request, Destination::Session(0)),
        (1, &[Session(1), Session(1)], log, Destination::Session(0)),
        (1, &[Opening(1)], log, Destination::Session(0)),
        // A shared process.
        (2, &[], server_request, Destination::Nowhere),
        (2, &[], log, Destination::Nowhere),
        (2, &[], list, Destination::AllSessions),
        (2, &[Session(2)], server_request, Destination::Call(0)),
        (2, &[Session(2)], list, Destination::AllSessions),
        (2, &[Session(2)], updated, Destination::AllSessions),
        (2, &[Session(2), Session(2)], server_request, Destination::Session(1)),
        (2, &[Session(1), Session(2)], server_request, Destination::Nowhere),
        (2, &[Session(1), Session(2)], log, Destination::Nowhere),
        // A stateless client gets no server requests.
        (0, &[Stateless], server_request, Destination::Nowhere),
        (0, &[Stateless], log, Destination::Call(0)),
        (0, &[Stateless, Stateless], log, Destination::Nowhere),
        (1, &[Session(1), Stateless], log, Destination::Nowhere),
    ] {
        check(sessions, calls, text, &expect);
    }
}

#[test]
fn an_abandoned_request_gets_nothing_and_can_be_cancelled() {
    let mut router = Router::default();
    let session = router.add_session().0;
    let (own_id, _, outbox) = begin_request(&mut router, Sender::Session(session), CALL);
    assert_eq!(router.abandon(own_id), None);
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    router.receive(&message(log));
    assert_eq!(read(&outbox), [""; 0]);
    assert_eq!(read(&router.outbox_of(session).unwrap()), [log]);
    let cancel =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"r"}}"#;
    let expect =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"r"}}"#;
    assert_eq!(router.notification(Some(session), &message(cancel)).unwrap(), expect);
    assert_eq!(router.notification(Some(session), &message(cancel)), None);
}

#[test]
fn a_cancellation_reaches_no_call_of_another_session() {
    let mut router = Router::default();
    let sessions = (router.add_session().0, router.add_session().0);
    begin_request(&mut router, Sender::Session(sessions.0), CALL);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
    assert_eq!(router.notification(Some(sessions.1), &message(cancel)), None);
    assert!(router.notification(Some(sessions.0), &message(cancel)).is_some());
}

#[test]
fn a_server_request_is_answered_once_by_its_recipient() {
    let mut router = Router::default();
    let sessions = (router.add_session().0, router.add_session().0);
    let (_, _, outbox) = begin_request(&mut router, Sender::Session(sessions.0), CALL);
    let server_request = r#"{"jsonrpc":"2.0","id":9,"method":"roots/list"}"#;
    assert_eq!(router.receive(&message(server_request)), Received::default());
    assert_eq!(
        router.receive(&message(server_request)).problem,
        Some(Problem::ServerRequestRefused("its id is in flight already"))
    );
    let (answer, id) = (r#"{"jsonrpc":"2.0","id":9,"result":{}}"#, RequestId::Number(9));
    assert_eq!(router.answer(sessions.1, &message(answer), &id), None);
    assert_eq!(router.answer(sessions.0, &message(answer), &id).unwrap(), answer);
    assert_eq!(router.answer(sessions.0, &message(answer), &id), None);
    assert_eq!(read(&outbox), [server_request]);
}

#[test]
fn a_cancelled_server_request_is_reported_on_its_stream() {
    let mut router = Router::default();
    let session = router.add_session().0;
    let (own_id, _, outbox) = begin_request(&mut router, Sender::Session(session), CALL);
    let server_request = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#);
    let cancel = |id| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
    };
    router.receive(&message(&server_request(7)));
    router.receive(&message(&server_request(8)));
    router.receive(&message(&cancel(7)));
    assert_eq!(read(&outbox), [server_request(7), server_request(8), cancel(7)]);
    // The call has ended meanwhile.
    router.receive(&message(&format!(r#"{{"jsonrpc":"2.0","id":{own_id},"result":{{}}}}"#)));
    router.receive(&message(&cancel(8)));
    assert_eq!(read(&router.outbox_of(session).unwrap()), [cancel(8)]);
}

#[test]
fn an_answer_without_id_belongs_to_the_only_request() {
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}"#;
    let mut router = Router::default();
    let (_, _, outbox) = begin_request(&mut router, Sender::Stateless, CALL);
    assert_eq!(router.receive(&message(error)), Received::default());
    assert_eq!(read(&outbox), [r#"answer {"jsonrpc":"2.0","id":"a","error":{"code":-32700,"message":"m"}}"#]);
    begin_request(&mut router, Sender::Stateless, CALL);
    begin_request(&mut router, Sender::Stateless, CALL);
    assert_eq!(router.receive(&message(error)).problem, Some(Problem::UnknownAnswer));
}

#[test]
fn a_session_too_many_replaces_the_one_unused_for_longest() {
    let mut router = Router::default();
    let first = router.add_session().0;
    let second = router.add_session().0;
    for _ in 2..MAX_SESSIONS {
        router.add_session();
    }
    assert!(router.outbox_of(first).is_some());
    assert_eq!(router.add_session().1, [""; 0], "the second has no server requests");
    assert!(router.outbox_of(first).is_some(), "it was used after the second");
    assert!(router.outbox_of(second).is_none());
}

#[test]
fn server_requests_of_a_replaced_session_are_refused() {
    let mut router = Router::default();
    let (session, _) = router.add_session();
    let server_request = r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#;
    assert_eq!(router.receive(&message(server_request)), Received::default());
    for _ in 1..MAX_SESSIONS {
        router.add_session();
    }
    let (_, lines) = router.add_session();
    assert!(router.outbox_of(session).is_none());
    assert_eq!(
        lines,
        [r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"the client is gone"}}"#],
        "the process waits for no client that is gone"
    );
}

#[test]
fn requests_are_bounded() {
    let mut router = Router::default();
    for _ in 0..MAX_CALLS {
        begin_request(&mut router, Sender::Stateless, CALL);
    }
    let refused =
        router.begin_request(Sender::Stateless, &message(CALL), &RequestId::text("a"), &Arc::default());
    assert_eq!(refused.map(|(own_id, _)| own_id), Err(TooManyCalls));
}
