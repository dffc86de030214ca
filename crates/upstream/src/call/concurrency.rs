//! The concurrency limit of a client session: how many of its calls run at the server at a time,
//! and in which lane.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use steadfast_wire::Reason;
use steadfast_wire::rpc::ErrorObject;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::config::{Calls, Concurrency};

/// The concurrency limit of one client session, under one configuration.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    permits: Arc<Permits>,
    lanes: usize,
    max_queued: usize,
}

/// The permits of one client session. After a configuration reload the old and the new client
/// session share them, because calls of the old one still run.
#[derive(Debug)]
pub(crate) struct Permits {
    state: Mutex<State>,
    /// Notified when a permit is returned.
    returned: Notify,
}

#[derive(Debug)]
struct State {
    per_lane: usize,
    /// The number of running calls per lane.
    busy: Vec<usize>,
    /// The queued calls in the order of arrival. There is no free permit for any of them.
    queued: VecDeque<QueuedCall>,
    /// The number of calls that have ever been queued.
    count: u64,
}

#[derive(Debug)]
struct QueuedCall {
    no: u64,
    /// The call may use the first lanes up to this number.
    lanes: usize,
    grant_to: oneshot::Sender<CallPermit>,
}

/// The right to run a call in a lane. Returned when it is dropped.
#[derive(Debug)]
pub(crate) struct CallPermit {
    pub(crate) lane: usize,
    permits: Arc<Permits>,
}

impl ConcurrencyLimit {
    pub(crate) fn new(calls: &Calls) -> Self {
        let (lanes, per_lane) = bounds(calls);
        let state = State { per_lane, busy: vec![0; lanes], queued: VecDeque::new(), count: 0 };
        let permits = Permits { state: Mutex::new(state), returned: Notify::new() };
        Self { permits: Arc::new(permits), lanes, max_queued: calls.max_queued }
    }

    /// Applies another configuration to existing permits. Running calls keep theirs, and count.
    pub(crate) fn with_permits(permits: Arc<Permits>, calls: &Calls) -> Self {
        let (lanes, per_lane) = bounds(calls);
        let granted = {
            let mut state = permits.state();
            state.per_lane = per_lane;
            let most = state.busy.len().max(lanes);
            state.busy.resize(most, 0);
            state.grant_free_permits()
        };
        permits.send_grants(granted);
        Self { permits, lanes, max_queued: calls.max_queued }
    }

    /// Returns the permits for the next configuration. They exist while a call holds or awaits one.
    pub(crate) fn permits(&self) -> Weak<Permits> {
        Arc::downgrade(&self.permits)
    }

    /// Changes how many calls run at a time in a lane. Running calls keep their permits, and count.
    pub(crate) fn set_per_lane(&self, per_lane: usize) {
        let granted = {
            let mut state = self.permits.state();
            if state.per_lane == per_lane {
                return;
            }
            state.per_lane = per_lane;
            state.grant_free_permits()
        };
        self.permits.send_grants(granted);
    }

    /// Returns a permit if one is free.
    pub(crate) fn try_acquire(&self) -> Option<CallPermit> {
        let lane = self.permits.state().take_free_lane(self.lanes)?;
        Some(CallPermit { lane, permits: Arc::clone(&self.permits) })
    }

    /// Waits for a permit. Chooses the lowest lane with a free permit, so that consecutive calls
    /// use the same upstream session.
    pub(crate) async fn acquire(&self, cancelled: &CancellationToken) -> Result<CallPermit, ErrorObject> {
        let permits = &self.permits;
        let mut queue_guard = {
            let mut state = permits.state();
            if let Some(lane) = state.take_free_lane(self.lanes) {
                return Ok(CallPermit { lane, permits: Arc::clone(permits) });
            }
            if state.queued.len() >= self.max_queued {
                let message =
                    format!("{} calls of this session wait already. Try again later.", self.max_queued);
                return Err(Reason::OverLimit.error_retryable(true, message));
            }
            let (grant_to, granted) = oneshot::channel();
            let no = state.count;
            state.count += 1;
            state.queued.push_back(QueuedCall { no, lanes: self.lanes, grant_to });
            QueueGuard { permits, no, granted }
        };
        tokio::select! {
            biased;
            () = cancelled.cancelled() => {}
            // The sender is dropped only with the permits themselves.
            granted = &mut queue_guard.granted => if let Ok(permit) = granted {
                return Ok(permit);
            }
        }
        Err(Reason::Cancelled.error_retryable(true, "The call was cancelled before it was sent."))
    }

