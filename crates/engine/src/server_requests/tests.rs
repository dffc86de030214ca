//! Tests of the queue alone: what it returns, in which order, and the outcome of each waiter.

use bytes::Bytes;
use steadfast_session::command::Target;
use steadfast_session::{CallNo, Limit, ServerRequestNo, Time};
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::queue::{Bounds, LocalNo, Outcome, QueuedServerRequest, ServerRequestQueue};
use crate::refusal::Refusal;

const BOUNDS: Bounds = Bounds { in_flight: 2, queued: 3 };

/// A request of a call; its text is the number of the call.
fn of_call(no: u64) -> QueuedServerRequest {
    QueuedServerRequest { target: Target::Call(CallNo(no)), rest: Bytes::from(no.to_string()), fence: None }
}

fn enqueue(queue: &mut ServerRequestQueue, call: u64, deadline: u64) -> (LocalNo, Receiver<Outcome>) {
    queue.enqueue(of_call(call), Time(deadline), BOUNDS).unwrap()
}

/// The requests that may start now, with their texts.
fn started(queue: &mut ServerRequestQueue) -> Vec<(LocalNo, String)> {
    std::iter::from_fn(|| queue.start_next(BOUNDS))
        .map(|(local, request)| (local, String::from_utf8(request.rest.to_vec()).unwrap()))
        .collect()
}

fn outcome_of(outcome: &mut Receiver<Outcome>) -> Option<Outcome> {
    match outcome.try_recv() {
        Ok(outcome) => Some(outcome),
        Err(TryRecvError::Empty) => None,
        Err(TryRecvError::Closed) => panic!("the waiter was dropped without an outcome"),
    }
}

#[test]
fn requests_start_in_order_and_the_queue_is_bounded() {
    let mut queue = ServerRequestQueue::default();
    let mut server_requests: Vec<_> = (0..2).map(|call| enqueue(&mut queue, call, 9)).collect();
    assert_eq!(started(&mut queue).len(), 2);
    server_requests.extend((2..5).map(|call| enqueue(&mut queue, call, 9)));
    let increment = queue.enqueue(of_call(9), Time(9), BOUNDS);
    assert_eq!(increment.unwrap_err(), Refusal::OverLimit(Limit::QueuedServerRequests));
    for (i, (local, _)) in server_requests[..2].iter().enumerate() {
        assert_eq!(queue.opened(*local, ServerRequestNo(i as u64)), None);
    }
    assert!(started(&mut queue).is_empty());
    queue.answered(ServerRequestNo(1), "yes".into());
    assert_eq!(outcome_of(&mut server_requests[1].1), Some(Ok("yes".into())));
    assert_eq!(started(&mut queue), [(server_requests[2].0, "2".to_owned())]);
    queue.withdrawn(ServerRequestNo(0));
    assert_eq!(outcome_of(&mut server_requests[0].1), Some(Err(Refusal::ServerRequestWithdrawn)));
    assert_eq!(started(&mut queue), [(server_requests[3].0, "3".to_owned())]);
}

#[test]
fn a_bound_of_zero_refuses_at_once() {
    let none = Bounds { in_flight: 0, queued: 9 };
    let refused = ServerRequestQueue::default().enqueue(of_call(0), Time(9), none);
    assert_eq!(refused.unwrap_err(), Refusal::OverLimit(Limit::ServerRequests));
}

