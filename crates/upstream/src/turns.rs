//! Whose turn it is: how many calls of a session are at the server at a time, and on which of its sessions there.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use steadfast_wire::planted;
use steadfast_wire::rpc::ErrorObject;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::config::Calls;

/// The places of one client session, as one of its links may take them.
#[derive(Debug)]
pub(crate) struct Turns {
    places: Arc<Places>,
    lanes: usize,
    max_waiting: usize,
}

/// The places themselves. Links of one session share them: when the configuration changes, calls of the link before run on.
#[derive(Debug)]
pub(crate) struct Places {
    state: Mutex<State>,
    /// Somebody has given a place back.
    freed: Notify,
}

#[derive(Debug)]
struct State {
    per_lane: usize,
    /// How many calls each lane has.
    busy: Vec<usize>,
    /// Those who wait, in the order of arrival. None of them could have a place now.
    waiting: VecDeque<Waiting>,
    /// How many have ever waited.
    count: u64,
}

#[derive(Debug)]
struct Waiting {
    no: u64,
    /// It can use the first so many lanes.
    lanes: usize,
    turn: oneshot::Sender<Turn>,
}

/// A call's place on a lane, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) lane: usize,
    places: Arc<Places>,
}

impl Turns {
    pub(crate) fn new(calls: &Calls) -> Self {
        let (lanes, per_lane) = bounds(calls);
        let state = State { per_lane, busy: vec![0; lanes], waiting: VecDeque::new(), count: 0 };
        let places = Places { state: Mutex::new(state), freed: Notify::new() };
        Self { places: Arc::new(places), lanes, max_waiting: calls.waiting }
    }

    /// The same places under other bounds. Whoever has one keeps it, and counts.
    pub(crate) fn succeeding(places: Arc<Places>, calls: &Calls) -> Self {
        let (lanes, per_lane) = bounds(calls);
        let granted = {
            let mut state = places.state();
            state.per_lane = per_lane;
            let most = state.busy.len().max(lanes);
            state.busy.resize(most, 0);
            state.grant()
        };
        places.give(granted);
        Self { places, lanes, max_waiting: calls.waiting }
    }

    /// For the next configuration, as long as anybody has or wants a place.
    pub(crate) fn places(&self) -> Weak<Places> {
        Arc::downgrade(&self.places)
    }

    /// Waits for a place. The lowest lane that has one is taken, so calls that do not overlap share a session.
    pub(crate) async fn next(&self, cancelled: &CancellationToken) -> Result<Turn, ErrorObject> {
        let places = &self.places;
        let mut waiter = {
            let mut state = places.state();
            if let Some(lane) = state.free(self.lanes).or_else(|| planted("no-turns").then_some(0)) {
                state.busy[lane] += 1;
                return Ok(Turn { lane, places: Arc::clone(places) });
            }
            if state.waiting.len() >= self.max_waiting {
                let message =
                    format!("{} calls of this session wait already. Try again later.", self.max_waiting);
                return Err(ErrorObject::internal("over_limit", message, true));
            }
            let (turn, granted) = oneshot::channel();
            let no = state.count;
            state.count += 1;
            state.waiting.push_back(Waiting { no, lanes: self.lanes, turn });
            Waiter { places, no, granted }
        };
        tokio::select! {
            biased;
            () = cancelled.cancelled() => {}
            // Nobody is forgotten while it waits.
            granted = &mut waiter.granted => if let Ok(turn) = granted {
                return Ok(turn);
            }
        }
        Err(ErrorObject::internal("cancelled", "The call was cancelled before it was sent.", true))
    }

    /// Waits until nobody has or wants a place.
    pub(crate) async fn end(&self) {
        let mut freed = pin!(self.places.freed.notified());
        loop {
            freed.as_mut().enable();
            if self.places.state().is_empty() {
                return;
            }
            freed.as_mut().await;
            freed.set(self.places.freed.notified());
        }
    }

    /// Calls that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.places.state().waiting.len()
    }
}

/// How many lanes there are, and how many calls each takes.
fn bounds(calls: &Calls) -> (usize, usize) {
    let lanes = calls.spread.get();
    let per_lane = match (calls.concurrency, lanes) {
        // Any number at a time.
        (None, 1) => usize::MAX,
        (None, _) => 1,
        (Some(concurrency), _) => concurrency.get(),
    };
    (lanes, per_lane)
}

impl Places {
    /// A place is free again.
    fn free(self: &Arc<Self>, lane: usize) {
        let granted = {
            let mut state = self.state();
            state.busy[lane] -= 1;
            state.grant()
        };
        self.give(granted);
        self.freed.notify_waiters();
    }

