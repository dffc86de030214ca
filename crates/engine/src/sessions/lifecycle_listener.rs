//! Lifecycle listeners: callbacks for the opening, detaching, restoring and closing of sessions.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use steadfast_session::{CloseReason, Facts, Lifecycle};

use crate::internal_sessions::is_internal;

/// Receives the lifecycle events of sessions, in order, each once.
///
/// Each listener runs on its own thread, so it may block or panic without effect on the engine. A
/// listener that falls behind by more than [`Options::listener_backlog`](crate::Options) misses
/// events; the engine counts and logs them.
pub trait LifecycleListener: Send + 'static {
    fn on_event(&mut self, event: SessionEvent);
}

impl<F: FnMut(SessionEvent) + Send + 'static> LifecycleListener for F {
    fn on_event(&mut self, event: SessionEvent) {
        self(event);
    }
}

/// A lifecycle event of a session.
#[derive(Clone, Debug)]
pub struct SessionEvent {
    pub session: Arc<Facts>,
    pub kind: SessionEventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEventKind {
    Opened,
    /// The last connection broke, and the grace time began.
    Detached,
    /// The client reconnected within the grace time.
    Reattached,
    /// This node serves a session for the first time that another node opened.
    Restored,
    /// The upstream server had lost its session, and the gateway initialized a new one.
    FailedOver,
    Closed(CloseReason),
}

impl From<Lifecycle> for SessionEventKind {
    fn from(event: Lifecycle) -> Self {
        match event {
            Lifecycle::Opened => Self::Opened,
            Lifecycle::Detached => Self::Detached,
            Lifecycle::Reattached => Self::Reattached,
            Lifecycle::Closed(reason) => Self::Closed(reason),
        }
    }
}

#[derive(Debug)]
pub(crate) struct LifecycleListeners {
    senders: Vec<SyncSender<SessionEvent>>,
    missed: AtomicU64,
}

impl LifecycleListeners {
    pub(crate) fn start(listeners: Vec<Box<dyn LifecycleListener>>, backlog: usize) -> Self {
        let senders = listeners
            .into_iter()
            .filter_map(|mut listener| {
                let (sender, events) = sync_channel::<SessionEvent>(backlog);
                let thread = std::thread::Builder::new().name("steadfast-listener".into());
                let started = thread.spawn(move || {
                    for event in events {
                        let kind = event.kind;
                        if std::panic::catch_unwind(AssertUnwindSafe(|| listener.on_event(event))).is_err() {
                            tracing::error!(?kind, "a lifecycle listener panicked");
                        }
                    }
                });
                if let Err(error) = &started {
                    tracing::error!(%error, "could not start the thread of a lifecycle listener");
                }
                started.ok().map(|_| sender)
            })
            .collect();
        Self { senders, missed: AtomicU64::new(0) }
    }

    /// Queues the event for each listener. Never blocks. Internal sessions are not reported.
    pub(crate) fn report(&self, facts: &Arc<Facts>, kind: SessionEventKind) {
        if is_internal(facts) {
            return;
        }
        for sender in &self.senders {
            let event = SessionEvent { session: Arc::clone(facts), kind };
            if let Err(TrySendError::Full(_)) = sender.try_send(event) {
                let missed = self.missed.fetch_add(1, Ordering::Relaxed) + 1;
                if missed.is_power_of_two() {
                    tracing::warn!(missed, "a lifecycle listener is too slow and misses events");
                }
            }
        }
    }
}
