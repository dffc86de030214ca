//! The table of whom a message belongs to, as data.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use steadfast_wire::{Message, MessageKind, RequestId};

use super::super::mail::{End, Mailbox, Next};
use super::{MAX_CALLS, MAX_SEATS, Received, Router, Sender, TooManyCalls, Trouble};

fn message(text: &str) -> Message<'_> {
    Message::parse(text).expect("a message")
}

/// What waits in a mailbox.
fn read(mailbox: &Arc<Mailbox>) -> Vec<String> {
    let mut reader = mailbox.reader();
    let mut seen = Vec::new();
    while let Poll::Ready(next) = reader.poll_next(&mut Context::from_waker(Waker::noop())) {
        match next {
            Next::Message(text) => seen.push(String::from_utf8_lossy(&text).into_owned()),
            Next::End(end) => {
                seen.push(match end {
                    End::Answer(text) => format!("answer {}", String::from_utf8_lossy(&text)),
                    End::Broken(why) => format!("broken {why}"),
                    End::Over => "over".to_owned(),
                });
                break;
            }
        }
    }
    seen
}

/// A request of a sender, its own id in the process, the line, and where its answer comes.
fn begin(router: &mut Router, sender: Sender, text: &str) -> (i64, String, Arc<Mailbox>) {
    let mail = Arc::new(Mailbox::default());
    let message = message(text);
    let MessageKind::Request(id) = message.kind.clone() else { panic!("no request") };
    let (own, line) = router.begin(sender, &message, &id, &mail).expect("there is room");
    (own, String::from_utf8_lossy(&line).into_owned(), mail)
}

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"_meta":{"progressToken":"t"}}}"#;

#[test]
fn ids_and_tokens_are_exchanged_and_given_back() {
    let mut router = Router::default();
    let seats = (router.seat(), router.seat());
    let (own, line, mail) = begin(&mut router, Sender::Session(seats.0), CALL);
    let (_, other, other_mail) = begin(&mut router, Sender::Session(seats.1), CALL);
    let expect = |id| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{"progressToken":{id}}}}}}}"#
        )
    };
    assert_eq!((line, other), (expect(1), expect(2)));
    let progress =
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":1}}"#;
    assert_eq!(router.receive(&message(progress)), Received::default());
    let answer = format!(r#"{{"result":{{ "x":1.0 }},"id":{own},"jsonrpc":"2.0"}}"#);
    assert_eq!(router.receive(&message(&answer)), Received::default());
    assert_eq!(
        read(&mail),
        [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"progressToken":"t"}}"#,
            r#"answer {"result":{ "x":1.0 },"id":"a","jsonrpc":"2.0"}"#,
        ]
    );
    assert_eq!(read(&other_mail), [""; 0]);
    // Once is enough.
    assert_eq!(router.receive(&message(&answer)).trouble, Some(Trouble::UnknownAnswer));
}

/// Where a message of the process goes while certain requests are in flight.
#[derive(Debug, PartialEq)]
enum Goes {
    Call(usize),
    Seat(usize),
    AllSeats,
    Nowhere,
}

fn check(seats: usize, calls: &[Sender], text: &str, expect: &Goes) {
    let mut router = Router::default();
    let seats: Vec<u64> = (0..seats).map(|_| router.seat()).collect();
    let calls: Vec<_> = calls.iter().map(|sender| begin(&mut router, *sender, CALL).2).collect();
    let received = router.receive(&message(text));
    let hears = |mail: &Arc<Mailbox>| !read(mail).is_empty();
    let seat_hears: Vec<usize> =
        (0..seats.len()).filter(|at| hears(&router.mail_of(seats[*at]).expect("it is there"))).collect();
    let call_hears: Vec<usize> = (0..calls.len()).filter(|at| hears(&calls[*at])).collect();
    let goes = match (&seat_hears[..], &call_hears[..]) {
        ([], []) => Goes::Nowhere,
        ([], [call]) => Goes::Call(*call),
        ([seat], []) => Goes::Seat(*seat),
        (list, []) if list.len() == seats.len() => Goes::AllSeats,
        other => panic!("heard by {other:?}"),
    };
    assert_eq!(&goes, expect, "{text} with {calls:?}");
    let is_ask = message(text).is_request();
    assert_eq!(received.reply.is_some(), is_ask && goes == Goes::Nowhere, "an ask is delivered or refused");
}