    /// Not under the lock: whoever does not wait any more gives its place back at once.
    fn give(self: &Arc<Self>, granted: Vec<(usize, oneshot::Sender<Turn>)>) {
        for (lane, waiting) in granted {
            drop(waiting.send(Turn { lane, places: Arc::clone(self) }));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.busy.iter().all(|calls| *calls == 0)
    }

    /// The lowest of so many lanes that has a place.
    fn free(&self, lanes: usize) -> Option<usize> {
        self.busy.iter().take(lanes).position(|calls| *calls < self.per_lane)
    }

    /// Takes every place that somebody waits for. Whoever waited longest is first.
    fn grant(&mut self) -> Vec<(usize, oneshot::Sender<Turn>)> {
        let mut granted = Vec::new();
        let next = |state: &Self| {
            let mut waiting = state.waiting.iter().enumerate();
            waiting.find_map(|(at, waiting)| Some((at, state.free(waiting.lanes)?)))
        };
        while let Some((at, lane)) = next(self) {
            let Some(waiting) = self.waiting.remove(at) else { break };
            self.busy[lane] += 1;
            granted.push((lane, waiting.turn));
        }
        granted
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.places.free(self.lane);
    }
}

/// Somebody who waits, until this is dropped.
struct Waiter<'a> {
    places: &'a Places,
    no: u64,
    /// If it is granted and not taken, it is free again.
    granted: oneshot::Receiver<Turn>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.places.state().waiting.retain(|waiting| waiting.no != self.no);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;
    use std::pin::Pin;
    use std::task::Poll;

    use super::*;

    fn turns(concurrency: usize, spread: usize, waiting: usize) -> Turns {
        let spread = NonZeroUsize::new(spread).unwrap();
        Turns::new(&Calls { concurrency: NonZeroUsize::new(concurrency), spread, waiting })
    }

    /// Whether it waits when it is asked once.
    async fn is_pending(work: &mut (impl Future + Unpin)) -> bool {
        std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut *work).poll(context).is_pending())).await
    }

    async fn lane(turns: &Turns) -> Turn {
        turns.next(&CancellationToken::new()).await.unwrap()
    }

    #[tokio::test]
    async fn lanes_fill_from_the_lowest() {
        let turns = turns(0, 3, 0);
        let (a, b, c) = (lane(&turns).await, lane(&turns).await, lane(&turns).await);
        assert_eq!((a.lane, b.lane, c.lane), (0, 1, 2));
        assert!(turns.next(&CancellationToken::new()).await.is_err(), "nobody may wait");
        drop(b);
        assert_eq!(lane(&turns).await.lane, 1);
        drop(a);
        assert_eq!(lane(&turns).await.lane, 0);
    }

    #[tokio::test]
    async fn whoever_waits_is_served_in_order() {
        let turns = Arc::new(turns(1, 1, 8));
        let first = lane(&turns).await;
        let (sender, mut order) = tokio::sync::mpsc::channel(8);
        for i in 0..4 {
            let (turns, sender) = (Arc::clone(&turns), sender.clone());
            tokio::spawn(async move {
                let turn = lane(&turns).await;
                sender.send(i).await.unwrap();
                drop(turn);
            });
            tokio::task::yield_now().await;
        }
        assert_eq!(turns.waiting(), 4);
        drop(first);
        for i in 0..4 {
            assert_eq!(order.recv().await, Some(i));
        }
        assert_eq!(turns.waiting(), 0);
    }

    #[tokio::test]
    async fn a_cancelled_call_leaves_the_queue() {
        let turns = Arc::new(turns(1, 1, 1));
        let first = lane(&turns).await;
        let cancelled = CancellationToken::new();
        let waiting = tokio::spawn({
            let (turns, cancelled) = (Arc::clone(&turns), cancelled.clone());
            async move { turns.next(&cancelled).await.map(drop) }
        });
        tokio::task::yield_now().await;
        assert_eq!(turns.waiting(), 1);
        cancelled.cancel();
        assert!(waiting.await.unwrap().is_err());
        assert_eq!(turns.waiting(), 0);
        drop(first);
        assert_eq!(lane(&turns).await.lane, 0);
    }

    #[tokio::test]
    async fn other_bounds_count_those_who_are_there() {
        let before = turns(0, 1, 8);
        let (a, b) = (lane(&before).await, lane(&before).await);
        let places = before.places().upgrade().unwrap();
        let of = |concurrency, spread| {
            let spread = NonZeroUsize::new(spread).unwrap();
            let calls = Calls { concurrency: NonZeroUsize::new(concurrency), spread, waiting: 0 };
            Turns::succeeding(Arc::clone(&places), &calls)
        };
        let now = CancellationToken::new();
        now.cancel();
        let after = of(1, 1);
        assert!(after.next(&now).await.is_err(), "two are there, and one may be");
        drop(a);
        assert!(after.next(&now).await.is_err());
        drop(b);
        let c = lane(&after).await;
        // A link of before waits, and does not get a lane that it does not have.
        let mut waiting = Box::pin(lane(&before));
        assert!(is_pending(&mut waiting).await);
        let wider = of(1, 2);
        assert_eq!(lane(&wider).await.lane, 1);
        assert!(is_pending(&mut waiting).await);
        drop(c);
        assert_eq!(waiting.await.lane, 0);
        let _many = [lane(&of(0, 1)).await, lane(&before).await];
    }

    /// A place that is granted to somebody who does not wait any more is not lost.
    #[tokio::test]
    async fn a_place_that_nobody_takes_is_free() {
        let turns = turns(1, 1, 8);
        let first = lane(&turns).await;
        let mut waiting = Box::pin(lane(&turns));
        assert!(is_pending(&mut waiting).await);
        drop(first);
        assert_eq!(turns.waiting(), 0, "it is granted");
        drop(waiting);
        assert_eq!(lane(&turns).await.lane, 0);
    }
}
