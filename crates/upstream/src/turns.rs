//! Whose turn it is: how many calls of a session are at the server at a time, and on which of its sessions there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_wire::rpc::ErrorObject;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::config::Calls;

/// The places of one client session.
#[derive(Debug)]
pub(crate) struct Turns {
    /// `None`: any number at a time, on one lane.
    bounded: Option<Arc<Bounded>>,
}

#[derive(Debug)]
struct Bounded {
    /// One permit for each place of each lane. Whoever waits gets it in the order of arrival.
    places: Arc<Semaphore>,
    per_lane: usize,
    waiting: AtomicUsize,
    max_waiting: usize,
    /// How many calls each lane has.
    busy: Mutex<Vec<usize>>,
}

/// A call's place on a lane, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) lane: usize,
    held: Option<(Arc<Bounded>, OwnedSemaphorePermit)>,
}

impl Turns {
    pub(crate) fn new(calls: &Calls) -> Self {
        let lanes = calls.spread.get();
        let per_lane = match (calls.concurrency, lanes) {
            (None, 1) => return Self { bounded: None },
            (None, _) => 1,
            (Some(concurrency), _) => concurrency.get(),
        };
        let places = (lanes.saturating_mul(per_lane)).min(Semaphore::MAX_PERMITS);
        let bounded = Bounded {
            places: Arc::new(Semaphore::new(places)),
            per_lane,
            waiting: AtomicUsize::new(0),
            max_waiting: calls.waiting,
            busy: Mutex::new(vec![0; lanes]),
        };
        Self { bounded: Some(Arc::new(bounded)) }
    }

    /// Waits for a place. The lowest lane that has one is taken, so calls that do not overlap share a session.
    pub(crate) async fn next(&self, cancelled: &CancellationToken) -> Result<Turn, ErrorObject> {
        let Some(bounded) = &self.bounded else { return Ok(Turn { lane: 0, held: None }) };
        let permit = match Arc::clone(&bounded.places).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => bounded.wait(cancelled).await?,
        };
        let lane = bounded.enter();
        Ok(Turn { lane, held: Some((Arc::clone(bounded), permit)) })
    }

    /// Calls that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.bounded.as_ref().map_or(0, |bounded| bounded.waiting.load(Ordering::Relaxed))
    }
}

impl Bounded {
    async fn wait(&self, cancelled: &CancellationToken) -> Result<OwnedSemaphorePermit, ErrorObject> {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= self.max_waiting {
            let message =
                format!("{} calls of this session wait already. Try again later.", self.max_waiting);
            return Err(ErrorObject::internal("over_limit", message, true));
        }
        tokio::select! {
            biased;
            () = cancelled.cancelled() => {}
            permit = Arc::clone(&self.places).acquire_owned() => {
                // The semaphore is never closed.
                if let Ok(permit) = permit {
                    return Ok(permit);
                }
            }
        }
        Err(ErrorObject::internal("cancelled", "The call was cancelled before it was sent.", true))
    }

    fn enter(&self) -> usize {
        let mut busy = self.busy();
        // There are as many permits as places, so one is free.
        let lane = busy.iter().position(|calls| *calls < self.per_lane).unwrap_or(0);
        busy[lane] += 1;
        lane
    }

    fn busy(&self) -> MutexGuard<'_, Vec<usize>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // The place is free before its permit is.
        if let Some((bounded, _)) = &self.held {
            bounded.busy()[self.lane] -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    fn turns(concurrency: usize, spread: usize, waiting: usize) -> Turns {
        let spread = NonZeroUsize::new(spread).unwrap();
        Turns::new(&Calls { concurrency: NonZeroUsize::new(concurrency), spread, waiting })
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
}