#[test]
fn an_answer_may_come_before_its_number_is_known() {
    let mut queue = ServerRequestQueue::default();
    let (a, mut a_outcome) = enqueue(&mut queue, 0, 9);
    let (b, mut b_outcome) = enqueue(&mut queue, 0, 9);
    started(&mut queue);
    queue.answered(ServerRequestNo(1), "b".into());
    queue.withdrawn(ServerRequestNo(0));
    assert_eq!(queue.opened(a, ServerRequestNo(0)), None);
    assert_eq!(queue.opened(b, ServerRequestNo(1)), None);
    assert_eq!(outcome_of(&mut a_outcome), Some(Err(Refusal::ServerRequestWithdrawn)));
    assert_eq!(outcome_of(&mut b_outcome), Some(Ok("b".into())));
    assert!(queue.is_empty());
    // With no open command in flight, an answer without a request is not remembered.
    queue.answered(ServerRequestNo(2), "c".into());
    let (c, mut c_outcome) = enqueue(&mut queue, 0, 9);
    started(&mut queue);
    assert_eq!(queue.opened(c, ServerRequestNo(2)), None);
    assert_eq!(outcome_of(&mut c_outcome), None);
}

#[test]
fn a_full_store_pauses_sending_and_keeps_the_order() {
    let mut queue = ServerRequestQueue::default();
    let server_requests: Vec<_> = (0..4).map(|call| enqueue(&mut queue, call, 9)).collect();
    started(&mut queue);
    queue.opened(server_requests[1].0, ServerRequestNo(0));
    assert!(queue.store_full(server_requests[0].0), "the caller must schedule a retry");
    assert!(started(&mut queue).is_empty(), "nothing is sent while the queue is paused");
    let increment = queue.enqueue(of_call(9), Time(9), BOUNDS);
    assert_eq!(increment.unwrap_err(), Refusal::OverLimit(Limit::QueuedServerRequests));
    queue.resume_sending();
    assert_eq!(started(&mut queue), [(server_requests[0].0, "0".to_owned())]);
    assert!(queue.store_full(server_requests[0].0));
    queue.answered(ServerRequestNo(0), "".into());
    assert_eq!(
        started(&mut queue),
        [(server_requests[0].0, "0".to_owned()), (server_requests[2].0, "2".to_owned())]
    );
    assert!(!queue.store_full(server_requests[2].0), "a retry is scheduled already");
}

#[test]
fn a_request_can_be_abandoned_at_every_stage() {
    let mut queue = ServerRequestQueue::default();
    let (open, _) = enqueue(&mut queue, 0, 9);
    let (opening, _) = enqueue(&mut queue, 0, 9);
    let (queued, _) = enqueue(&mut queue, 0, 9);
    started(&mut queue);
    queue.opened(open, ServerRequestNo(0));
    assert_eq!(queue.abandon(queued), None);
    assert_eq!(queue.abandon(opening), None);
    assert_eq!(queue.abandon(open), Some(ServerRequestNo(0)));
    assert_eq!(queue.abandon(open), None, "once");
    assert_eq!(
        queue.opened(opening, ServerRequestNo(1)),
        Some(ServerRequestNo(1)),
        "the caller can withdraw it now"
    );
    enqueue(&mut queue, 1, 9);
    assert!(started(&mut queue).is_empty(), "it counts as in flight until the store has withdrawn it");
    queue.withdrawal_done(open);
    assert_eq!(started(&mut queue).len(), 1);
    queue.withdrawn(ServerRequestNo(1));
    queue.withdrawal_done(opening);
    assert!(!queue.is_waiting_for(ServerRequestNo(1)));
}

#[test]
fn a_deadline_ends_every_stage() {
    let mut queue = ServerRequestQueue::default();
    let mut server_requests: Vec<_> = (0..4).map(|call| enqueue(&mut queue, call, 10 + call)).collect();
    started(&mut queue);
    queue.opened(server_requests[0].0, ServerRequestNo(0));
    assert_eq!(queue.expire(Time(9)), []);
    assert_eq!(queue.expire(Time(12)), [(server_requests[0].0, ServerRequestNo(0))]);
    assert_eq!(queue.expire(Time(12)), [], "once");
    for (_, outcome) in &mut server_requests[..3] {
        assert_eq!(outcome_of(outcome), Some(Err(Refusal::ServerRequestDeadline)));
    }
    assert_eq!(outcome_of(&mut server_requests[3].1), None);
    assert_eq!(queue.opened(server_requests[1].0, ServerRequestNo(1)), Some(ServerRequestNo(1)));
}