    /// Waits until no call runs or is queued.
    pub(crate) async fn until_idle(&self) {
        let mut returned = pin!(self.permits.returned.notified());
        loop {
            returned.as_mut().enable();
            if self.permits.state().is_empty() {
                return;
            }
            returned.as_mut().await;
            returned.set(self.permits.returned.notified());
        }
    }

    /// Returns the number of queued calls.
    pub(crate) fn queued(&self) -> usize {
        self.permits.state().queued.len()
    }
}

/// Returns the number of lanes and the number of calls per lane.
fn bounds(calls: &Calls) -> (usize, usize) {
    let lanes = calls.upstream_sessions.get();
    let per_lane = match (calls.concurrency, lanes) {
        (Concurrency::AtMost(concurrency), _) => concurrency.get(),
        // With `Auto` the client session then applies what it knows about the server.
        (Concurrency::Auto | Concurrency::Unlimited, 1) => usize::MAX,
        (Concurrency::Auto | Concurrency::Unlimited, _) => 1,
    };
    (lanes, per_lane)
}

impl Permits {
    /// Returns a permit and grants it to the next queued call.
    fn give_back(self: &Arc<Self>, lane: usize) {
        let granted = {
            let mut state = self.state();
            state.busy[lane] -= 1;
            state.grant_free_permits()
        };
        self.send_grants(granted);
        self.returned.notify_waiters();
    }

    /// Called without the lock: a call that does not wait any more returns its permit at once.
    fn send_grants(self: &Arc<Self>, granted: Vec<(usize, oneshot::Sender<CallPermit>)>) {
        for (lane, queued) in granted {
            drop(queued.send(CallPermit { lane, permits: Arc::clone(self) }));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.busy.iter().all(|calls| *calls == 0)
    }

    /// Returns the lowest of the first `lanes` lanes that has a free permit.
    fn free_lane(&self, lanes: usize) -> Option<usize> {
        self.busy.iter().take(lanes).position(|calls| *calls < self.per_lane)
    }

    /// Takes a permit of the lowest of the first `lanes` lanes that has a free one.
    fn take_free_lane(&mut self, lanes: usize) -> Option<usize> {
        let lane = self.free_lane(lanes)?;
        self.busy[lane] += 1;
        Some(lane)
    }

    /// Takes all free permits for queued calls, in the order of arrival.
    fn grant_free_permits(&mut self) -> Vec<(usize, oneshot::Sender<CallPermit>)> {
        let mut granted = Vec::new();
        let next = |state: &Self| {
            let mut queued = state.queued.iter().enumerate();
            queued.find_map(|(at, queued)| Some((at, state.free_lane(queued.lanes)?)))
        };
        while let Some((at, lane)) = next(self) {
            let Some(queued) = self.queued.remove(at) else { break };
            self.busy[lane] += 1;
            granted.push((lane, queued.grant_to));
        }
        granted
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.permits.give_back(self.lane);
    }
}

/// Removes a call from the queue when it is dropped.
struct QueueGuard<'a> {
    permits: &'a Permits,
    no: u64,
    /// A permit that is granted and not received is returned when this is dropped.
    granted: oneshot::Receiver<CallPermit>,
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.permits.state().queued.retain(|queued| queued.no != self.no);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::pin::Pin;
    use std::task::Poll;

    use super::*;

    fn limit(concurrency: usize, upstream_sessions: usize, queued: usize) -> ConcurrencyLimit {
        let upstream_sessions = NonZeroUsize::new(upstream_sessions).unwrap();
        ConcurrencyLimit::new(&Calls {
            concurrency: NonZeroUsize::new(concurrency).into(),
            upstream_sessions,
            max_queued: queued,
        })
    }

