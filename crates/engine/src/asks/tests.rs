//! The queue by itself: what it gives out, in which order, and what each asker is told.

use bytes::Bytes;
use steadfast_session::command::Target;
use steadfast_session::{AskNo, CallNo, Limit, Time};
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::queue::{AskQueue, Bounds, Outcome, Question, Ticket};
use crate::refusal::Refusal;

const BOUNDS: Bounds = Bounds { in_flight: 2, waiting: 3 };

/// The question of a call, which is its number.
fn of_call(no: u64) -> Question {
    Question { target: Target::Call(CallNo(no)), rest: Bytes::from(no.to_string()), fence: None }
}

fn take(queue: &mut AskQueue, call: u64, deadline: u64) -> (Ticket, Receiver<Outcome>) {
    queue.take(of_call(call), Time(deadline), BOUNDS).unwrap()
}

/// The calls of the asks that may start now.
fn started(queue: &mut AskQueue) -> Vec<(Ticket, String)> {
    std::iter::from_fn(|| queue.start(BOUNDS))
        .map(|(ticket, question)| (ticket, String::from_utf8(question.rest.to_vec()).unwrap()))
        .collect()
}

fn told(outcome: &mut Receiver<Outcome>) -> Option<Outcome> {
    match outcome.try_recv() {
        Ok(outcome) => Some(outcome),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Closed) => panic!("the asker was forgotten"),
    }
}

#[test]
fn asks_start_in_order_and_the_queue_is_bounded() {
    let mut queue = AskQueue::default();
    let mut asks: Vec<_> = (0..2).map(|call| take(&mut queue, call, 9)).collect();
    assert_eq!(started(&mut queue).len(), 2);
    asks.extend((2..5).map(|call| take(&mut queue, call, 9)));
    let one_more = queue.take(of_call(9), Time(9), BOUNDS);
    assert_eq!(one_more.unwrap_err(), Refusal::OverLimit(Limit::WaitingAsks));
    for (i, (ticket, _)) in asks[..2].iter().enumerate() {
        assert_eq!(queue.opened(*ticket, AskNo(i as u64)), None);
    }
    assert!(started(&mut queue).is_empty());
    queue.answered(AskNo(1), "yes".into());
    assert_eq!(told(&mut asks[1].1), Some(Ok("yes".into())));
    assert_eq!(started(&mut queue), [(asks[2].0, "2".to_owned())]);
    queue.withdrawn(AskNo(0));
    assert_eq!(told(&mut asks[0].1), Some(Err(Refusal::AskWithdrawn)));
    assert_eq!(started(&mut queue), [(asks[3].0, "3".to_owned())]);
}

#[test]
fn a_bound_of_none_refuses_at_once() {
    let none = Bounds { in_flight: 0, waiting: 9 };
    let refused = AskQueue::default().take(of_call(0), Time(9), none);
    assert_eq!(refused.unwrap_err(), Refusal::OverLimit(Limit::Asks));
}

#[test]
fn an_answer_may_come_before_its_number_is_known() {
    let mut queue = AskQueue::default();
    let (a, mut a_told) = take(&mut queue, 0, 9);
    let (b, mut b_told) = take(&mut queue, 0, 9);
    started(&mut queue);
    queue.answered(AskNo(1), "b".into());
    queue.withdrawn(AskNo(0));
    assert_eq!(queue.opened(a, AskNo(0)), None);
    assert_eq!(queue.opened(b, AskNo(1)), None);
    assert_eq!(told(&mut a_told), Some(Err(Refusal::AskWithdrawn)));
    assert_eq!(told(&mut b_told), Some(Ok("b".into())));
    assert!(queue.is_empty());
    // With nothing on its way, an answer to nothing is kept for nobody.
    queue.answered(AskNo(2), "c".into());
    let (c, mut c_told) = take(&mut queue, 0, 9);
    started(&mut queue);
    assert_eq!(queue.opened(c, AskNo(2)), None);
    assert_eq!(told(&mut c_told), None);
}

#[test]
fn a_full_store_holds_back_without_changing_the_order() {
    let mut queue = AskQueue::default();
    let asks: Vec<_> = (0..4).map(|call| take(&mut queue, call, 9)).collect();
    started(&mut queue);
    queue.opened(asks[1].0, AskNo(0));
    assert!(queue.no_room(asks[0].0), "somebody has to come back");
    assert!(started(&mut queue).is_empty(), "not before something changes");
    let one_more = queue.take(of_call(9), Time(9), BOUNDS);
    assert_eq!(one_more.unwrap_err(), Refusal::OverLimit(Limit::WaitingAsks));
    queue.try_again();
    assert_eq!(started(&mut queue), [(asks[0].0, "0".to_owned())]);
    assert!(queue.no_room(asks[0].0));
    queue.answered(AskNo(0), "".into());
    assert_eq!(started(&mut queue), [(asks[0].0, "0".to_owned()), (asks[2].0, "2".to_owned())]);
    assert!(!queue.no_room(asks[2].0), "somebody is on the way already");
}

