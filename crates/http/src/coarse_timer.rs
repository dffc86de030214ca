//! A coarse timer, shared by all requests: how long an answer may take before the head of the
//! response is sent without it.
//!
//! One task ticks for all waiting requests. A timer per request would cost a system call each,
//! because it would always be the earliest timer of the runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use steadfast_wire::Mutex;

const TICK: Duration = Duration::from_millis(5);

/// How long a request waits: whole ticks, plus the rest of the current tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// 10 ms. That is too short to be noticed and longer than most calls take.
    Short,
    /// 300 ms. Longer than almost all calls take that are not worth a job in the store.
    BeforePromotion,
}

impl Wait {
    /// Returns the shortest duration of the wait.
    pub(crate) fn duration(self) -> Duration {
        TICK * self.ticks()
    }

    const fn ticks(self) -> u32 {
        match self {
            Self::Short => 2,
            Self::BeforePromotion => 60,
        }
    }
}

/// The timer. Clones share one timer. It does not tick while no request waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoarseTimer(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The number of ticks so far.
    now: u64,
    is_ticking: bool,
    /// Whether a wait has started since the last tick.
    was_used: bool,
    /// The waiting tasks with the tick that wakes them. A slot is `None` if it is free, or if its
    /// wait has not been polled yet.
    slots: Vec<Option<(u64, Waker)>>,
    free: Vec<usize>,
}

impl CoarseTimer {
    pub(crate) fn wait(&self, wait: Wait) -> CoarseSleep {
        let mut state = self.0.lock();
        state.was_used = true;
        let slot = state.free.pop().unwrap_or_else(|| {
            state.slots.push(None);
            state.slots.len() - 1
        });
        let was_ticking = std::mem::replace(&mut state.is_ticking, true);
        let ends = state.now + u64::from(wait.ticks()) + u64::from(was_ticking);
        drop(state);
        if !was_ticking {
            tokio::spawn(TickTask { timer: self.clone(), is_over: false }.tick());
        }
        CoarseSleep { timer: self.clone(), slot, ends }
    }
}

/// Completes when the wait is over.
#[derive(Debug)]
pub(crate) struct CoarseSleep {
    timer: CoarseTimer,
    slot: usize,
    ends: u64,
}

impl Future for CoarseSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.timer.0.lock();
        // If the runtime of the ticking task was shut down, no tick will come, so the wait ends.
        if state.now >= self.ends || !state.is_ticking {
            return Poll::Ready(());
        }
        match &mut state.slots[self.slot] {
            Some((_, waker)) => waker.clone_from(context.waker()),
            none => *none = Some((self.ends, context.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for CoarseSleep {
    fn drop(&mut self) {
        let mut state = self.timer.0.lock();
        let waker = state.slots[self.slot].take();
        state.free.push(self.slot);
        drop(state);
        // Outside the lock: dropping a waker may drop a task and run arbitrary destructors.
        drop(waker);
    }
}

impl State {
    fn take_until(&mut self, now: u64) -> Vec<Waker> {
        let due = |slot: &mut Option<(u64, Waker)>| slot.take_if(|(ends, _)| *ends <= now);
        self.slots.iter_mut().filter_map(due).map(|(_, waker)| waker).collect()
    }
}

struct TickTask {
    timer: CoarseTimer,
    /// Whether this task has stopped ticking regularly, so that another one may have started.
    is_over: bool,
}

impl TickTask {
    async fn tick(mut self) {
        while !self.is_over {
            tokio::time::sleep(TICK).await;
            let mut state = self.timer.0.lock();
            state.now += 1;
            let now = state.now;
            let woken = state.take_until(now);
            state.is_ticking = std::mem::take(&mut state.was_used) || state.slots.iter().any(Option::is_some);
            let is_over = !state.is_ticking;
            drop(state);
            self.is_over = is_over;
            woken.into_iter().for_each(Waker::wake);
        }
    }
}

/// Wakes all waiting tasks if the ticking task is dropped with its runtime.
impl Drop for TickTask {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.timer.0.lock();
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
    async fn a_wait_takes_ten_to_fifteen_milliseconds() {
        let timer = CoarseTimer::default();
        let waited = |after: u64| {
            let timer = timer.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                let begun = Instant::now();
                timer.wait(Wait::Short).await;
                begun.elapsed().as_millis()
            }
        };
        // The timer ticks every 5 ms from the first wait on. It stops before the last wait, which
        // starts it anew.
        let waited = tokio::join!(waited(0), waited(3), waited(12), waited(100));
        assert_eq!(waited, (10, 12, 13, 10));
        let begun = Instant::now();
        timer.wait(Wait::BeforePromotion).await;
        assert_eq!(begun.elapsed().as_millis(), 300);
    }

    #[tokio::test(start_paused = true)]
    async fn the_timer_stops_while_no_request_waits() {
        let timer = CoarseTimer::default();
        drop(timer.wait(Wait::Short));
        tokio::time::sleep(Duration::from_secs(1)).await;
        let state = timer.0.lock();
        assert!(!state.is_ticking);
        assert!(state.now <= 2, "{state:?}");
        assert_eq!((state.slots.len(), state.free.len()), (1, 1));
    }

    /// Only a wait that is never woken reaches the limit.
    #[test]
    fn waits_end_when_the_runtime_of_the_timer_is_gone() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (first, second) = (runtime(), runtime());
        let timer = CoarseTimer::default();
        let waiting = {
            let _first = first.enter();
            timer.wait(Wait::Short)
        };
        drop(first);
        let limit = Duration::from_secs(10);
        second.block_on(async { tokio::time::timeout(limit, waiting).await }).unwrap();
        second.block_on(async { tokio::time::timeout(limit, timer.wait(Wait::Short)).await }).unwrap();
    }
}