#[test]
fn the_end_of_a_call_withdraws_its_requests() {
    let mut queue = ServerRequestQueue::default();
    let mut server_requests: Vec<_> =
        [1, 1, 1, 2, 1].map(|call| enqueue(&mut queue, call, 9)).into_iter().collect();
    started(&mut queue);
    queue.opened(server_requests[0].0, ServerRequestNo(0));
    queue.call_ended(CallNo(1));
    for at in [0, 1, 2, 4] {
        assert_eq!(outcome_of(&mut server_requests[at].1), Some(Err(Refusal::ServerRequestWithdrawn)));
    }
    assert_eq!(started(&mut queue), [(server_requests[3].0, "2".to_owned())]);
    assert_eq!(
        queue.opened(server_requests[1].0, ServerRequestNo(1)),
        Some(ServerRequestNo(1)),
        "the store has opened it and must withdraw it"
    );
    queue.withdrawn(ServerRequestNo(1));
    queue.opened(server_requests[3].0, ServerRequestNo(2));
    assert_eq!(outcome_of(&mut server_requests[3].1), None);
    queue.session_ended();
    assert_eq!(outcome_of(&mut server_requests[3].1), Some(Err(Refusal::ServerRequestWithdrawn)));
    assert!(queue.is_empty());
}

#[test]
fn a_stored_answer_is_delivered_once() {
    let mut queue = ServerRequestQueue::default();
    let mut server_requests: Vec<_> = (0..2).map(|call| enqueue(&mut queue, call, 9)).collect();
    started(&mut queue);
    queue.opened(server_requests[0].0, ServerRequestNo(0));
    let kept = |no: u64| (ServerRequestNo(no), Bytes::from(no.to_string()));
    for _ in 0..2 {
        assert_eq!(
            queue.deliver_stored_answers(vec![kept(0)]),
            [ServerRequestNo(0)],
            "listed until the store has collected it"
        );
    }
    assert_eq!(outcome_of(&mut server_requests[0].1), Some(Ok("0".into())));
    // The second request is answered before this node knows its number.
    assert_eq!(
        queue.deliver_stored_answers(vec![kept(0), kept(1)]),
        [ServerRequestNo(0), ServerRequestNo(1)]
    );
    queue.opened(server_requests[1].0, ServerRequestNo(1));
    assert_eq!(outcome_of(&mut server_requests[1].1), Some(Ok("1".into())));
    assert!(!queue.is_empty(), "an answer is not collected yet");
    queue.mark_collected();
    assert_eq!(queue.deliver_stored_answers(vec![]), []);
    assert!(queue.is_empty());
}

#[test]
fn a_waiter_gets_an_error_for_a_request_that_the_store_does_not_hold() {
    let mut queue = ServerRequestQueue::default();
    let mut server_requests: Vec<_> = (0..3).map(|call| enqueue(&mut queue, call, 9)).collect();
    started(&mut queue);
    assert_eq!(queue.settled_operations(), None, "two open commands are in flight");
    for no in [0, 1] {
        queue.opened(server_requests[no].0, ServerRequestNo(no as u64));
    }
    assert_eq!(queue.settled_operations(), Some(2));
    queue.answer_started();
    assert_eq!(queue.settled_operations(), None, "an answer command is in flight");
    queue.answer_finished();
    assert_eq!(queue.settled_operations(), Some(3), "the count shows that something happened in between");
    queue.keep_only(&[ServerRequestNo(1)]);
    assert_eq!(outcome_of(&mut server_requests[0].1), Some(Err(Refusal::ServerRequestWithdrawn)));
    assert_eq!((outcome_of(&mut server_requests[1].1), outcome_of(&mut server_requests[2].1)), (None, None));
}
