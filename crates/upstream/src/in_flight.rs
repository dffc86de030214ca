//! The calls of a session that are at the server, wherever they began: links of a later configuration share them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_client::RequestId;
use steadfast_engine::CallHandle;

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// How many seats there were.
    seats: AtomicU64,
    /// By seat and by their id there.
    calls: Mutex<BTreeMap<(u64, i64), CallHandle>>,
}

impl InFlight {
    /// A number for a seat that no other one of the session has.
    pub(crate) fn seat(&self) -> u64 {
        self.seats.fetch_add(1, Ordering::Relaxed)
    }

    /// Notes a call under its id at the server, for as long as what this gives is kept.
    pub(crate) fn enter(self: &Arc<Self>, seat: u64, id: &RequestId, call: &CallHandle) -> AtServer {
        let key = (seat, number(id));
        self.calls().insert(key, call.clone());
        AtServer { in_flight: Arc::clone(self), key }
    }

    pub(crate) fn find(&self, seat: u64, id: &RequestId) -> Option<CallHandle> {
        self.calls().get(&(seat, number(id))).cloned()
    }

    /// The newest call of a seat, or of any if it has none: some stream that is being read.
    pub(crate) fn newest(&self, seat: u64) -> Option<CallHandle> {
        let calls = self.calls();
        let here = calls.range((seat, i64::MIN)..=(seat, i64::MAX)).next_back();
        here.or_else(|| calls.last_key_value()).map(|(_, call)| call.clone())
    }

    fn calls(&self) -> MutexGuard<'_, BTreeMap<(u64, i64), CallHandle>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call's entry among those at the server.
pub(crate) struct AtServer {
    in_flight: Arc<InFlight>,
    key: (u64, i64),
}

impl Drop for AtServer {
    fn drop(&mut self) {
        let call = self.in_flight.calls().remove(&self.key);
        drop(call);
    }
}

/// The number of an id of ours: all of them are numbers.
fn number(id: &RequestId) -> i64 {
    match id {
        RequestId::Number(number) => *number,
        _ => i64::MIN,
    }
}
