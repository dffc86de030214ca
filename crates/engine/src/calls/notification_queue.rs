//! Queues client notifications: those of one session reach the backend one at a time, in order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_session::Limit;
use steadfast_session::command::{Touch, Touched};
use steadfast_store::StoreExt;

use crate::backend::IncomingMessage;
use crate::engine::Engine;
use crate::panics::catch_panic;
use crate::refusal::Refusal;
use crate::sessions::LiveSession;
use crate::shutdown::{InFlightCount, InFlightGuard};

/// The notifications of one session that the backend has not received yet.
#[derive(Debug, Default)]
pub(crate) struct NotificationQueue {
    queue: VecDeque<QueuedNotification>,
    /// A task takes notifications from the queue.
    has_worker: bool,
}

#[derive(Debug)]
struct QueuedNotification {
    notification: IncomingMessage,
    /// Counts toward `notifications_in_all` until the notification was processed.
    _slot: QueueSlot,
    /// The client was told that the notification was accepted, so a draining node waits for it as
    /// for a call.
    _in_flight: InFlightGuard,
}

/// Counts one notification toward the bound of all sessions.
#[derive(Debug)]
struct QueueSlot(Arc<AtomicUsize>);

impl Drop for QueueSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Engine {
    /// Accepts a notification of the client. The backend receives the notifications of one session
    /// in the order in which they were accepted.
    pub async fn notify(
        &self,
        session: &Arc<LiveSession>,
        notification: IncomingMessage,
    ) -> Result<(), Refusal> {
        let touch = || self.store().run(session.id(), Touch, self.now());
        let over_limit = |touched: &Touched| match touched {
            Touched::OverLimit(limit) => Some(*limit),
            _ => None,
        };
        match self.with_eviction(session.facts(), touch, over_limit).await? {
            Touched::Touched => self.enqueue_notification(session, notification),
            // A cancellation frees resources, and its call is cancelled already. So it is accepted
            // over the limit.
            Touched::OverLimit(_) if notification.method == "notifications/cancelled" => {
                self.enqueue_notification(session, notification)
            }
            Touched::OverLimit(limit) => Err(Refusal::OverLimit(limit)),
            Touched::NoSession => Err(self.session_gone(session)),
        }
    }

    pub(crate) fn enqueue_notification(
        &self,
        session: &Arc<LiveSession>,
        notification: IncomingMessage,
    ) -> Result<(), Refusal> {
        let slot = self.reserve_notification_slot()?;
        let mut notifications = session.notifications();
        if notifications.queue.len() >= self.options().notifications {
            return Err(Refusal::OverLimit(Limit::Notifications));
        }
        let in_flight = InFlightCount::increment(&self.admission.calls);
        notifications.queue.push_back(QueuedNotification {
            notification,
            _slot: slot,
            _in_flight: in_flight,
        });
        let has_worker = std::mem::replace(&mut notifications.has_worker, true);
        drop(notifications);
        if !has_worker {
            let (engine, session) = (self.arc(), Arc::clone(session));
            self.spawn(async move { engine.run_notification_worker(&session).await });
        }
        Ok(())
    }

    fn reserve_notification_slot(&self) -> Result<QueueSlot, Refusal> {
        let slot = QueueSlot(Arc::clone(&self.notifications_in_flight));
        if self.notifications_in_flight.fetch_add(1, Ordering::AcqRel) >= self.options().notifications_in_all
        {
            return Err(Refusal::OverLimit(Limit::NotificationsInAll));
        }
        Ok(slot)
    }

    async fn run_notification_worker(&self, session: &Arc<LiveSession>) {
        loop {
            let next = {
                let mut notifications = session.notifications();
                let next = notifications.queue.pop_front();
                notifications.has_worker = next.is_some();
                if next.is_none() {
                    // Most clients do not notify again soon, and there may be many idle sessions.
                    notifications.queue.shrink_to_fit();
                }
                next
            };
            let Some(QueuedNotification { notification, _slot, _in_flight }) = next else { return };
            self.process_notification(session, notification).await;
        }
    }

    /// Passes a notification to the backend of this node or of the node that must process it.
    async fn dispatch_notification(&self, session: &Arc<LiveSession>, notification: IncomingMessage) {
        let handle = self.session_handle(session);
        if self.shares_store() && self.is_for_another_node(&handle, &notification).await {
            match self.forward_notification(session, notification).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(session = %session.id().short(), %error, "could not forward a client notification to another node; it is lost");
                }
            }
        } else {
            self.backend().notify(handle, notification).await;
        }
    }

    async fn process_notification(&self, session: &Arc<LiveSession>, notification: IncomingMessage) {
        let method = notification.method.clone();
        let work = catch_panic(async { self.dispatch_notification(session, notification).await });
        // A notification has no answer that could carry the error. A panic was logged.
        if tokio::time::timeout(self.options().notification_deadline, work).await.is_err() {
            tracing::warn!(session = %session.id().short(), method, "the backend exceeded the notification deadline; notification dropped");
        }
        if !self.sessions.contains(&session.id()) {
            // The session ended in the meantime, and the backend may have allocated something for
            // it again.
            self.notify_closed(session.facts());
            session.notifications().queue.clear();
        }
    }
}