#[test]
fn what_does_not_say_whose_it_is() {
    use Sender::{Opening, Session, Stateless};
    let ask = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    let list = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let updated = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}"#;
    for (seats, calls, text, expect) in [
        // A session of its own.
        (1, &[][..], ask, Goes::Seat(0)),
        (1, &[], log, Goes::Seat(0)),
        (1, &[Session(1)], ask, Goes::Call(0)),
        (1, &[Session(1)], log, Goes::Call(0)),
        (1, &[Session(1)], list, Goes::Call(0)),
        (1, &[Session(1), Session(1)], ask, Goes::Seat(0)),
        (1, &[Session(1), Session(1)], log, Goes::Seat(0)),
        (1, &[Opening(1)], log, Goes::Seat(0)),
        // Shared.
        (2, &[], ask, Goes::Nowhere),
        (2, &[], log, Goes::Nowhere),
        (2, &[], list, Goes::AllSeats),
        (2, &[Session(2)], ask, Goes::Call(0)),
        (2, &[Session(2)], list, Goes::AllSeats),
        (2, &[Session(2)], updated, Goes::AllSeats),
        (2, &[Session(2), Session(2)], ask, Goes::Seat(1)),
        (2, &[Session(1), Session(2)], ask, Goes::Nowhere),
        (2, &[Session(1), Session(2)], log, Goes::Nowhere),
        // Without sessions nobody can be asked.
        (0, &[Stateless], ask, Goes::Nowhere),
        (0, &[Stateless], log, Goes::Call(0)),
        (0, &[Stateless, Stateless], log, Goes::Nowhere),
        (1, &[Session(1), Stateless], log, Goes::Nowhere),
    ] {
        check(seats, calls, text, &expect);
    }
}

#[test]
fn a_request_that_nobody_waits_for_hears_nothing_and_is_not_forgotten() {
    let mut router = Router::default();
    let seat = router.seat();
    let (own, _, mail) = begin(&mut router, Sender::Session(seat), CALL);
    assert_eq!(router.forsake(own), None);
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
    router.receive(&message(log));
    assert_eq!(read(&mail), [""; 0]);
    assert_eq!(read(&router.mail_of(seat).unwrap()), [log]);
    let cancel =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"r"}}"#;
    let expect =
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"r"}}"#;
    assert_eq!(router.notification(Some(seat), &message(cancel)).unwrap(), expect);
    assert_eq!(router.notification(Some(seat), &message(cancel)), None);
}

#[test]
fn a_cancellation_reaches_no_call_of_another_session() {
    let mut router = Router::default();
    let seats = (router.seat(), router.seat());
    begin(&mut router, Sender::Session(seats.0), CALL);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
    assert_eq!(router.notification(Some(seats.1), &message(cancel)), None);
    assert!(router.notification(Some(seats.0), &message(cancel)).is_some());
}

#[test]
fn an_ask_is_answered_once_by_whom_it_was_put_to() {
    let mut router = Router::default();
    let seats = (router.seat(), router.seat());
    let (_, _, mail) = begin(&mut router, Sender::Session(seats.0), CALL);
    let ask = r#"{"jsonrpc":"2.0","id":9,"method":"roots/list"}"#;
    assert_eq!(router.receive(&message(ask)), Received::default());
    assert_eq!(
        router.receive(&message(ask)).trouble,
        Some(Trouble::AskRefused("its id is in flight already"))
    );
    let (answer, id) = (r#"{"jsonrpc":"2.0","id":9,"result":{}}"#, RequestId::Number(9));
    assert_eq!(router.answer(seats.1, &message(answer), &id), None);
    assert_eq!(router.answer(seats.0, &message(answer), &id).unwrap(), answer);
    assert_eq!(router.answer(seats.0, &message(answer), &id), None);
    assert_eq!(read(&mail), [ask]);
}

#[test]
fn a_cancelled_ask_is_told_where_it_was_asked() {
    let mut router = Router::default();
    let seat = router.seat();
    let (own, _, mail) = begin(&mut router, Sender::Session(seat), CALL);
    let ask = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"roots/list"}}"#);
    let cancel = |id| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
    };
    router.receive(&message(&ask(7)));
    router.receive(&message(&ask(8)));
    router.receive(&message(&cancel(7)));
    assert_eq!(read(&mail), [ask(7), ask(8), cancel(7)]);
    // The call has ended meanwhile.
    router.receive(&message(&format!(r#"{{"jsonrpc":"2.0","id":{own},"result":{{}}}}"#)));
    router.receive(&message(&cancel(8)));
    assert_eq!(read(&router.mail_of(seat).unwrap()), [cancel(8)]);
}

#[test]
fn an_answer_without_id_belongs_to_the_only_request() {
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}"#;
    let mut router = Router::default();
    let (_, _, mail) = begin(&mut router, Sender::Stateless, CALL);
    assert_eq!(router.receive(&message(error)), Received::default());
    assert_eq!(read(&mail), [r#"answer {"jsonrpc":"2.0","id":"a","error":{"code":-32700,"message":"m"}}"#]);
    begin(&mut router, Sender::Stateless, CALL);
    begin(&mut router, Sender::Stateless, CALL);
    assert_eq!(router.receive(&message(error)).trouble, Some(Trouble::UnknownAnswer));
}

#[test]
fn the_oldest_session_makes_room_for_one_too_many() {
    let mut router = Router::default();
    let first = router.seat();
    let second = router.seat();
    for _ in 2..MAX_SEATS {
        router.seat();
    }
    assert!(router.mail_of(first).is_some());
    router.seat();
    assert!(router.mail_of(first).is_some(), "it was used after the second");
    assert!(router.mail_of(second).is_none());
}

#[test]
fn requests_are_bounded() {
    let mut router = Router::default();
    for _ in 0..MAX_CALLS {
        begin(&mut router, Sender::Stateless, CALL);
    }
    let refused = router.begin(Sender::Stateless, &message(CALL), &RequestId::text("a"), &Arc::default());
    assert_eq!(refused.map(|(own, _)| own), Err(TooManyCalls));
}
