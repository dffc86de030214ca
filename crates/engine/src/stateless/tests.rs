//! Tests of exchanges: order of messages, bounds, and cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use steadfast_session::{Class, Limit, Principal, Time};
use steadfast_wire::RequestId;
use tokio_util::sync::CancellationToken;

use crate::refusal::Refusal;
use crate::stateless::promote::next_reply;
use crate::stateless::{Change, ChangeFilter, Exchange, Replies, Reply, Subscriptions};

fn replies(exchange: &Arc<Exchange>) -> Vec<String> {
    let mut replies = Replies::new(Arc::clone(exchange));
    let mut context = Context::from_waker(Waker::noop());
    let mut seen = Vec::new();
    while let Poll::Ready(Some(reply)) = replies.poll_next(&mut context) {
        seen.push(match reply {
            Reply::Message(_, text) => String::from_utf8_lossy(&text).into_owned(),
            Reply::Answer(Ok(text)) => format!("answer {}", String::from_utf8_lossy(&text)),
            Reply::Answer(Err(error)) => format!("error {}", error.code),
        });
    }
    seen
}

fn exchange(deadline: Option<Time>) -> Arc<Exchange> {
    Exchange::new(RequestId::Number(1), Principal::anonymous(), deadline, 10, None)
}

#[test]
fn only_the_first_answer_counts() {
    let exchange = exchange(Some(Time(5)));
    exchange.answer(Ok("1".into()));
    exchange.answer(Ok("2".into()));
    exchange.send(Class::Notification, "late".into()).unwrap();
    assert_eq!(replies(&exchange), ["answer 1"]);
    assert!(!exchange.cancel.is_cancelled());
}

#[test]
fn a_full_exchange_drops_droppable_messages_and_refuses_notifications() {
    let exchange = exchange(Some(Time(5)));
    for (class, text) in [
        (Class::Notification, "n1--"),
        (Class::Droppable, "c1--"),
        (Class::Droppable, "c2--"),
        (Class::Notification, "n2--"),
    ] {
        exchange.send(class, text.into()).unwrap();
    }
    let full = Refusal::OverLimit(Limit::StreamBytes);
    assert_eq!(exchange.send(Class::Notification, "n3--".into()), Err(full));
    exchange.send(Class::Droppable, "c3--".into()).unwrap();
    exchange.answer(Ok("!".into()));
    assert_eq!(replies(&exchange), ["n1--", "n2--", "answer !"]);
}

#[test]
fn changes_wait_behind_the_acknowledgement_and_are_sent_once() {
    let subscriptions = Arc::new(Subscriptions::default());
    let exchange = exchange(None);
    exchange.send_change("a".into());
    assert_eq!(replies(&exchange), [""; 0]);
    exchange.acknowledge(&subscriptions, ChangeFilter::default(), "ack".into());
    exchange.send_change("a".into());
    exchange.send_change("b".into());
    exchange.answer(Ok("end".into()));
    assert_eq!(replies(&exchange), ["ack", "a", "b", "answer end"]);
}

#[test]
fn the_acknowledgement_is_first_whatever_is_published_concurrently() {
    let subscriptions = Arc::new(Subscriptions::default());
    let filter = ChangeFilter { tools_list: true, ..ChangeFilter::default() };
    let stop = AtomicBool::new(false);
    let mut early = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    subscriptions.publish(&Change::ToolsList);
                }
            });
        }
        for _ in 0..20_000 {
            let exchange = Exchange::new(RequestId::Number(1), Principal::anonymous(), None, 10_000, None);
            exchange.acknowledge(&subscriptions, filter.clone(), "ack".into());
            early.extend(replies(&exchange).first().filter(|first| *first != "ack").cloned());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(early, [""; 0]);
}

#[test]
fn a_subscription_that_no_client_reads_ends() {
    let subscriptions = Arc::new(Subscriptions::default());
    let exchange = exchange(None);
    exchange.acknowledge(&subscriptions, ChangeFilter::default(), "ack".into());
    exchange.send_change("0123456".into());
    assert_eq!((subscriptions.count(), exchange.outbox().messages.bytes()), (1, 10));
    exchange.send_change("more".into());
    assert!(exchange.cancel.is_cancelled());
    assert_eq!((subscriptions.count(), exchange.outbox().messages.bytes()), (0, 0), "its outbox is empty");
    assert_eq!(replies(&exchange), ["error -32603"]);
}

#[test]
fn a_disconnected_client_cancels_its_exchange() {
    let exchange = exchange(Some(Time(5)));
    drop(Replies::new(Arc::clone(&exchange)));
    assert!(exchange.cancel.is_cancelled());
}

/// The next reply is always there already.
#[tokio::test]
async fn a_server_that_never_falls_silent_is_cancelled() {
    let exchange = exchange(Some(Time(5)));
    exchange.send(Class::Notification, "1".into()).unwrap();
    exchange.send(Class::Notification, "2".into()).unwrap();
    let (mut replies, cancel) = (Replies::new(Arc::clone(&exchange)), CancellationToken::new());
    let first = next_reply(&mut replies, &cancel).await;
    assert_eq!(first, Some(Reply::Message(Class::Notification, "1".into())));
    assert!(!exchange.cancel.is_cancelled());
    cancel.cancel();
    let second = next_reply(&mut replies, &cancel).await;
    assert_eq!(second, Some(Reply::Message(Class::Notification, "2".into())));
    assert!(exchange.cancel.is_cancelled());
}
