//! What the client at the server turns to: its link.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use steadfast_client::{Ask, Boxed, Event, Notification, OpenSession, Owner, Repeat, Succession};
use steadfast_wire::rpc::ErrorObject;

use crate::link::Link;

/// What the client of a lane has to turn to.
pub(crate) struct LinkOwner {
    pub(crate) link: Weak<Link>,
    pub(crate) lane: usize,
    pub(crate) seat: u64,
    /// The name of the place that it sits at.
    pub(crate) place: String,
}

impl LinkOwner {
    fn open_link(&self) -> Option<Arc<Link>> {
        self.link.upgrade().filter(|link| !link.is_closed())
    }

    /// Whether the lane still sits here: a seat that was left lives on while calls are there, and has no say.
    fn is_seat_of(&self, link: &Link) -> bool {
        link.lanes[self.lane].seat().is_none_or(|seat| seat.no == self.seat)
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
        let session = self.link.upgrade().map(|link| link.short());
        match event {
            Event::StandaloneLost(error) => {
                tracing::warn!(session, %error, "the server's own stream is lost; what it sends on it is not heard");
            }
            Event::AnswerLost { error, .. } => {
                tracing::warn!(session, %error, "an answer of the client did not reach the server");
            }
            Event::Gap => tracing::warn!(session, "messages on the server's own stream may be missing"),
            Event::SessionRenewed | Event::StandaloneOpen | Event::StandaloneAbsent => {}
        }
    }
}
