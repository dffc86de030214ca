//! Lifecycle listeners: told of each step in each session's life, once, in order, and far from any lock.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use steadfast_session::{CloseReason, Facts, Lifecycle};

use crate::jobs::is_job;

/// Hears of sessions. Each listener runs on a thread of its own: it may block and it may panic, and nobody else
/// notices. If it falls behind by more than the backlog, it misses events; that is counted and logged.
pub trait Listener: Send + 'static {
    fn on_event(&mut self, event: SessionEvent);
}

impl<F: FnMut(SessionEvent) + Send + 'static> Listener for F {
    fn on_event(&mut self, event: SessionEvent) {
        self(event);
    }
}

/// A step in a session's life.
#[derive(Clone, Debug)]
pub struct SessionEvent {
    pub session: Arc<Facts>,
    pub kind: SessionEventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEventKind {
    Opened,
    /// Its last connection broke; it waits for the grace time.
    Detached,
    /// Somebody came back within the grace time.
    Reattached,
    /// This process serves a session that it did not open.
    Restored,
    /// What answers it had lost it, and was told anew what it has to know.
    Healed,
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
pub(crate) struct Listeners {
    senders: Vec<SyncSender<SessionEvent>>,
    missed: AtomicU64,
}

impl Listeners {
    pub(crate) fn start(listeners: Vec<Box<dyn Listener>>, backlog: usize) -> Self {
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
                    tracing::error!(%error, "a lifecycle listener could not be started");
                }
                started.ok().map(|_| sender)
            })
            .collect();
        Self { senders, missed: AtomicU64::new(0) }
    }

    /// Never waits.
    pub(crate) fn report(&self, facts: &Arc<Facts>, kind: SessionEventKind) {
        if is_job(facts) {
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
