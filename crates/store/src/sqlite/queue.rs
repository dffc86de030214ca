//! A bounded queue from asynchronous callers to the threads of the store.

use std::collections::VecDeque;
use std::sync::{Condvar, PoisonError};

use steadfast_wire::Mutex;
use tokio::sync::Semaphore;

/// Jobs for one or more threads. A caller that finds the queue full waits without blocking a
/// thread.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    /// One permit for each job that the queue can still take.
    space: Semaphore,
}

#[derive(Debug)]
struct State<T> {
    jobs: VecDeque<T>,
    closed: bool,
    /// Threads that wait for a job. If there is none, no thread is woken: a busy thread checks the
    /// queue again by itself.
    idle: usize,
}

/// Why a job was not queued.
#[derive(Debug)]
pub(super) enum PushError<T> {
    Full(T),
    Closed,
}

impl<T> Queue<T> {
    pub(super) fn new(bound: usize) -> Self {
        let state = State { jobs: VecDeque::new(), closed: false, idle: 0 };
        Self { state: Mutex::new(state), filled: Condvar::new(), space: Semaphore::new(bound) }
    }

    /// Adds a job. Fails if the queue is full or closed.
    pub(super) fn push(&self, job: T) -> Result<(), PushError<T>> {
        match self.space.try_acquire() {
            Ok(permit) => permit.forget(),
            Err(tokio::sync::TryAcquireError::NoPermits) => return Err(PushError::Full(job)),
            Err(tokio::sync::TryAcquireError::Closed) => return Err(PushError::Closed),
        }
        self.put(job)
    }

    /// Waits until the queue has space. Fails once the queue is closed.
    pub(super) async fn push_when_possible(&self, job: T) -> Result<(), PushError<T>> {
        match self.space.acquire().await {
            Ok(permit) => permit.forget(),
            Err(_) => return Err(PushError::Closed),
        }
        self.put(job)
    }

    fn put(&self, job: T) -> Result<(), PushError<T>> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(PushError::Closed);
        }
        state.jobs.push_back(job);
        let wake = state.idle > 0;
        drop(state);
        if wake {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits for a job, then moves up to `most` jobs into `jobs`. Returns false once the queue is
    /// closed and empty.
    pub(super) fn take(&self, jobs: &mut Vec<T>, most: usize) -> bool {
        let mut state = self.state.lock();
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
        self.space.add_permits(count);
        true
    }

    /// Closes the queue. Threads still get the jobs that are queued.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.space.close();
        self.filled.notify_all();
    }
}

/// Closes a queue when its thread ends, and drops the jobs in it, so that their callers get an
/// error. After an orderly end the queue is empty.
pub(super) struct CloseOnDrop<'q, T>(pub(super) &'q Queue<T>);

impl<T> Drop for CloseOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.close();
        let jobs = std::mem::take(&mut self.0.state.lock().jobs);
        drop(jobs);
    }
}
