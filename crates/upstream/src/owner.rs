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
    /// The link, if its lane still sits here: a seat that was left lives on while calls are there, and has no say.
    fn seated(&self) -> Option<Arc<Link>> {
        let link = self.link.upgrade()?;
        let is_here = link.lanes[self.lane].seat().is_none_or(|seat| seat.no == self.seat);
        (is_here && !link.is_closed()).then_some(link)
    }

    /// What comes after a session on a seat that its lane has left.
    fn without_a_say(&self) -> Succession {
        match self.link.upgrade() {
            Some(link) if !link.is_closed() => Succession::Elsewhere,
            _ => Succession::End,
        }
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
            match self.seated() {
                Some(link) => link.succession(self.lane, &self.place, &session).await,
                None => self.without_a_say(),
            }
        })
    }

    fn renewed(&self, lost: OpenSession, session: OpenSession) -> Boxed<'_, Result<Vec<Repeat>, Succession>> {
        Box::pin(async move {
            match self.seated() {
                Some(link) => link.renewed(self.lane, &self.place, &lost, &session).await,
                None => Err(self.without_a_say()),
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
