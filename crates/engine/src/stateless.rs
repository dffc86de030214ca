//! Serving stateless requests: each ends in exactly one answer, or with its connection.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use steadfast_session::{Class, Limit, Principal, Time};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{RequestId, listen};
use tokio_util::sync::CancellationToken;

use crate::backend::Incoming;
use crate::calls::{catch_panic, unless_cancelled};
use crate::changes::{Change, ChangeFilter, Subscriptions};
use crate::engine::Engine;
use crate::exchange::{Exchange, Replies};
use crate::refusal::Refusal;

/// A stateless request, as its backend sees it.
#[derive(Clone, Debug)]
pub struct ExchangeHandle {
    engine: Arc<Engine>,
    exchange: Arc<Exchange>,
}

impl ExchangeHandle {
    /// The id that the client gave it.
    pub fn id(&self) -> &RequestId {
        self.exchange.id()
    }

    pub fn principal(&self) -> &Principal {
        self.exchange.principal()
    }

    /// Cancelled when the client goes away, the deadline passes, or the node shuts down.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.exchange.cancel
    }

    /// Whether this is a `subscriptions/listen`.
    pub fn is_subscription(&self) -> bool {
        self.exchange.is_subscription()
    }

    /// Sends a notification before the answer.
    pub fn notify(&self, class: Class, payload: Bytes) -> Result<(), Refusal> {
        self.exchange.send(class, payload)
    }

    /// Acknowledges a subscription: changes that the filter wants are sent from now on. `payload` is the JSON text of the
    /// acknowledgement, which goes out first.
    pub fn acknowledge(&self, filter: ChangeFilter, payload: Bytes) {
        self.exchange.acknowledge(&self.engine.stateless.subscriptions, filter, payload);
    }

    /// Tells every subscription that wants to know.
    pub fn announce(&self, change: &Change) {
        self.engine.announce(change);
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

/// The stateless requests that this node works on.
#[derive(Debug, Default)]
pub(crate) struct Stateless {
    /// Those that were not answered at once.
    open: Mutex<Open>,
    subscriptions: Arc<Subscriptions>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    exchanges: BTreeMap<u64, Arc<Exchange>>,
}

impl Stateless {
    fn enter(&self, exchange: &Arc<Exchange>) -> u64 {
        let mut open = self.open();
        let no = open.next;
        open.next += 1;
        open.exchanges.insert(no, Arc::clone(exchange));
        no
    }

    fn leave(&self, no: u64) {
        let left = self.open().exchanges.remove(&no);
        drop(left);
    }

    fn chosen(&self, choose: impl Fn(&Exchange) -> bool) -> Vec<Arc<Exchange>> {
        self.open().exchanges.values().filter(|exchange| choose(exchange)).cloned().collect()
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Has the backend answer a stateless request. A backend that answers at once does so before this returns.
    pub async fn serve(
        &self,
        principal: Principal,
        id: RequestId,
        request: Incoming,
    ) -> Result<Replies, Refusal> {
        if self.is_draining() {
            return Err(Refusal::Draining);
        }
        if self.stateless.open().exchanges.len() >= self.options().exchanges {
            return Err(Refusal::OverLimit(Limit::Exchanges));
        }
        let is_subscription = request.method == listen::METHOD;
        let deadline = (!is_subscription).then(|| self.now().plus(self.options().call_deadline));
        let exchange = Exchange::new(id, principal, deadline, self.options().exchange_bytes);
        // From here on a client that goes away cancels.
        let replies = Replies::new(Arc::clone(&exchange));
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(serve_to_end(self.arc(), Arc::clone(&exchange), request));
        let done = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_ready())).await;
        if !done {
            let (engine, no) = (self.arc(), self.stateless.enter(&exchange));
            if !is_subscription {
                self.running.fetch_add(1, Ordering::AcqRel);
            }
            if self.is_draining() {
                // Draining began meanwhile and may have missed this one.
                self.end_subscriptions();
            }
            self.spawn(async move {
                work.await;
                engine.stateless.leave(no);
                if !is_subscription {
                    engine.running.fetch_sub(1, Ordering::AcqRel);
                    engine.call_ended.notify_waiters();
                }
            });
        }
        Ok(replies)
    }

    /// Tells every subscription of this node that wants to know.
    pub fn announce(&self, change: &Change) {
        self.stateless.subscriptions.announce(change);
    }

    /// Subscriptions end in good order: whoever runs them gives them their result.
    pub(crate) fn end_subscriptions(&self) {
        for exchange in self.stateless.chosen(Exchange::is_subscription) {
            exchange.cancel.cancel();
        }
    }

    pub(crate) fn fail_overdue_exchanges(&self, now: Time, error: &ErrorObject) {
        for exchange in self.stateless.chosen(|exchange| exchange.is_overdue(now)) {
            exchange.answer(Err(error.clone()));
            exchange.cancel.cancel();
        }
    }

    pub(crate) fn fail_all_exchanges(&self, error: &ErrorObject) {
        for exchange in self.stateless.chosen(|exchange| !exchange.is_subscription()) {
            exchange.answer(Err(error.clone()));
            exchange.cancel.cancel();
        }
    }
}

async fn serve_to_end(engine: Arc<Engine>, exchange: Arc<Exchange>, request: Incoming) {
    let handle = ExchangeHandle { engine: Arc::clone(&engine), exchange: Arc::clone(&exchange) };
    let work = catch_panic(async { engine.backend().serve(handle, request).await });
    let answer = match unless_cancelled(work, &exchange.cancel).await {
        Some(answer) => answer.and_then(|answer| answer),
        None => Err(ErrorObject::internal("cancelled", "The request was cancelled.", true)),
    };
    exchange.answer(answer);
}
