//! The work of this node for one session: its calls, its connections, its server requests.

mod begin_and_attach;
mod forwarded;
mod reconcile_mark;
mod unstored_answers;
mod updates;
mod work;

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use steadfast_session::{CallNo, ConnNo, Facts, SessionId, StreamNo, Time};

use crate::calls::NotificationQueue;
use crate::delivery::Tail;
use crate::server_requests::ServerRequestQueue;
use crate::upkeep::SingleFlight;
use work::{MAX_DELIVERED, Work};

pub(crate) use work::RunningCall;

/// The work of this node for one session.
#[derive(Debug)]
pub struct LiveSession {
    facts: Arc<Facts>,
    /// Part of each event id. An event id with another tag belongs to another session.
    tag: u32,
    last_used: AtomicU64,
    /// A value of the backend ([`LiveSession::cached`]).
    cached: OnceLock<Arc<dyn Any + Send + Sync>>,
    work: Mutex<Work>,
    server_requests: Mutex<ServerRequestQueue>,
    /// Held while server requests are taken from the queue and sent to the store, so that they keep
    /// their order. Signals of the store arrive while this lock is held and never take it.
    sending_server_requests: Mutex<()>,
    notifications: Mutex<NotificationQueue>,
    pub(crate) store_poll: SingleFlight,
    /// The store may hold something for this node that the node does not know.
    needs_reconcile: AtomicBool,
    /// Other nodes may forward calls to this node.
    expects_forwarded_calls: AtomicBool,
    /// A client of this node may wait for a call that another node has to start.
    awaits_remote_start: AtomicBool,
}

impl LiveSession {
    pub(crate) fn new(facts: Arc<Facts>) -> Self {
        let (tag, last_used) = (facts.id.tag(), AtomicU64::new(facts.opened_at.0));
        Self {
            facts,
            tag,
            last_used,
            cached: OnceLock::new(),
            work: Mutex::default(),
            server_requests: Mutex::default(),
            sending_server_requests: Mutex::default(),
            notifications: Mutex::default(),
            store_poll: SingleFlight::default(),
            needs_reconcile: AtomicBool::new(false),
            expects_forwarded_calls: AtomicBool::new(false),
            awaits_remote_start: AtomicBool::new(false),
        }
    }

    pub fn id(&self) -> SessionId {
        self.facts.id
    }

    pub fn facts(&self) -> &Arc<Facts> {
        &self.facts
    }

    pub fn tag(&self) -> u32 {
        self.tag
    }

