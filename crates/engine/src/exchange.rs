//! Exchanges: requests of stateless revisions, and what waits to be read by whoever sent them.
//!
//! Nothing of an exchange is stored. It lives as long as its connection: when that goes, the exchange is cancelled.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use steadfast_session::{Class, Limit, Principal, Time};
use steadfast_wire::RequestId;
use steadfast_wire::rpc::ErrorObject;
use tokio_util::sync::CancellationToken;

use crate::backend::Denial;
use crate::changes::{ChangeFilter, Subscription, Subscriptions};
use crate::refusal::Refusal;
use crate::stateless::ExchangeObserver;

/// One request in flight.
#[derive(Debug)]
pub(crate) struct Exchange {
    id: RequestId,
    principal: Principal,
    /// When it is answered with an error. A subscription has none: it is there to wait.
    deadline: Option<Time>,
    pub(crate) cancel: CancellationToken,
    max_bytes: usize,
    waiting: Mutex<Waiting>,
    /// There while changes are to be heard of: from the acknowledgement to the answer.
    subscription: Mutex<Option<Subscription>>,
    observer: Option<Arc<dyn ExchangeObserver>>,
}

/// What its client has not read yet.
#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<(Class, Bytes)>,
    bytes: usize,
    /// Nothing of a subscription goes out before its acknowledgement.
    unacknowledged: bool,
    answer: Option<Answer>,
    answered: bool,
    denial: Option<Denial>,
    reader: Option<Waker>,
}

/// The JSON text of the result, or why there is none.
pub type Answer = Result<Bytes, ErrorObject>;

/// One thing to send to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The JSON text of a notification.
    Message(Bytes),
    /// The last one.
    Answer(Answer),
}

impl Exchange {
    pub(crate) fn new(
        id: RequestId,
        principal: Principal,
        deadline: Option<Time>,
        max_bytes: usize,
        observer: Option<Arc<dyn ExchangeObserver>>,
    ) -> Arc<Self> {
        let waiting = Waiting { unacknowledged: deadline.is_none(), ..Waiting::default() };
        Arc::new(Self {
            id,
            principal,
            deadline,
            cancel: CancellationToken::new(),
            max_bytes,
            waiting: Mutex::new(waiting),
            subscription: Mutex::new(None),
            observer,
        })
    }

    pub(crate) fn id(&self) -> &RequestId {
        &self.id
    }

    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    pub(crate) fn is_subscription(&self) -> bool {
        self.deadline.is_none()
    }

    pub(crate) fn is_overdue(&self, now: Time) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Sends a notification that belongs to this request. Room is made by dropping older chatter.
    pub(crate) fn send(&self, class: Class, payload: Bytes) -> Result<(), Refusal> {
        let mut waiting = self.waiting();
        if waiting.answered || self.cancel.is_cancelled() {
            // The client has its answer or has gone; there is nobody to tell.
            return Ok(());
        }
        waiting.make_room(payload.len(), self.max_bytes);
        if waiting.bytes + payload.len() > self.max_bytes {
            return match class {
                Class::Chatter => Ok(()),
                _ => Err(Refusal::OverLimit(Limit::StreamBytes)),
            };
        }
        let reader = waiting.push(class, payload);
        drop(waiting);
        wake(reader);
        Ok(())
    }

    /// Tells a subscription of a change. One that is waiting to be read already is not told twice; a client that reads
    /// nothing loses its subscription.
    pub(crate) fn tell(&self, payload: Bytes) {
        let mut waiting = self.waiting();
        if waiting.answered || waiting.messages.iter().any(|(_, waits)| *waits == payload) {
            return;
        }
        if waiting.bytes + payload.len() > self.max_bytes {
            // Nobody will miss them: whoever subscribes again has to look at everything anyway.
            waiting.messages.clear();
            waiting.bytes = 0;
            drop(waiting);
            self.answer(Err(ErrorObject::internal(
                "overflow",
                "The subscription was not read for too long. Subscribe again.",
                true,
            )));
            self.cancel.cancel();
            return;
        }
        let reader = waiting.push(Class::Notice, payload);
        drop(waiting);
        wake(reader);
    }

    /// Acknowledges a subscription, which is heard from now on.
    pub(crate) fn acknowledge(
        self: &Arc<Self>,
        subscriptions: &Arc<Subscriptions>,
        filter: ChangeFilter,
        payload: Bytes,
    ) {
        // Opened first: what changes from here on waits behind the acknowledgement.
        let opened = subscriptions.open(filter, self);
        let before = self.subscription().replace(opened);
        drop(before);
        let mut waiting = self.waiting();
        waiting.bytes += payload.len();
        waiting.messages.push_front((Class::Notice, payload));
        waiting.unacknowledged = false;
        let reader = waiting.reader.take();
        drop(waiting);
        wake(reader);
    }

    /// What the answer is about to be.
    pub(crate) fn deny(&self, denial: Denial) {
        let mut waiting = self.waiting();
        if !waiting.answered {
            waiting.denial = Some(denial);
        }
    }

    /// Answers the request. The first answer counts.
    pub(crate) fn answer(&self, answer: Answer) {
        let mut waiting = self.waiting();
        if waiting.answered {
            return;
        }
        waiting.answered = true;
        drop(waiting);
        // Before its reader sees the answer.
        if let Some(observer) = &self.observer {
            observer.ended(&answer);
        }
        let mut waiting = self.waiting();
        waiting.answer = Some(answer);
        let reader = waiting.reader.take();
        drop(waiting);
        let subscription = self.subscription().take();
        drop(subscription);
        wake(reader);
    }

