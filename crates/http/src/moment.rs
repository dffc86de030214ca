//! A moment: how long an answer may take before the head of its response goes without it. One clock ticks for all who wait: a timer
//! for each request would cost a system call each, since it is sooner than whatever the runtime waits for.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const TICK: Duration = Duration::from_millis(5);

/// A moment is 10 ms, less than anybody notices and more than most calls take; and whatever is left of the tick that it begins in.
const TICKS: u64 = 2;

/// The clock. Clones are the same one. It stands still while nobody looks at it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moments(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// How often it has ticked.
    now: u64,
    is_ticking: bool,
    /// Somebody has begun to wait since it ticked last.
    is_used: bool,
    /// Who is to be woken at which tick. A place is free, or somebody has it and need not be woken.
    places: Vec<Option<(u64, Waker)>>,
    free: Vec<usize>,
}

impl Moments {
    /// A moment from now on.
    pub(crate) fn begin(&self) -> Moment {
        let mut state = self.state();
        state.is_used = true;
        let place = state.free.pop().unwrap_or_else(|| {
            state.places.push(None);
            state.places.len() - 1
        });
        let was_ticking = std::mem::replace(&mut state.is_ticking, true);
        let ends = state.now + TICKS + u64::from(was_ticking);
        drop(state);
        if !was_ticking {
            tokio::spawn(Ticking { moments: self.clone(), is_over: false }.tick());
        }
        Moment { moments: self.clone(), place, ends }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ready when the moment is over.
#[derive(Debug)]
pub(crate) struct Moment {
    moments: Moments,
    place: usize,
    ends: u64,
}

impl Future for Moment {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.moments.state();
        // A clock that was stopped, with the runtime that it was on, must not keep anybody waiting.
        if state.now >= self.ends || !state.is_ticking {
            return Poll::Ready(());
        }
        match &mut state.places[self.place] {
            Some((_, waker)) => waker.clone_from(context.waker()),
            none => *none = Some((self.ends, context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        let mut state = self.moments.state();
        let waker = state.places[self.place].take();
        state.free.push(self.place);
        drop(state);
        // It may be the last that holds a task, whose destructor is anybody's code.
        drop(waker);
    }
}

impl State {
    fn take_until(&mut self, now: u64) -> Vec<Waker> {
        let due = |place: &mut Option<(u64, Waker)>| place.take_if(|(ends, _)| *ends <= now);
        self.places.iter_mut().filter_map(due).map(|(_, waker)| waker).collect()
    }
}

/// What makes the clock tick.
struct Ticking {
    moments: Moments,
    /// The clock stands still, or ticks because of somebody else.
    is_over: bool,
}

impl Ticking {
    async fn tick(mut self) {
        while !self.is_over {
            tokio::time::sleep(TICK).await;
            let mut state = self.moments.state();
            state.now += 1;
            let now = state.now;
            let woken = state.take_until(now);
            state.is_ticking = std::mem::take(&mut state.is_used) || state.places.iter().any(Option::is_some);
            let is_over = !state.is_ticking;
            drop(state);
            self.is_over = is_over;
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

/// With its runtime, too.
impl Drop for Ticking {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.moments.state();
        state.is_ticking = false;
        let woken = state.take_until(u64::MAX);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_moment_is_ten_milliseconds_or_a_little_more() {
        let moments = Moments::default();
        let waited = |after: u64| {
            let moments = moments.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                let begun = Instant::now();
                moments.begin().await;
                begun.elapsed().as_millis()
            }
        };
        // The clock ticks every 5 ms from the first one on; and anew from the last one on, since nobody waited meanwhile.
        let waited = tokio::join!(waited(0), waited(3), waited(12), waited(100));
        assert_eq!(waited, (10, 12, 13, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_stands_still_while_nobody_waits() {
        let moments = Moments::default();
        drop(moments.begin());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let state = moments.state();
        assert!(!state.is_ticking);
        assert!(state.now <= 2, "{state:?}");
        assert_eq!((state.places.len(), state.free.len()), (1, 1));
    }

    /// Only a clock that was forgotten gets near the limit.
    #[test]
    fn a_clock_whose_runtime_is_gone_keeps_nobody_waiting() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (first, second) = (runtime(), runtime());
        let moments = Moments::default();
        let waiting = {
            let _first = first.enter();
            moments.begin()
        };
        drop(first);
        let limit = Duration::from_secs(10);
        second.block_on(async { tokio::time::timeout(limit, waiting).await }).unwrap();
        second.block_on(async { tokio::time::timeout(limit, moments.begin()).await }).unwrap();
    }
}