    /// Returns a value that the backend derives from the session's facts. Only the first type that
    /// is requested is cached.
    pub(crate) fn cached<T: Send + Sync + 'static>(&self, make: impl FnOnce(&Facts) -> T) -> Arc<T> {
        if let Some(kept) = self.cached.get()
            && let Ok(kept) = Arc::clone(kept).downcast()
        {
            return kept;
        }
        let made = Arc::new(make(&self.facts));
        // A concurrent request may have cached its value first, or the cached value has another
        // type. Either way `made` is valid.
        let _ = self.cached.set(Arc::clone(&made) as Arc<dyn Any + Send + Sync>);
        made
    }

    pub(crate) fn mark_used(&self, now: Time) {
        self.last_used.fetch_max(now.0, Ordering::Relaxed);
    }

    pub(crate) fn is_unused_since(&self, before: Time) -> bool {
        let work = self.work();
        self.last_used.load(Ordering::Relaxed) < before.0
            && work.tails.is_empty()
            && work.calls.is_empty()
            && work.begins_in_flight == 0
            && work.attaches_in_flight == 0
            && self.server_requests().is_empty()
            && !self.needs_reconcile.load(Ordering::SeqCst)
            && !self.expects_forwarded_calls.load(Ordering::SeqCst)
            && !self.awaits_remote_start()
    }

    pub(crate) fn remove_tail(&self, stream: StreamNo, connection: ConnNo) {
        let mut work = self.work();
        if work.tails.get(&stream).is_some_and(|(reader, _)| *reader == connection) {
            work.tails.remove(&stream);
        }
    }

    /// A connection has received a stream completely.
    pub(crate) fn stream_delivered(&self, stream: StreamNo, connection: ConnNo) {
        self.remove_tail(stream, connection);
        let mut work = self.work();
        // Beyond the bound the store drops the stream when its retention ends.
        if work.delivered_streams.len() < MAX_DELIVERED {
            work.delivered_streams.push(stream);
        }
    }

    pub(crate) fn remove_call(&self, call: CallNo) -> Option<RunningCall> {
        let mut work = self.work();
        work.unstored_answers.remove(&call);
        let running = work.calls.remove(&call);
        drop(work);
        self.server_requests().call_ended(call);
        running
    }

    pub(crate) fn overdue_calls(&self, now: Time) -> Vec<(CallNo, RunningCall)> {
        let work = self.work();
        work.calls
            .iter()
            .filter(|(no, call)| call.deadline <= now && !work.unstored_answers.contains_key(no))
            .map(|(no, call)| (*no, call.clone()))
            .collect()
    }

    pub(crate) fn tail(&self, stream: StreamNo) -> Option<Arc<Tail>> {
        self.work().tails.get(&stream).map(|(_, tail)| Arc::clone(tail))
    }

    pub(crate) fn tails(&self) -> Vec<Arc<Tail>> {
        self.work().tails.values().map(|(_, tail)| Arc::clone(tail)).collect()
    }

    /// Ends the connections whose stream gets no events from calls of this node, if their clients
    /// can reconnect.
    pub(crate) fn disconnect_idle_readers(&self) {
        let work = self.work();
        let fed: BTreeSet<StreamNo> = work.calls.values().map(|call| call.stream).collect();
        for (_, (_, tail)) in work.tails.iter().filter(|(stream, _)| !fed.contains(stream)) {
            if tail.can_reconnect() {
                tail.request_reconnect();
            }
        }
    }

    /// Returns true if this node has work here that other nodes can end or answer, or expects such
    /// work.
    pub(crate) fn is_busy(&self) -> bool {
        let work = self.work();
        !work.calls.is_empty()
            || work.begins_in_flight > 0
            || !self.server_requests().is_empty()
            || self.expects_forwarded_calls.load(Ordering::SeqCst)
    }

    /// Returns true if a connection to this node reads a stream of the session, or is about to.
    pub(crate) fn has_readers(&self) -> bool {
        let work = self.work();
        !work.tails.is_empty() || work.attaches_in_flight > 0
    }

    pub(crate) fn is_running(&self, call: CallNo) -> bool {
        self.work().calls.contains_key(&call)
    }

    pub(crate) fn running_calls(&self) -> Vec<CallNo> {
        self.work().calls.keys().copied().collect()
    }

    /// Asks the backend to end all calls. Each of them still gets its answer.
    pub(crate) fn cancel_calls(&self) {
        self.work().calls.values().for_each(|call| call.cancel.cancel());
    }

    /// Cancels calls that were ended by another task or node.
    pub(crate) fn stop_calls(&self, calls: &[CallNo]) {
        let mut work = self.work();
        for call in calls {
            work.stop(*call);
        }
        drop(work);
        let mut server_requests = self.server_requests();
        calls.iter().for_each(|call| server_requests.call_ended(*call));
    }

    /// The session has ended: cancels everything here. Connections read the remaining events from
    /// the store.
    pub(crate) fn end(&self) {
        self.stop_calls(&self.running_calls());
        self.server_requests().session_ended();
        self.tails().iter().for_each(|tail| tail.mark_incomplete());
    }

    pub(crate) fn server_requests(&self) -> MutexGuard<'_, ServerRequestQueue> {
        self.server_requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sending_server_requests(&self) -> MutexGuard<'_, ()> {
        self.sending_server_requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notifications(&self) -> MutexGuard<'_, NotificationQueue> {
        self.notifications.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
