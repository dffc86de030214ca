//! Serving stateless requests: each ends in exactly one answer, or with its connection.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use steadfast_session::{Class, Limit, Principal, Time};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{RequestId, listen};
use tokio_util::sync::CancellationToken;

use crate::admission::{Count, Counted};
use crate::backend::{Denial, Incoming};
use crate::calls::{catch_panic, unless_cancelled};
use crate::changes::{Change, ChangeFilter, Subscriptions};
use crate::drain::shutting_down;
use crate::engine::Engine;
use crate::exchange::{Answer, Exchange, Replies};
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

    /// The answer that follows is a server's word on the client's credentials. If nothing was sent before it, the response
    /// says so by its status and its challenge.
    pub fn deny(&self, denial: Denial) {
        self.exchange.deny(denial);
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

    /// Tells this subscription, and no other.
    pub fn tell(&self, change: &Change) {
        self.exchange.tell(change.message(self.id()));
    }

    /// Tells every subscription that wants to know.
    pub fn announce(&self, change: &Change) {
        self.engine.announce(change);
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

/// Hears of each stateless request that is no subscription: that it was accepted, and how it ended. Each
/// that was accepted ends exactly once. It is told in place and must not block.
pub trait ExchangeObserver: std::fmt::Debug + Send + Sync + 'static {
    fn begun(&self);
    fn ended(&self, answer: &Answer);
}

/// The stateless requests that this node works on.
#[derive(Debug, Default)]
pub(crate) struct Stateless {
    observer: OnceLock<Arc<dyn ExchangeObserver>>,
    /// How many there are, those included that are being answered at once.
    taken: AtomicUsize,
    /// Those that were not answered at once.
    open: Mutex<Open>,
    subscriptions: Arc<Subscriptions>,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    exchanges: BTreeMap<u64, Arc<Exchange>>,
    /// The node has gone down, and failed all that were here.
    over: bool,
}

/// A place among the requests in flight, for as long as it is held. A drain waits for those that are no subscriptions.
struct Place {
    engine: Arc<Engine>,
    _counted: Option<Counted>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.engine.stateless.taken.fetch_sub(1, Ordering::AcqRel);
    }
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
        let is_subscription = request.method == listen::METHOD;
        let place = self.take_place(is_subscription)?;
        let deadline = (!is_subscription).then(|| self.now().plus(self.options().call_deadline));
        let observer = self.stateless.observer.get().filter(|_| !is_subscription).cloned();
        if let Some(observer) = &observer {
            observer.begun();
        }
        let exchange = Exchange::new(id, principal, deadline, self.options().exchange_bytes, observer);
        // From here on a client that goes away cancels.
        let replies = Replies::new(Arc::clone(&exchange));
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(serve_to_end(self.arc(), Arc::clone(&exchange), request));
        let done = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_ready())).await;
        if !done {
            let no = self.stateless.enter(&exchange);
            self.end_late(&exchange);
            self.spawn(async move {
                work.await;
                place.engine.stateless.leave(no);
            });
        }
        Ok(replies)
    }

    /// From now on `observer` hears of stateless requests. The first one counts.
    pub fn observe_exchanges(&self, observer: Arc<dyn ExchangeObserver>) {
        // The first observer stays: a second call of this function is a mistake without effect.
        let _ = self.stateless.observer.set(observer);
    }

    /// Tells every subscription of this node that wants to know.
    pub fn announce(&self, change: &Change) {
        self.stateless.subscriptions.announce(change);
    }

    /// Stateless requests in flight that were not answered at once, subscriptions included.
    pub fn exchanges(&self) -> usize {
        self.stateless.open().exchanges.len()
    }

    /// Subscriptions that hear of changes.
    pub fn subscriptions(&self) -> usize {
        self.stateless.subscriptions.count()
    }

    /// Subscriptions end in good order: whoever runs them gives them their result.
    pub(crate) fn end_subscriptions(&self) {
        for exchange in self.stateless.chosen(Exchange::is_subscription) {
            exchange.cancel.cancel();
        }
    }

    fn take_place(&self, is_subscription: bool) -> Result<Place, Refusal> {
        // Counted first and looked at afterwards: two that come at once cannot both have the last place, and a drain that
        // this does not see sees this.
        let taken = self.stateless.taken.fetch_add(1, Ordering::SeqCst);
        let counted = (!is_subscription).then(|| Count::one_more(&self.admission.calls));
        let place = Place { engine: self.arc(), _counted: counted };
        if self.is_draining() {
            return Err(Refusal::Draining);
        }
        if taken >= self.options().exchanges {
            return Err(Refusal::OverLimit(Limit::Exchanges));
        }
        Ok(place)
    }

    /// Ends an exchange that entered after a drain had looked for those like it.
    fn end_late(&self, exchange: &Exchange) {
        if exchange.is_subscription() {
            if self.is_draining() {
                exchange.cancel.cancel();
            }
        } else if self.stateless.open().over {
            exchange.answer(Err(shutting_down()));
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
        self.stateless.open().over = true;
        for exchange in self.stateless.chosen(|exchange| !exchange.is_subscription()) {
            exchange.answer(Err(error.clone()));
            exchange.cancel.cancel();
        }
    }
}

async fn serve_to_end(engine: Arc<Engine>, exchange: Arc<Exchange>, request: Incoming) {
    let handle = ExchangeHandle { engine: Arc::clone(&engine), exchange: Arc::clone(&exchange) };
    let work = catch_panic(async { engine.backend().serve(handle, request).await });
    let answer = match unless_cancelled(work, &exchange.cancel, engine.options().wind_down).await {
        Some(answer) => answer.and_then(|answer| answer),
        None => Err(ErrorObject::internal("cancelled", "The request was cancelled.", true)),
    };
    exchange.answer(answer);
}