    /// Returns true if the future is pending after one poll.
    async fn is_pending(work: &mut (impl Future + Unpin)) -> bool {
        std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *work).poll(context).is_pending())).await
    }

    async fn permit(limit: &ConcurrencyLimit) -> CallPermit {
        limit.acquire(&CancellationToken::new()).await.unwrap()
    }

    #[tokio::test]
    async fn lanes_fill_from_the_lowest() {
        let limit = limit(0, 3, 0);
        let (a, b, c) = (permit(&limit).await, permit(&limit).await, permit(&limit).await);
        assert_eq!((a.lane, b.lane, c.lane), (0, 1, 2));
        assert!(limit.acquire(&CancellationToken::new()).await.is_err(), "the queue is full");
        drop(b);
        assert_eq!(permit(&limit).await.lane, 1);
        drop(a);
        assert_eq!(permit(&limit).await.lane, 0);
    }

    #[tokio::test]
    async fn queued_calls_run_in_order() {
        let limit = Arc::new(limit(1, 1, 8));
        let first = permit(&limit).await;
        let (sender, mut order) = tokio::sync::mpsc::channel(8);
        for i in 0..4 {
            let (limit, sender) = (Arc::clone(&limit), sender.clone());
            tokio::spawn(async move {
                let permit = permit(&limit).await;
                sender.send(i).await.unwrap();
                drop(permit);
            });
            tokio::task::yield_now().await;
        }
        assert_eq!(limit.queued(), 4);
        drop(first);
        for i in 0..4 {
            assert_eq!(order.recv().await, Some(i));
        }
        assert_eq!(limit.queued(), 0);
    }

    #[tokio::test]
    async fn a_cancelled_call_leaves_the_queue() {
        let limit = Arc::new(limit(1, 1, 1));
        let first = permit(&limit).await;
        let cancelled = CancellationToken::new();
        let queued = tokio::spawn({
            let (limit, cancelled) = (Arc::clone(&limit), cancelled.clone());
            async move { limit.acquire(&cancelled).await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert_eq!(limit.queued(), 1);
        cancelled.cancel();
        assert!(queued.await.unwrap().is_err());
        assert_eq!(limit.queued(), 0);
        drop(first);
        assert_eq!(permit(&limit).await.lane, 0);
    }

    #[tokio::test]
    async fn running_calls_count_after_a_reload() {
        let before = limit(0, 1, 8);
        let (a, b) = (permit(&before).await, permit(&before).await);
        let permits = before.permits().upgrade().unwrap();
        let of = |concurrency, upstream_sessions| {
            let upstream_sessions = NonZeroUsize::new(upstream_sessions).unwrap();
            let calls = Calls {
                concurrency: NonZeroUsize::new(concurrency).into(),
                upstream_sessions,
                max_queued: 0,
            };
            ConcurrencyLimit::with_permits(Arc::clone(&permits), &calls)
        };
        let now = CancellationToken::new();
        now.cancel();
        let after = of(1, 1);
        assert!(after.acquire(&now).await.is_err(), "two run, and one may");
        drop(a);
        assert!(after.acquire(&now).await.is_err());
        drop(b);
        let c = permit(&after).await;
        // A call of the old configuration does not get a lane that its configuration does not have.
        let mut queued = Box::pin(permit(&before));
        assert!(is_pending(&mut queued).await);
        let wider = of(1, 2);
        assert_eq!(permit(&wider).await.lane, 1);
        assert!(is_pending(&mut queued).await);
        drop(c);
        assert_eq!(queued.await.lane, 0);
        let _many = [permit(&of(0, 1)).await, permit(&before).await];
    }

    /// A permit that is granted to a call that does not wait any more is returned.
    #[tokio::test]
    async fn a_permit_that_is_not_received_is_returned() {
        let limit = limit(1, 1, 8);
        let first = permit(&limit).await;
        let mut queued = Box::pin(permit(&limit));
        assert!(is_pending(&mut queued).await);
        drop(first);
        assert_eq!(limit.queued(), 0, "it is granted");
        drop(queued);
        assert_eq!(permit(&limit).await.lane, 0);
    }
}
