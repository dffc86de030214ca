//! Client handlers that record what they receive.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use steadfast_client::{BoxFuture, Bytes, ClientHandler, ErrorObject, Event, Notification, ServerRequest};
use tokio::sync::{Notify, Semaphore};

/// Records events and notifications. Answers server requests with an empty object.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Heard>);

#[derive(Default)]
struct Heard {
    events: Mutex<Vec<Event>>,
    notifications: Mutex<Vec<String>>,
    changed: Notify,
}

impl Recorder {
    pub(crate) fn events(&self) -> Vec<Event> {
        self.0.events.lock().expect("events").clone()
    }

    pub(crate) fn notifications(&self) -> Vec<String> {
        self.0.notifications.lock().expect("notifications").clone()
    }

    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        until(&self.0.changed, what, || condition(self)).await;
    }
}

impl ClientHandler for Recorder {
    fn on_server_request(&self, _ask: ServerRequest) -> BoxFuture<'_, Result<Bytes, ErrorObject>> {
        Box::pin(async { Ok(Bytes::from_static(b"{}")) })
    }

    fn on_notification(&self, notification: Notification) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.0.notifications.lock().expect("notifications").push(notification.method);
            self.0.changed.notify_waiters();
        })
    }

    fn on_event(&self, event: Event) {
        self.0.events.lock().expect("events").push(event);
        self.0.changed.notify_waiters();
    }
}

/// Counts concurrent server requests, delays each answer, and answers with the parameter `n`.
#[derive(Clone)]
pub(crate) struct Counting(Arc<Counts>);

struct Counts {
    pace: Pace,
    now: AtomicUsize,
    peak: AtomicUsize,
    dropped: AtomicUsize,
    order: Mutex<Vec<u64>>,
    changed: Notify,
}

/// How long a server request takes.
pub(crate) enum Pace {
    Sleep(Duration),
    /// Until the test calls `allow`.
    Leave(Semaphore),
}

impl Counting {
    pub(crate) fn new(pace: Pace) -> Self {
        Self(Arc::new(Counts {
            pace,
            now: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            order: Mutex::default(),
            changed: Notify::new(),
        }))
    }

    pub(crate) fn peak(&self) -> usize {
        self.0.peak.load(Ordering::SeqCst)
    }

    pub(crate) fn now(&self) -> usize {
        self.0.now.load(Ordering::SeqCst)
    }

    /// How many requests were dropped before they were answered.
    pub(crate) fn dropped(&self) -> usize {
        self.0.dropped.load(Ordering::SeqCst)
    }

    /// The requests in the order in which they started.
    pub(crate) fn order(&self) -> Vec<u64> {
        self.0.order.lock().expect("the order").clone()
    }

    /// Lets this many requests complete.
    pub(crate) fn allow(&self, count: usize) {
        match &self.0.pace {
            Pace::Leave(leave) => leave.add_permits(count),
            Pace::Sleep(_) => panic!("`allow` needs Pace::Leave"),
        }
    }

    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        until(&self.0.changed, what, || condition(self)).await;
    }
}

impl ClientHandler for Counting {
    fn on_server_request(&self, server_request: ServerRequest) -> BoxFuture<'_, Result<Bytes, ErrorObject>> {
        let params: Value =
            server_request.params.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let n = params["n"].as_u64().unwrap_or_default();
        Box::pin(async move {
            let mut inside = Inside::enter(&self.0, n);
            match &self.0.pace {
                Pace::Sleep(time) => tokio::time::sleep(*time).await,
                Pace::Leave(leave) => leave.acquire().await.expect("it is never closed").forget(),
            }
            inside.done = true;
            Ok(format!(r#"{{"n":{n}}}"#).into())
        })
    }
}

/// A server request in progress.
struct Inside<'a> {
    counts: &'a Counts,
    done: bool,
}

impl<'a> Inside<'a> {
    fn enter(counts: &'a Counts, n: u64) -> Self {
        let now = counts.now.fetch_add(1, Ordering::SeqCst) + 1;
        counts.peak.fetch_max(now, Ordering::SeqCst);
        counts.order.lock().expect("the order").push(n);
        counts.changed.notify_waiters();
        Self { counts, done: false }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.counts.now.fetch_sub(1, Ordering::SeqCst);
        if !self.done {
            self.counts.dropped.fetch_add(1, Ordering::SeqCst);
        }
        self.counts.changed.notify_waiters();
    }
}

/// Waits until the condition holds. Checks it whenever `changed` is notified.
async fn until(changed: &Notify, what: &str, condition: impl Fn() -> bool) {
    let waiting = async {
        loop {
            let changed = changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if condition() {
                return;
            }
            changed.await;
        }
    };
    super::within(what, waiting).await;
}
