//! What the client at the server turns to: its link.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use steadfast_client::{Ask, Boxed, Error, Event, Notification, OpenSession, Owner, Repeat, Succession};
use steadfast_wire::rpc::ErrorObject;
use tokio::sync::Semaphore;

use crate::link::Link;

/// What the client of a lane has to turn to.
pub(crate) struct LinkOwner {
    link: Weak<Link>,
    lane: usize,
    pub(crate) seat: u64,
    /// The name of the place that it sits at.
    place: String,
    /// The server's own stream is lost, and the log says so.
    is_deaf: AtomicBool,
    /// Taken by who looks for another place to hear the server.
    moving: Arc<Semaphore>,
}

impl LinkOwner {
    pub(crate) fn new(link: Weak<Link>, lane: usize, seat: u64, place: String) -> Self {
        let (is_deaf, moving) = (AtomicBool::new(false), Arc::new(Semaphore::new(1)));
        Self { link, lane, seat, place, is_deaf, moving }
    }

    fn open_link(&self) -> Option<Arc<Link>> {
        self.link.upgrade().filter(|link| !link.is_closed())
    }

    /// Whether the lane still sits here: a seat that was left lives on while calls are there, and has no say.
    fn is_seat_of(&self, link: &Link) -> bool {
        link.lanes[self.lane].seat().is_none_or(|seat| seat.no == self.seat)
    }

    /// What the server says outside of calls is not heard here any more. Maybe it is elsewhere.
    fn lost_the_stream(&self, error: Error) {
        let Some(link) = self.open_link() else { return };
        let session = link.short();
        if self.is_deaf.swap(true, Ordering::Relaxed) {
            tracing::debug!(session, %error, "the server's own stream is still lost");
        } else {
            tracing::warn!(session, %error, "the server's own stream is lost; what it sends on it is not heard");
        }
        let Ok(moving) = Arc::clone(&self.moving).try_acquire_owned() else { return };
        let (lane, seat) = (self.lane, self.seat);
        tokio::spawn(async move {
            link.listen_elsewhere(lane, seat, &error).await;
            drop(moving);
        });
    }
}

impl Owner for LinkOwner {
    fn answer(&self, ask: Ask) -> Boxed<'_, Result<Bytes, ErrorObject>> {
        Box::pin(async move {
            match self.link.upgrade() {
                Some(link) => link.ask(self.seat, ask).await,
                None => Err(ErrorObject::internal("withdrawn", "The client's session has ended.", false)),
            }
        })
    }

    fn notification(&self, notification: Notification) -> Boxed<'_, ()> {
        Box::pin(async move {
            if let Some(link) = self.link.upgrade() {
                link.hear(self.lane, notification).await;
            }
        })
    }

    fn lost(&self, session: OpenSession) -> Boxed<'_, Succession> {
        Box::pin(async move {
            match self.open_link() {
                Some(link) if self.is_seat_of(&link) => {
                    link.succession(self.lane, &self.place, &session).await
                }
                Some(_) => Succession::Moved,
                None => Succession::End,
            }
        })
    }

    fn renewed(&self, lost: OpenSession, session: OpenSession) -> Boxed<'_, Result<Vec<Repeat>, Succession>> {
        Box::pin(async move {
            match self.open_link() {
                Some(link) if self.is_seat_of(&link) => {
                    link.renewed(self.lane, &self.place, &lost, &session).await
                }
                Some(_) => Err(Succession::Moved),
                None => Err(Succession::End),
            }
        })
    }

    fn event(&self, event: Event) {
        match event {
            Event::StandaloneLost(error) => self.lost_the_stream(error),
            Event::StandaloneOpen => self.is_deaf.store(false, Ordering::Relaxed),
            Event::AnswerLost { error, .. } => {
                let session = self.link.upgrade().map(|link| link.short());
                tracing::warn!(session, %error, "an answer of the client did not reach the server");
            }
            // The others hear nothing that the first does not, and no resources are watched from them.
            Event::Gap if self.lane > 0 => {}
            Event::Gap => {
                let link = self.open_link().filter(|link| self.is_seat_of(link));
                link.iter().for_each(Link::announce_a_gap);
            }
            Event::SessionRenewed | Event::StandaloneAbsent => {}
        }
    }
}
