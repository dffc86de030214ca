//! A mutex that stays usable after a panic.

use std::sync::{MutexGuard, PoisonError};

/// A mutex whose lock ignores that a thread panicked while it held the lock. No code of steadfast
/// panics between two changes that belong together.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
