//! One exchange: a stateless request, and the messages that its client has not read yet.
//!
//! An exchange is in memory only. When its connection breaks, the exchange is cancelled, unless it
//! was promoted to a job (`promote.rs`): then a task reads the messages and stores them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;
use steadfast_session::{Class, Limit, Principal, Time};
use steadfast_wire::{Reason, RequestId};
use tokio_util::sync::CancellationToken;

use crate::backend::Denial;
use crate::delivery::MessageQueue;
use crate::refusal::Refusal;
use crate::stateless::{Answer, ChangeFilter, ExchangeObserver, Reply, Subscription, Subscriptions};

/// One stateless request in flight.
#[derive(Debug)]
pub(crate) struct Exchange {
    id: RequestId,
    principal: Principal,
    /// When the exchange is answered with an error. A subscription has no deadline.
    deadline: Option<Time>,
    pub(crate) cancel: CancellationToken,
    /// The client repeats the request with its idempotency key, so a broken connection does not
    /// cancel it.
    outlives_client: AtomicBool,
    max_bytes: usize,
    outbox: Mutex<Outbox>,
    /// Receives changes from the acknowledgement to the answer.
    subscription: Mutex<Option<Subscription>>,
    observer: Option<Arc<dyn ExchangeObserver>>,
}

/// What the client has not read yet.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) messages: MessageQueue,
    /// A subscription sends nothing before its acknowledgement.
    unacknowledged: bool,
    answer: Option<Answer>,
    answered: bool,
    pub(super) denial: Option<Denial>,
    credentials_accepted: bool,
    pub(super) reader: Option<Waker>,
}

impl Exchange {
    pub(crate) fn new(
        id: RequestId,
        principal: Principal,
        deadline: Option<Time>,
        max_bytes: usize,
        observer: Option<Arc<dyn ExchangeObserver>>,
    ) -> Arc<Self> {
        let outbox = Outbox { unacknowledged: deadline.is_none(), ..Outbox::default() };
        Arc::new(Self {
            id,
            principal,
            deadline,
            cancel: CancellationToken::new(),
            outlives_client: AtomicBool::new(false),
            max_bytes,
            outbox: Mutex::new(outbox),
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

    /// The exchange goes on without its client.
    pub(crate) fn outlive_client(&self) {
        self.outlives_client.store(true, Ordering::Relaxed);
    }

    /// The client has disconnected for good.
    pub(crate) fn client_gone(&self) {
        if !self.outlives_client.load(Ordering::Relaxed) {
            self.cancel.cancel();
        }
    }

    /// Sends a notification that belongs to this request. If the outbox is full, older droppable
    /// messages are dropped first.
    pub(crate) fn send(&self, class: Class, payload: Bytes) -> Result<(), Refusal> {
        let mut outbox = self.outbox();
        if outbox.answered || self.cancel.is_cancelled() {
            // The client has its answer or has disconnected.
            return Ok(());
        }
        outbox.messages.make_room(payload.len(), usize::MAX, self.max_bytes);
        if !outbox.messages.has_room(payload.len(), usize::MAX, self.max_bytes) {
            return match class {
                Class::Droppable => Ok(()),
                _ => Err(Refusal::OverLimit(Limit::StreamBytes)),
            };
        }
        outbox.messages.push(class, payload);
        let reader = outbox.reader.take();
        drop(outbox);
        wake(reader);
        Ok(())
    }

    /// Sends a change to a subscription. A change that is in the outbox already is not added again.
    /// A subscription whose outbox is full ends with an error.
    pub(crate) fn send_change(&self, payload: Bytes) {
        let mut outbox = self.outbox();
        if outbox.answered || outbox.messages.contains(&payload) {
            return;
        }
        if !outbox.messages.has_room(payload.len(), usize::MAX, self.max_bytes) {
            // Dropped changes do no harm: a client that subscribes again has to read everything
            // anyway.
            outbox.messages = MessageQueue::default();
            drop(outbox);
            self.answer(Err(
                Reason::Overflow.error("The subscription was not read for too long. Subscribe again.")
            ));
            self.cancel.cancel();
            return;
        }
        outbox.messages.push(Class::Notification, payload);
        let reader = outbox.reader.take();
        drop(outbox);
        wake(reader);
    }

    /// Acknowledges a subscription, which receives changes from now on.
    pub(crate) fn acknowledge(
        self: &Arc<Self>,
        subscriptions: &Arc<Subscriptions>,
        filter: ChangeFilter,
        payload: Bytes,
    ) {
        // Subscribed first, so that later changes wait behind the acknowledgement.
        let opened = subscriptions.open(filter, self);
        let before = self.subscription().replace(opened);
        drop(before);
        let mut outbox = self.outbox();
        outbox.messages.push_first(Class::Notification, payload);
        outbox.unacknowledged = false;
        let reader = outbox.reader.take();
        drop(outbox);
        wake(reader);
    }

    /// Reports that the answer that follows is a denial of the client's credentials.
    pub(crate) fn deny(&self, denial: Denial) {
        let mut outbox = self.outbox();
        if !outbox.answered {
            outbox.denial = Some(denial);
        }
    }

    /// Reports that no denial of the client's credentials follows.
    pub(crate) fn accept_credentials(&self) {
        let mut outbox = self.outbox();
        outbox.credentials_accepted = true;
        let reader = outbox.reader.take();
        drop(outbox);
        wake(reader);
    }

    /// Answers the request. Only the first answer counts.
    pub(crate) fn answer(&self, answer: Answer) {
        let mut outbox = self.outbox();
        if outbox.answered {
            return;
        }
        outbox.answered = true;
        drop(outbox);
        // The observer runs before the reader sees the answer.
        if let Some(observer) = &self.observer {
            observer.ended(&answer);
        }
        let mut outbox = self.outbox();
        outbox.answer = Some(answer);
        let reader = outbox.reader.take();
        drop(outbox);
        let subscription = self.subscription().take();
        drop(subscription);
        wake(reader);
    }

    fn subscription(&self) -> MutexGuard<'_, Option<Subscription>> {
        self.subscription.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(reader: Option<Waker>) {
    if let Some(reader) = reader {
        reader.wake();
    }
}

impl Outbox {
    pub(super) fn next(&mut self) -> Option<Reply> {
        match self.take_message() {
            Some((class, message)) => Some(Reply::Message(class, message)),
            None => self.answer.take().map(Reply::Answer),
        }
    }

    pub(super) fn take_message(&mut self) -> Option<(Class, Bytes)> {
        if self.unacknowledged {
            return None;
        }
        self.messages.pop()
    }

    /// Returns true if the answer can be read.
    pub(super) fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    pub(super) fn are_credentials_checked(&self) -> bool {
        self.credentials_accepted || self.is_answered() || !self.messages.is_empty()
    }
}
