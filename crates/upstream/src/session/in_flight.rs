//! The calls of a client session that run at the server. After a configuration reload the new
//! client session shares this list with the old one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_client::RequestId;
use steadfast_engine::CallHandle;
use steadfast_wire::Mutex;

#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// How many upstream sessions the client session has had.
    session_count: AtomicU64,
    /// By the number of the upstream session and the request id there.
    calls: Mutex<BTreeMap<(u64, i64), CallHandle>>,
}

impl InFlight {
    /// Returns a number for a new upstream session, unique within the client session.
    pub(crate) fn next_session_no(&self) -> u64 {
        self.session_count.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds a call under its request id at the server, until the returned guard is dropped.
    pub(crate) fn register(
        self: &Arc<Self>,
        session_no: u64,
        id: &RequestId,
        call: &CallHandle,
    ) -> InFlightGuard {
        let key = (session_no, number(id));
        self.calls.lock().insert(key, call.clone());
        InFlightGuard { in_flight: Arc::clone(self), key }
    }

    pub(crate) fn find(&self, session_no: u64, id: &RequestId) -> Option<CallHandle> {
        self.calls.lock().get(&(session_no, number(id))).cloned()
    }

    /// Returns the newest call of an upstream session, or of any upstream session if it has none.
    /// The client most likely reads the stream of that call.
    pub(crate) fn newest(&self, session_no: u64) -> Option<CallHandle> {
        let calls = self.calls.lock();
        let here = calls.range((session_no, i64::MIN)..=(session_no, i64::MAX)).next_back();
        here.or_else(|| calls.last_key_value()).map(|(_, call)| call.clone())
    }
}

/// Removes a call from the list when it is dropped.
pub(crate) struct InFlightGuard {
    in_flight: Arc<InFlight>,
    key: (u64, i64),
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let call = self.in_flight.calls.lock().remove(&self.key);
        drop(call);
    }
}

/// Returns the numeric form of a request id. All ids that the gateway sends are numbers.
fn number(id: &RequestId) -> i64 {
    match id {
        RequestId::Number(number) => *number,
        _ => i64::MIN,
    }
}
