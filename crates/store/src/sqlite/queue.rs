//! A bounded queue from asynchronous callers to the store's threads.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;

/// Jobs for one or more threads. Whoever finds it full waits without blocking a thread.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    room: Semaphore,
}

#[derive(Debug)]
struct State<T> {
    jobs: VecDeque<T>,
    closed: bool,
    /// Threads that wait for a job. Nobody is woken while none does: a busy writer looks again by itself.
    idle: usize,
}

/// Why a job was not taken.
#[derive(Debug)]
pub(super) enum Refused<T> {
    Full(T),
    Closed,
}

impl<T> Queue<T> {
    pub(super) fn new(bound: usize) -> Self {
        let state = State { jobs: VecDeque::new(), closed: false, idle: 0 };
        Self { state: Mutex::new(state), filled: Condvar::new(), room: Semaphore::new(bound) }
    }

    pub(super) fn push(&self, job: T) -> Result<(), Refused<T>> {
        match self.room.try_acquire() {
            Ok(permit) => permit.forget(),
            Err(tokio::sync::TryAcquireError::NoPermits) => return Err(Refused::Full(job)),
            Err(tokio::sync::TryAcquireError::Closed) => return Err(Refused::Closed),
        }
        self.put(job)
    }

    /// Waits for room. `Err` once the queue is closed.
    pub(super) async fn push_when_there_is_room(&self, job: T) -> Result<(), Refused<T>> {
        match self.room.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => return Err(Refused::Closed),
        }
        self.put(job)
    }

    fn put(&self, job: T) -> Result<(), Refused<T>> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Closed);
        }
        state.jobs.push_back(job);
        let wake = state.idle > 0;
        drop(state);
        if wake {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Moves up to `most` jobs into `jobs`, waiting for the first. `false` once the queue is closed and empty.
    pub(super) fn take(&self, jobs: &mut Vec<T>, most: usize) -> bool {
        let mut state = self.lock();
        while state.jobs.is_empty() {
            if state.closed {
                return false;
            }
            state.idle += 1;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
        let count = state.jobs.len().min(most);
        jobs.extend(state.jobs.drain(..count));
        drop(state);
        self.room.add_permits(count);
        true
    }

    /// Takes no more jobs. Those that are queued are still handed out.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.room.close();
        self.filled.notify_all();
    }

    /// No code that can panic runs under the lock.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes a queue when its thread ends, and drops what is in it: whoever waits learns that nobody will answer.
/// After an orderly end there is nothing left to drop.
pub(super) struct Abandon<'q, T>(pub(super) &'q Queue<T>);

impl<T> Drop for Abandon<'_, T> {
    fn drop(&mut self) {
        self.0.close();
        let jobs = std::mem::take(&mut self.0.lock().jobs);
        drop(jobs);
    }
}