#[test]
fn whoever_gives_up_leaves_at_every_stage() {
    let mut queue = AskQueue::default();
    let (open, _) = take(&mut queue, 0, 9);
    let (opening, _) = take(&mut queue, 0, 9);
    let (waiting, _) = take(&mut queue, 0, 9);
    started(&mut queue);
    queue.opened(open, AskNo(0));
    assert_eq!(queue.abandon(waiting), None);
    assert_eq!(queue.abandon(opening), None);
    assert_eq!(queue.abandon(open), Some(AskNo(0)));
    assert_eq!(queue.abandon(open), None, "once");
    assert_eq!(queue.opened(opening, AskNo(1)), Some(AskNo(1)), "now it can be withdrawn");
    take(&mut queue, 1, 9);
    assert!(started(&mut queue).is_empty(), "its place is free when the store has heard of it");
    queue.left(open);
    assert_eq!(started(&mut queue).len(), 1);
    queue.withdrawn(AskNo(1));
    queue.left(opening);
    assert!(!queue.awaits(AskNo(1)));
}

#[test]
fn time_ends_every_stage() {
    let mut queue = AskQueue::default();
    let mut asks: Vec<_> = (0..4).map(|call| take(&mut queue, call, 10 + call)).collect();
    started(&mut queue);
    queue.opened(asks[0].0, AskNo(0));
    assert_eq!(queue.expire(Time(9)), []);
    assert_eq!(queue.expire(Time(12)), [(asks[0].0, AskNo(0))]);
    assert_eq!(queue.expire(Time(12)), [], "once");
    for (_, outcome) in &mut asks[..3] {
        assert_eq!(told(outcome), Some(Err(Refusal::AskDeadline)));
    }
    assert_eq!(told(&mut asks[3].1), None);
    assert_eq!(queue.opened(asks[1].0, AskNo(1)), Some(AskNo(1)));
}

#[test]
fn a_call_that_is_over_asks_nothing_more() {
    let mut queue = AskQueue::default();
    let mut asks: Vec<_> = [1, 1, 1, 2, 1].map(|call| take(&mut queue, call, 9)).into_iter().collect();
    started(&mut queue);
    queue.opened(asks[0].0, AskNo(0));
    queue.call_over(CallNo(1));
    for at in [0, 1, 2, 4] {
        assert_eq!(told(&mut asks[at].1), Some(Err(Refusal::AskWithdrawn)));
    }
    assert_eq!(started(&mut queue), [(asks[3].0, "2".to_owned())]);
    assert_eq!(
        queue.opened(asks[1].0, AskNo(1)),
        Some(AskNo(1)),
        "the store has not heard of this one's end"
    );
    queue.withdrawn(AskNo(1));
    queue.opened(asks[3].0, AskNo(2));
    assert_eq!(told(&mut asks[3].1), None);
    queue.session_over();
    assert_eq!(told(&mut asks[3].1), Some(Err(Refusal::AskWithdrawn)));
    assert!(queue.is_empty());
}

#[test]
fn a_kept_answer_is_handed_over_once() {
    let mut queue = AskQueue::default();
    let mut asks: Vec<_> = (0..2).map(|call| take(&mut queue, call, 9)).collect();
    started(&mut queue);
    queue.opened(asks[0].0, AskNo(0));
    let kept = |no: u64| (AskNo(no), Bytes::from(no.to_string()));
    for _ in 0..2 {
        assert_eq!(queue.hand_over(vec![kept(0)]), [AskNo(0)], "until the store has heard of it");
    }
    assert_eq!(told(&mut asks[0].1), Some(Ok("0".into())));
    // The second is answered before its number is known here.
    assert_eq!(queue.hand_over(vec![kept(0), kept(1)]), [AskNo(0), AskNo(1)]);
    queue.opened(asks[1].0, AskNo(1));
    assert_eq!(told(&mut asks[1].1), Some(Ok("1".into())));
    assert!(!queue.is_empty(), "the store has to be told");
    queue.collected();
    assert_eq!(queue.hand_over(vec![]), []);
    assert!(queue.is_empty());
}

#[test]
fn an_asker_is_told_what_the_store_has_lost_track_of() {
    let mut queue = AskQueue::default();
    let mut asks: Vec<_> = (0..3).map(|call| take(&mut queue, call, 9)).collect();
    started(&mut queue);
    assert_eq!(queue.settled(), None, "two are being opened");
    for no in [0, 1] {
        queue.opened(asks[no].0, AskNo(no as u64));
    }
    assert_eq!(queue.settled(), Some(2));
    queue.answering();
    assert_eq!(queue.settled(), None, "one may be gone from the store and not from here");
    queue.done_answering();
    assert_eq!(queue.settled(), Some(3), "which whoever compares can see afterwards");
    queue.keep_only(&[AskNo(1)]);
    assert_eq!(told(&mut asks[0].1), Some(Err(Refusal::AskWithdrawn)));
    assert_eq!((told(&mut asks[1].1), told(&mut asks[2].1)), (None, None));
}