    fn subscription(&self) -> MutexGuard<'_, Option<Subscription>> {
        self.subscription.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(reader: Option<Waker>) {
    if let Some(reader) = reader {
        reader.wake();
    }
}

impl Waiting {
    fn push(&mut self, class: Class, payload: Bytes) -> Option<Waker> {
        self.bytes += payload.len();
        self.messages.push_back((class, payload));
        self.reader.take()
    }

    fn make_room(&mut self, needed: usize, max: usize) {
        while self.bytes + needed > max {
            let Some(oldest) = self.messages.iter().position(|(class, _)| *class == Class::Chatter) else {
                return;
            };
            if let Some((_, dropped)) = self.messages.remove(oldest) {
                self.bytes -= dropped.len();
            }
        }
    }

    fn next(&mut self) -> Option<Reply> {
        if !self.unacknowledged
            && let Some((_, message)) = self.messages.pop_front()
        {
            self.bytes -= message.len();
            return Some(Reply::Message(message));
        }
        self.answer.take().map(Reply::Answer)
    }
}

/// What comes back on an exchange. Dropped before the answer was read, it cancels the exchange: the client has gone.
#[derive(Debug)]
pub struct Replies {
    exchange: Arc<Exchange>,
    ended: bool,
}

impl Replies {
    pub(crate) fn new(exchange: Arc<Exchange>) -> Self {
        Self { exchange, ended: false }
    }

    pub fn id(&self) -> &RequestId {
        &self.exchange.id
    }

    /// Whether the answer that was read is a server's word on the client's credentials.
    pub fn denial(&self) -> Option<Denial> {
        let mut waiting = self.exchange.waiting();
        waiting.denial.take().filter(|_| self.ended)
    }

    /// The next reply; none follows the answer.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut waiting = self.exchange.waiting();
        match waiting.next() {
            Some(reply) => {
                drop(waiting);
                self.ended = matches!(reply, Reply::Answer(_));
                Poll::Ready(Some(reply))
            }
            None => {
                waiting.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        if !self.ended {
            self.exchange.cancel.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::changes::Change;

    fn replies(exchange: &Arc<Exchange>) -> Vec<String> {
        let mut replies = Replies::new(Arc::clone(exchange));
        let mut context = Context::from_waker(Waker::noop());
        let mut seen = Vec::new();
        while let Poll::Ready(Some(reply)) = replies.poll_next(&mut context) {
            seen.push(match reply {
                Reply::Message(text) => String::from_utf8_lossy(&text).into_owned(),
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
    fn the_first_answer_is_the_last_word() {
        let exchange = exchange(Some(Time(5)));
        exchange.answer(Ok("1".into()));
        exchange.answer(Ok("2".into()));
        exchange.send(Class::Notice, "late".into()).unwrap();
        assert_eq!(replies(&exchange), ["answer 1"]);
        assert!(!exchange.cancel.is_cancelled());
    }

    #[test]
    fn a_full_exchange_drops_old_chatter_and_refuses_notices() {
        let exchange = exchange(Some(Time(5)));
        for (class, text) in [
            (Class::Notice, "n1--"),
            (Class::Chatter, "c1--"),
            (Class::Chatter, "c2--"),
            (Class::Notice, "n2--"),
        ] {
            exchange.send(class, text.into()).unwrap();
        }
        let full = Refusal::OverLimit(Limit::StreamBytes);
        assert_eq!(exchange.send(Class::Notice, "n3--".into()), Err(full));
        exchange.send(Class::Chatter, "c3--".into()).unwrap();
        exchange.answer(Ok("!".into()));
        assert_eq!(replies(&exchange), ["n1--", "n2--", "answer !"]);
    }

    #[test]
    fn changes_wait_behind_the_acknowledgement_and_are_told_once() {
        let subscriptions = Arc::new(Subscriptions::default());
        let exchange = exchange(None);
        exchange.tell("a".into());
        assert_eq!(replies(&exchange), [""; 0]);
        exchange.acknowledge(&subscriptions, ChangeFilter::default(), "ack".into());
        exchange.tell("a".into());
        exchange.tell("b".into());
        exchange.answer(Ok("end".into()));
        assert_eq!(replies(&exchange), ["ack", "a", "b", "answer end"]);
    }

    #[test]
    fn the_acknowledgement_is_first_whatever_is_announced_meanwhile() {
        let subscriptions = Arc::new(Subscriptions::default());
        let filter = ChangeFilter { tools_list: true, ..ChangeFilter::default() };
        let stop = AtomicBool::new(false);
        let mut early = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        subscriptions.announce(&Change::ToolsList);
                    }
                });
            }
            for _ in 0..20_000 {
                let exchange =
                    Exchange::new(RequestId::Number(1), Principal::anonymous(), None, 10_000, None);
                exchange.acknowledge(&subscriptions, filter.clone(), "ack".into());
                early.extend(replies(&exchange).first().filter(|first| *first != "ack").cloned());
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(early, [""; 0]);
    }

    #[test]
    fn a_subscription_that_nobody_reads_ends() {
        let subscriptions = Arc::new(Subscriptions::default());
        let exchange = exchange(None);
        exchange.acknowledge(&subscriptions, ChangeFilter::default(), "ack".into());
        exchange.tell("0123456".into());
        assert_eq!((subscriptions.count(), exchange.waiting().bytes), (1, 10));
        exchange.tell("more".into());
        assert!(exchange.cancel.is_cancelled());
        assert_eq!((subscriptions.count(), exchange.waiting().bytes), (0, 0), "nothing is kept for it");
        assert_eq!(replies(&exchange), ["error -32603"]);
    }

    #[test]
    fn a_client_that_goes_cancels() {
        let exchange = exchange(Some(Time(5)));
        drop(Replies::new(Arc::clone(&exchange)));
        assert!(exchange.cancel.is_cancelled());
    }
}
