//! Several processes serve a session, and all of them are to speak to the same one at the server: the one that is written
//! down. Whoever opens another in its place writes that down if nobody else was first, and whoever was second goes there.

use steadfast_client::{OpenSession, Succession};
use steadfast_engine::SessionHandle;

use crate::lease::Held;
use crate::link::{Lane, Link};
use crate::seat::{Place, Seat};
use crate::seats::{Seated, Seats};

/// How often what is written down is read if this process writes as well.
const LOOKS: usize = 3;

/// Which lanes are to sit where it is written down. Those that sit somewhere are, if that was not known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whom {
    Seated,
    /// And those that sit nowhere.
    All,
    /// And this one, however it sits.
    And(usize),
    /// But not this one, which is about to sit down.
    But(usize),
}

impl Whom {
    fn concerns(self, lane: usize, sits: bool, is_news: bool) -> bool {
        match self {
            Self::And(one) if one == lane => true,
            Self::But(one) if one == lane => false,
            Self::All => is_news || !sits,
            _ => is_news && sits,
        }
    }
}

impl Seat {
    /// What it is written down as.
    pub(crate) fn seated(&self) -> Option<Seated> {
        Some(Seated::new(&self.place.name, &self.client.session()?))
    }
}

impl Link {
    /// The session that is written down for a lane, if it is another than this one and can be reached from here.
    pub(crate) fn successor(
        &self,
        seats: &Seats,
        lane: usize,
        lost: Option<&Seated>,
    ) -> Option<(Place, OpenSession)> {
        let (name, open) = seats.session(lane)?;
        let place = self.shared.servers.find(&self.short(), name, &open)?;
        // A replica may have got another name since.
        let is_there = |lost: &Seated| lost.place == place.name || lost.place == name;
        let is_lost = lost.is_some_and(|lost| lost.id == open.id && is_there(lost));
        (!is_lost).then_some((place, open))
    }

    /// Somebody else was first: what comes after a session that this process has lost at `place`.
    pub(crate) fn give_way(&self, lane: usize, place: &str, seats: &Seats, version: u64) -> Succession {
        match self.successor(seats, lane, None) {
            Some((found, open)) if found.name == place => {
                self.stop_listening(version);
                Succession::Adopt(open)
            }
            _ => {
                self.follow(seats, version, Whom::And(lane));
                Succession::Moved
            }
        }
    }

    /// Has lanes sit where it is written down that they do. Calls that are at the old place stay there. Gives whether this is the
    /// newest that is known.
    ///
    /// The old session is not ended: calls of others may be there, too, and the server ends it when nobody comes.
    pub(crate) fn follow(&self, seats: &Seats, version: u64, whom: Whom) -> bool {
        let Some(advance) = self.known.advance(version) else { return false };
        for (no, lane) in self.lanes.iter().enumerate() {
            let seat = lane.seat();
            // A program that runs here is ours as long as the lease is.
            let may_go = seat.is_none() || !self.shared.servers.are_programs();
            if !may_go || !whom.concerns(no, seat.is_some(), advance.is_news) {
                continue;
            }
            let here = seat.as_ref().and_then(|seat| seat.seated());
            let Some((place, open)) = self.successor(seats, no, here.as_ref()) else { continue };
            if here.is_some() {
                let (session, to) = (self.short(), &place.name);
                tracing::info!(session, to, "a session was moved by another process");
                self.invalidate_tools();
                self.stop_listening(version);
            }
            match self.resume(no, place, open) {
                Ok(seat) => drop(self.sit(no, seat)),
                Err(error) => {
                    tracing::warn!(session = self.short(), %error, "a session that is written down is of no use");
                }
            }
        }
        true
    }

    /// Reads what is written down and goes by it. Gives it.
    pub(crate) async fn follow_what_is_written(&self, session: &SessionHandle, whom: Whom) -> Seats {
        let mut seats = Seats::default();
        for _ in 0..LOOKS {
            // Healing does without rather than fail.
            let Ok(Some((found, version))) = Seats::load(session).await else { break };
            let is_newest = self.follow(&found, version, whom);
            seats = found;
            if is_newest {
                break;
            }
        }
        seats
    }

    /// Whoever opens a session at the server takes the lease and hears what comes in it: this process does not any more. If
    /// nobody has taken it, it is ours again as soon as somebody looks. A lease that is newer than what was written down then, was
    /// taken from whoever wrote it. All entries of a session count their versions together.
    fn stop_listening(&self, written: u64) {
        let shared = self.session().filter(|session| session.engine().shares_its_store());
        let Some(session) = shared.filter(|_| !self.shared.servers.are_programs()) else { return };
        if let Held::Ours(version) = self.lease.held()
            && version < written
        {
            self.lease.lose(version, || {
                self.expect_errands(&session, false);
                self.lanes.iter().filter_map(Lane::seat).for_each(|seat| seat.client.release_standalone());
            });
        }
    }
}
