//! A lock for polls of one session: concurrent requests for a poll share the poll of one task.

use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_wire::Mutex;

/// Ensures that one task at a time polls a session, and that it polls again if another task asks
/// meanwhile.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight {
    state: Mutex<Flight>,
    /// The last poll may have missed operations that were in flight.
    needs_repeat: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Flight {
    #[default]
    Idle,
    Running,
    /// A task polls and must poll again.
    RunAgain,
}

impl SingleFlight {
    /// Returns the guard for polling. `None` if another task has it; that task then polls again.
    pub(crate) fn start(&self) -> Option<SingleFlightGuard<'_>> {
        let mut state = self.state.lock();
        if *state == Flight::Idle {
            *state = Flight::Running;
            return Some(SingleFlightGuard(Some(self)));
        }
        *state = Flight::RunAgain;
        None
    }

    pub(crate) fn needs_repeat(&self) -> bool {
        self.needs_repeat.load(Ordering::SeqCst)
    }

    pub(crate) fn set_needs_repeat(&self, needs_repeat: bool) {
        self.needs_repeat.store(needs_repeat, Ordering::SeqCst);
    }
}

/// The right to poll. Dropping it ends the flight.
#[derive(Debug)]
pub(crate) struct SingleFlightGuard<'a>(Option<&'a SingleFlight>);

impl SingleFlightGuard<'_> {
    /// Keeps the guard if another task asked for a poll meanwhile. Otherwise releases it and
    /// returns `None`.
    pub(crate) fn finish_or_repeat(mut self) -> Option<Self> {
        let flight = self.0.take()?;
        let mut state = flight.state.lock();
        if *state == Flight::RunAgain {
            *state = Flight::Running;
            drop(state);
            return Some(SingleFlightGuard(Some(flight)));
        }
        *state = Flight::Idle;
        None
    }
}

impl Drop for SingleFlightGuard<'_> {
    fn drop(&mut self) {
        if let Some(flight) = self.0 {
            *flight.state.lock() = Flight::Idle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_polls_and_polls_again_for_the_others() {
        let store_poll = SingleFlight::default();
        let guard = store_poll.start().unwrap();
        assert!(store_poll.start().is_none() && store_poll.start().is_none());
        let guard = guard.finish_or_repeat().unwrap();
        assert!(guard.finish_or_repeat().is_none());
        drop(store_poll.start().unwrap());
        assert!(store_poll.start().is_some(), "dropping the guard ends the flight");
    }
}
