//! Notifications of the client: those of one session reach the backend in order, one at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_session::Limit;

use crate::admission::{Count, Counted};
use crate::backend::Incoming;
use crate::calls::catch_panic;
use crate::engine::Engine;
use crate::live::LiveSession;
use crate::refusal::Refusal;

/// What the backend has not had yet of one session's notifications.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    waiting: VecDeque<Waiting>,
    /// Somebody hands them over.
    is_served: bool,
}

#[derive(Debug)]
struct Waiting {
    notification: Incoming,
    /// Given back when it is done with.
    _place: Place,
    /// Its client was told that it is taken: a node that goes waits for it as for a call.
    _counted: Counted,
}

/// A place among the notifications of all sessions.
#[derive(Debug)]
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Engine {
    pub(crate) fn hand_over(
        &self,
        session: &Arc<LiveSession>,
        notification: Incoming,
    ) -> Result<(), Refusal> {
        let place = self.place_for_notification()?;
        let mut notes = session.notes();
        if notes.waiting.len() >= self.options().notifications {
            return Err(Refusal::OverLimit(Limit::Notifications));
        }
        let counted = Count::one_more(&self.admission.calls);
        notes.waiting.push_back(Waiting { notification, _place: place, _counted: counted });
        let is_served = std::mem::replace(&mut notes.is_served, true);
        drop(notes);
        if !is_served {
            let (engine, session) = (self.arc(), Arc::clone(session));
            self.spawn(async move { engine.serve_notifications(&session).await });
        }
        Ok(())
    }

    fn place_for_notification(&self) -> Result<Place, Refusal> {
        let place = Place(Arc::clone(&self.notifications));
        if self.notifications.fetch_add(1, Ordering::AcqRel) >= self.options().notifications_in_all {
            return Err(Refusal::OverLimit(Limit::NotificationsInAll));
        }
        Ok(place)
    }

    async fn serve_notifications(&self, session: &Arc<LiveSession>) {
        loop {
            let next = {
                let mut notes = session.notes();
                let next = notes.waiting.pop_front();
                notes.is_served = next.is_some();
                if next.is_none() {
                    // Few clients notify again soon, and there may be many of them.
                    notes.waiting.shrink_to_fit();
                }
                next
            };
            let Some(Waiting { notification, _place, _counted }) = next else { return };
            self.serve_notification(session, notification).await;
        }
    }

    /// Where it has to go: to the backend here, or at another node.
    async fn pass_on(&self, session: &Arc<LiveSession>, notification: Incoming) {
        let handle = self.handle(session);
        if self.shares_its_store() && self.belongs_elsewhere(&handle, &notification).await {
            match self.mail(session, notification).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::warn!(session = %session.id().short(), %error, "a notification is lost on its way to another node");
                }
            }
        } else {
            self.backend().notify(handle, notification).await;
        }
    }

    async fn serve_notification(&self, session: &Arc<LiveSession>, notification: Incoming) {
        let method = notification.method.clone();
        let work = catch_panic(async { self.pass_on(session, notification).await });
        // A notification has no answer to carry the error; a panic has been logged.
        if tokio::time::timeout(self.options().notification_deadline, work).await.is_err() {
            tracing::warn!(session = %session.id().short(), method, "the handler takes too long for a notification");
        }
        if !self.live.knows(&session.id()) {
            // The session ended meanwhile; what the backend made for it must not stay.
            self.forget(session.facts());
            session.notes().waiting.clear();
        }
    }
}
