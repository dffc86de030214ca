//! What the client at the server turns to: its link.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use steadfast_client::{
    Ask, Boxed, Error, Event, Notification, OpenSession, Owner, RaceSign, Repeat, RequestId, Succession,
};
use steadfast_wire::rpc::ErrorObject;

use crate::errors;
use crate::link::Link;

/// What the client of a lane has to turn to.
pub(crate) struct LinkOwner {
    link: Weak<Link>,
    lane: usize,
    pub(crate) seat: u64,
    /// The name of the place that it sits at.
    place: String,
    /// The log says already that the server mixes up the answers to parallel calls.
    has_warned_of_race: AtomicBool,
}

impl LinkOwner {
    pub(crate) fn new(link: Weak<Link>, lane: usize, seat: u64, place: String) -> Self {
        Self { link, lane, seat, place, has_warned_of_race: AtomicBool::new(false) }
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
        // Calls that are left from another configuration do not move for the sake of hearing.
        let Some(link) = self.open_link().filter(|link| !link.shared.is_retired()) else { return };
        let session = link.short();
        let (lane, seat) = (self.lane, self.seat);
        if link.lanes[lane].is_deaf.swap(true, Ordering::Relaxed) {
            tracing::debug!(session, %error, "the server's own stream is still lost");
        } else {
            tracing::warn!(session, %error, "the server's own stream is lost; what it sends on it is not heard");
        }
        tokio::spawn(async move { link.listen_elsewhere(lane, seat, &error).await });
    }
}

impl LinkOwner {
    /// Warns that the server seems to mix up the answers to parallel calls, once for each upstream session.
    fn warn_of_race(&self, sign: RaceSign) {
        let Some(link) = self.link.upgrade() else { return };
        let session = link.short();
        if self.has_warned_of_race.swap(true, Ordering::Relaxed) {
            tracing::debug!(session, %sign, "the server mixed up its answers again");
        } else if link.shared.config.calls.are_serial() {
            tracing::warn!(session, %sign, "the server does not answer as it should, although it gets one call at a time");
        } else {
            tracing::warn!(
                session,
                %sign,
                "the server seems to mix up the answers to parallel calls of one session; \
                 have the gateway send it one call at a time: `concurrency = 1` or `--concurrency 1`"
            );
        }
    }

    /// The server has not got what it asked the client for. If that is because of what the client shows, it will not get it either
    /// if it waits, so the call that asked is over.
    fn lost_an_answer(&self, call: Option<RequestId>, error: &Error) {
        let Some(link) = self.link.upgrade() else { return };
        tracing::warn!(session = link.short(), %error, "an answer of the client did not reach the server");
        let denial = errors::denial_of_call(error).filter(|_| link.shared.shows_clients());
        let call = call.and_then(|call| link.in_flight.find(self.seat, &call));
        if let (Some(denial), Some(call)) = (denial, call) {
            tokio::spawn(async move { call.fail(&denial.error).await });
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
            Event::StandaloneOpen => {
                let link = self.link.upgrade();
                link.iter().for_each(|link| link.lanes[self.lane].is_deaf.store(false, Ordering::Relaxed));
            }
            Event::RaceSuspected(sign) => self.warn_of_race(sign),
            Event::AnswerLost { call, error, .. } => self.lost_an_answer(call, &error),
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
