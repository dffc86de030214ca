//! Serves stateless requests: each gets exactly one answer, or is cancelled when its connection
//! breaks.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use steadfast_session::{Limit, Principal, Time};
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::{Reason, RequestId, subscriptions};

use crate::backend::IncomingMessage;
use crate::calls::KeyedRequest;
use crate::engine::Engine;
use crate::panics::catch_panic;
use crate::refusal::Refusal;
use crate::run_futures::unless_cancelled;
use crate::shutdown::{InFlightCount, InFlightGuard, shutting_down};
use crate::stateless::{Change, Exchange, ExchangeHandle, ExchangeObserver, Replies};

/// Counts one request as in flight while it exists. A drain waits for all that are not
/// subscriptions.
struct ExchangeSlot {
    engine: Arc<Engine>,
    _in_flight: Option<InFlightGuard>,
}

impl Drop for ExchangeSlot {
    fn drop(&mut self) {
        self.engine.exchanges.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Engine {
    /// Lets the backend answer a stateless request. A backend that is ready at the first poll has
    /// answered when this function returns.
    pub async fn serve(
        &self,
        principal: Principal,
        id: RequestId,
        request: IncomingMessage,
    ) -> Result<Replies, Refusal> {
        let is_subscription = request.method == subscriptions::METHOD;
        let slot = self.reserve_slot(is_subscription)?;
        let deadline = (!is_subscription).then(|| self.now().plus(self.options().call_deadline));
        let observer = self.exchanges.observer.get().filter(|_| !is_subscription).cloned();
        if let Some(observer) = &observer {
            observer.begun();
        }
        let exchange = Exchange::new(id, principal, deadline, self.options().exchange_bytes, observer);
        let keyed =
            (!is_subscription).then(|| KeyedRequest::of(&request, exchange.principal(), self)).flatten();
        if keyed.is_some() {
            exchange.outlive_client();
        }
        // From here on a disconnected client cancels the exchange.
        let replies = Replies::new(Arc::clone(&exchange));
        let mut work: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(run_exchange(self.arc(), Arc::clone(&exchange), request, keyed));
        let done = std::future::poll_fn(|context| Poll::Ready(work.as_mut().poll(context).is_ready())).await;
        if !done {
            let no = self.exchanges.insert(&exchange);
            self.end_if_draining(&exchange);
            self.spawn(async move {
                work.await;
                slot.engine.exchanges.remove(no);
            });
        }
        Ok(replies)
    }

    /// Reports stateless requests to `observer` from now on. A second observer is ignored.
    pub fn observe_exchanges(&self, observer: Arc<dyn ExchangeObserver>) {
        let _ = self.exchanges.observer.set(observer);
    }

    /// Sends a change to every subscription of this node whose filter matches.
    pub fn publish(&self, change: &Change) {
        self.exchanges.subscriptions.publish(change);
    }

    /// Returns the number of stateless requests in flight that were not answered at the first poll,
    /// including subscriptions.
    pub fn exchanges(&self) -> usize {
        self.exchanges.open().exchanges.len()
    }

    /// Returns the number of acknowledged subscriptions.
    pub fn subscriptions(&self) -> usize {
        self.exchanges.subscriptions.count()
    }

    /// Cancels all subscriptions. Their backends end them with their results.
    pub(crate) fn end_subscriptions(&self) {
        for exchange in self.exchanges.matching(Exchange::is_subscription) {
            exchange.cancel.cancel();
        }
    }

    fn reserve_slot(&self, is_subscription: bool) -> Result<ExchangeSlot, Refusal> {
        // Counted first, checked afterwards: two concurrent requests cannot both get the last slot,
        // and either this request sees the drain or the drain sees this request.
        let before = self.exchanges.in_flight.fetch_add(1, Ordering::SeqCst);
        let in_flight = (!is_subscription).then(|| InFlightCount::increment(&self.admission.calls));
        let slot = ExchangeSlot { engine: self.arc(), _in_flight: in_flight };
        if self.is_draining() {
            return Err(Refusal::Draining);
        }
        if before >= self.options().exchanges {
            return Err(Refusal::OverLimit(Limit::Exchanges));
        }
        Ok(slot)
    }

    /// Ends an exchange that a concurrent drain may have missed.
    fn end_if_draining(&self, exchange: &Exchange) {
        if exchange.is_subscription() {
            if self.is_draining() {
                exchange.cancel.cancel();
            }
        } else if self.exchanges.open().is_shut_down {
            exchange.answer(Err(shutting_down()));
            exchange.cancel.cancel();
        }
    }

    pub(crate) fn fail_overdue_exchanges(&self, now: Time, error: &ErrorObject) {
        for exchange in self.exchanges.matching(|exchange| exchange.is_overdue(now)) {
            exchange.answer(Err(error.clone()));
            exchange.cancel.cancel();
        }
    }

    pub(crate) fn fail_all_exchanges(&self, error: &ErrorObject) {
        self.exchanges.open().is_shut_down = true;
        for exchange in self.exchanges.matching(|exchange| !exchange.is_subscription()) {
            exchange.answer(Err(error.clone()));
            exchange.cancel.cancel();
        }
    }
}

async fn run_exchange(
    engine: Arc<Engine>,
    exchange: Arc<Exchange>,
    request: IncomingMessage,
    keyed: Option<KeyedRequest>,
) {
    let handle = ExchangeHandle { engine: Arc::clone(&engine), exchange: Arc::clone(&exchange) };
    let work = async { engine.backend().serve(handle, request).await };
    let work = catch_panic(engine.execute_once(keyed, &exchange.cancel, work));
    let answer = match unless_cancelled(work, &exchange.cancel, engine.options().wind_down).await {
        Some(answer) => answer.and_then(|answer| answer),
        None => Err(Reason::Cancelled.error_retryable(true, "The request was cancelled.")),
    };
    exchange.answer(answer);
}
