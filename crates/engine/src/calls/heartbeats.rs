//! Heartbeats: what keeps the client of a silent call waiting.
//!
//! Some clients give up a call if they hear no progress for a while. The backend registers such a
//! call, and the sweeper tells the backend what time it is.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use steadfast_session::Time;

use crate::engine::Engine;

/// A call that may need heartbeats. It is told the time until it is dropped.
pub trait Heartbeat: Send + Sync + 'static {
    /// Sends a heartbeat if it is time. Must not block.
    fn tick(&self, now: Time);
}

/// The calls that may need heartbeats. One entry per call in flight, and until the next sweep those
/// that have ended.
#[derive(Default)]
pub(crate) struct Heartbeats(Mutex<Vec<Weak<dyn Heartbeat>>>);

impl Heartbeats {
    pub(crate) fn tick(&self, now: Time) {
        let mut alive: Vec<Arc<dyn Heartbeat>> = Vec::new();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|call| {
            let call = call.upgrade();
            let is_alive = call.is_some();
            alive.extend(call);
            is_alive
        });
        alive.iter().for_each(|call| call.tick(now));
    }
}

impl Engine {
    /// Tells a call what time it is, once per sweep, until it is dropped.
    pub fn register_heartbeat(&self, call: Weak<dyn Heartbeat>) {
        self.heartbeats.0.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}
