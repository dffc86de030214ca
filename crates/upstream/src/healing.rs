//! Sitting down at the server, and again when it is lost: the client's session goes on.

use std::sync::Arc;
use std::time::Duration;

use steadfast_client::{CallOptions, Error, OpenSession, Repeat, Succession};
use steadfast_engine::{Class, SessionHandle, StateError};
use steadfast_wire::rpc::warning;
use tokio::time::Instant;

use crate::converge::Whom;
use crate::lease::Held;
use crate::link::{Lane, Link};
use crate::record::Record;
use crate::replicas::is_away;
use crate::seat::Seat;
use crate::seats::{Seated, Seats};
use crate::vigil::{Waiting, fell_silent};

/// How soon, and at last how seldom, a server that cannot be reached is tried.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a request that is repeated in a new session may take.
const REPEAT: Duration = Duration::from_secs(10);

/// The waits between attempts: longer and longer, up to an end.
#[derive(Debug)]
pub(crate) struct Pauses {
    end: Instant,
    next: Duration,
}

impl Pauses {
    pub(crate) fn until(end: Instant) -> Self {
        Self { end, next: FIRST_PAUSE }
    }

    /// Waits. Gives whether it is over instead: then there was no wait.
    pub(crate) async fn next(&mut self) -> bool {
        let now = Instant::now();
        if now >= self.end {
            return true;
        }
        tokio::time::sleep_until(self.end.min(now + self.next)).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        false
    }
}

impl Link {
    /// Until when whoever begins to wait now waits for a server.
    pub(crate) fn patience(&self) -> Instant {
        Instant::now() + self.shared.config.patience
    }

    /// Until when somebody else may be busy with what is given up at `end`: the last attempt may begin just before, and a
    /// program that has to be downloaded first takes its time to open a session.
    fn with_opening(&self, end: Instant) -> Instant {
        end + self.shared.config.timeouts.control
    }

    /// Where a lane sits; if it does not, it sits down: where it sat before according to the record, or anywhere.
    pub(crate) async fn seated(&self, lane: usize) -> Result<Arc<Seat>, Error> {
        match self.lanes[lane].seat() {
            Some(seat) => Ok(seat),
            // Rare and large: it must not weigh on every call.
            None => Box::pin(self.sit_down(lane)).await,
        }
    }

    async fn sit_down(&self, lane: usize) -> Result<Arc<Seat>, Error> {
        let end = self.patience();
        let _settling = self.lanes[lane].settle(self.with_opening(end)).await.ok_or_else(nobody_there)?;
        if let Some(seat) = self.lanes[lane].seat() {
            return Ok(seat);
        }
        let session = self.session().ok_or(Error::Closed)?;
        self.claim_what_is_needed(&session).await?;
        let seats = self.follow_what_is_written(&session, Whom::And(lane)).await;
        if let Some(seat) = self.lanes[lane].seat() {
            return Ok(seat);
        }
        let lost = seats.lane(lane).cloned();
        if let Some(Seated { place, .. }) = &lost {
            let session = self.short();
            tracing::info!(session, place, "the replica of a session is not there any more");
        }
        let seat = self.sit_anywhere(lane, end).await?;
        self.settle_in(lane, lost, seat).await
    }

    /// A program that another process has started cannot be reached from here.
    async fn claim_what_is_needed(&self, session: &SessionHandle) -> Result<(), Error> {
        let are_programs = self.shared.servers.are_programs();
        if !self.shared.config.standalone && !are_programs {
            return Ok(());
        }
        match self.claim(session).await {
            Held::Ours(_) => Ok(()),
            _ if are_programs => {
                Err(Error::Connect("another process of this gateway serves the session".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Goes on with every session at the server that the record knows.
    pub(crate) async fn resume_all(&self) {
        let Some(session) = self.session() else { return };
        if self.claim_what_is_needed(&session).await.is_err() {
            return;
        }
        self.follow_what_is_written(&session, Whom::All).await;
    }

    /// Opens a session at the best place that takes it, and waits for one if there is none.
    pub(crate) async fn sit_anywhere(&self, lane: usize, end: Instant) -> Result<Seat, Error> {
        let mut pauses = Pauses::until(end);
        loop {
            match self.sit_once(lane, None).await {
                Err(error) if is_passing(&error) => {
                    if pauses.next().await {
                        return Err(error);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Tries each place but one, the best first. If one of them may fare better later, that counts and not what else is wrong.
    async fn sit_once(&self, lane: usize, avoid: Option<&str>) -> Result<Seat, Error> {
        let mut tried: Vec<_> = avoid.into_iter().map(str::to_owned).collect();
        let mut missed = None;
        while let Some(place) = self.shared.servers.next(&self.short(), &tried) {
            let (name, replica) = (place.name.clone(), place.replica().cloned());
            let waiting = self.shared.servers.wait_at(&place, self.shared.config.vigil);
            let error = match unless_suspected(waiting, self.connect(lane, place)).await {
                Ok(seat) => {
                    replica.iter().for_each(|replica| replica.succeeded());
                    return Ok(seat);
                }
                // Opening a session twice does no harm, so whatever was lost on the way may be tried elsewhere.
                Err(error) if is_passing(&error) => error,
                Err(error @ Error::Untrusted(_)) => {
                    tracing::error!(replica = name, %error, "a replica cannot be used");
                    error
                }
                Err(error) => return Err(error),
            };
            replica.iter().for_each(|replica| replica.failed());
            if missed.as_ref().is_none_or(|before| !is_passing(before) || is_passing(&error)) {
                missed = Some(error);
            }
            tried.push(name);
        }
        Err(missed.unwrap_or_else(nobody_there))
    }

    /// A call on this seat met a server that is not there. Waits for it, or moves; when this returns, another attempt is
    /// worthwhile. However many calls come here, one sees to it, and nobody waits for longer than it would alone.
    pub(crate) async fn heal(&self, lane: usize, lost: &Arc<Seat>, error: &Error) -> Result<(), Error> {
        let Some(replica) = lost.place.replica() else { return Ok(()) };
        let end = self.patience();
        let settling = self.lanes[lane].settle(self.with_opening(end)).await;
        let _settling = settling.ok_or_else(|| error.clone())?;
        if self.lanes[lane].seat().is_none_or(|seat| !Arc::ptr_eq(&seat, lost)) {
            return Ok(());
        }
        let seated = lost.seated();
        let mut pauses = Pauses::until(end);
        // A proxy may answer a trial in the server's place; it does not answer calls.
        let mut is_feigned = lost.is_feigned() && self.shared.servers.has_other(&replica.name);
        // A process that is being killed may answer for a moment.
        tokio::time::sleep(FIRST_PAUSE).await;
        loop {
            if self.was_moved(lane, seated.as_ref()).await {
                return Ok(());
            }
            // It may have been a moment's weakness, and whoever moves leaves behind what the server remembers.
            if !std::mem::take(&mut is_feigned) && replica.answers().await {
                lost.vouch();
                replica.succeeded();
                return Ok(());
            }
            replica.failed();
            if self.shared.servers.has_other(&replica.name)
                && let Ok(seat) = self.sit_once(lane, Some(&replica.name)).await
            {
                let (session, from, to) = (self.short(), &replica.name, &seat.place.name);
                tracing::info!(session, from, to, "a session moves");
                return self.settle_in(lane, seated, seat).await.map(drop);
            }
            if pauses.next().await {
                return Err(error.clone());
            }
        }
    }

    /// The same for those who come next: whoever met the server has its error already, and does not wait.
    pub(crate) fn heal_soon(self: &Arc<Self>, lane: usize, lost: &Arc<Seat>, error: &Error) {
        let has_other =
            lost.place.replica().is_some_and(|replica| self.shared.servers.has_other(&replica.name));
        let is_seen_to = self.lanes[lane].settling.try_lock().is_err();
        if !has_other || is_seen_to {
            return;
        }
        let (link, lost, error) = (Arc::clone(self), Arc::clone(lost), error.clone());
        tokio::spawn(async move {
            if let Err(error) = link.heal(lane, &lost, &error).await {
                tracing::debug!(session = link.short(), %error, "a session stays where its server is away");
            }
        });
    }

    /// The server has forgotten a session. It may be that nobody wants it any more, or that another process has seen to it.
    pub(crate) async fn succession(&self, lane: usize, place: &str, lost: &OpenSession) -> Succession {
        let Some(session) = self.session() else { return Succession::End };
        let seated = Seated::new(place, lost);
        match Seats::load(&session).await {
            Err(StateError::NoSession) => {
                if let Some(link) = self.me() {
                    tokio::spawn(async move { link.forsake().await });
                }
                Succession::End
            }
            Ok(Some((seats, version))) if self.successor(&seats, lane, Some(&seated)).is_some() => {
                self.give_way(lane, place, &seats, version)
            }
            Ok(_) | Err(_) => Succession::Renew,
        }
    }

    /// The client has opened a session at the same place in place of one that the server has forgotten.
    pub(crate) async fn renewed(
        &self,
        lane: usize,
        place: &str,
        lost: &OpenSession,
        open: &OpenSession,
    ) -> Result<Vec<Repeat>, Succession> {
        let healed = self.healed(lane, Some(&Seated::new(place, lost)), place, open).await;
        if healed.is_ok() {
            // The client may have been one that does not listen.
            self.listen(&self.lanes[lane]);
        }
        healed.map_err(|Second { seats, version }| self.give_way(lane, place, &seats, version))
    }

    /// Listens to what the server says in a lane, if that is for this process to do.
    fn listen(&self, lane: &Lane) {
        if self.shared.config.standalone && self.lease.is_ours() {
            lane.seat().iter().for_each(|seat| seat.client.hold_standalone());
        }
    }

    /// The same for all of them.
    pub(crate) fn listen_everywhere(&self) {
        self.lanes.iter().for_each(|lane| self.listen(lane));
    }

    /// Whether another process has moved a lane away from a seat that is lost. Then it sits there.
    async fn was_moved(&self, lane: usize, lost: Option<&Seated>) -> bool {
        let Some(session) = self.session() else { return false };
        match Seats::load(&session).await {
            Ok(Some((seats, version))) if self.successor(&seats, lane, lost).is_some() => {
                self.follow(&seats, version, Whom::And(lane));
                true
            }
            _ => false,
        }
    }

    /// Sits down on a new seat in place of one that is lost, and tells the server what the old one knew. If somebody else was
    /// first, the seat is theirs, and nobody has heard of ours but the server.
    async fn settle_in(&self, lane: usize, lost: Option<Seated>, seat: Seat) -> Result<Arc<Seat>, Error> {
        let link = self.me().ok_or(Error::Closed)?;
        // In a task of its own: whoever waits here may be cancelled, and others go by what is written down.
        let task = tokio::spawn(async move { link.settle_in_now(lane, lost.as_ref(), seat).await });
        task.await.unwrap_or(Err(Error::Closed))
    }

    async fn settle_in_now(
        &self,
        lane: usize,
        lost: Option<&Seated>,
        seat: Seat,
    ) -> Result<Arc<Seat>, Error> {
        let Some(open) = seat.client.session() else { return Ok(self.sit(lane, seat)) };
        match self.healed(lane, lost, &seat.place.name, &open).await {
            Ok(repeats) => {
                self.repeat(&seat, repeats).await;
                Ok(self.sit(lane, seat))
            }
            Err(Second { seats, version }) => {
                let session = self.short();
                tokio::spawn(async move {
                    if let Err(error) = seat.client.close().await {
                        tracing::debug!(session, %error, "a session that was not needed was not ended");
                    }
                });
                self.follow(&seats, version, Whom::And(lane));
                self.lanes[lane].seat().ok_or_else(nobody_there)
            }
        }
    }

    /// Tells the server what was told it in another lane meanwhile. Whoever calls this has the lane's turn.
    pub(crate) async fn catch_up(&self, lane: usize, seat: &Seat) {
        let missed = self.lanes[lane].missed();
        if !missed.is_empty() {
            Box::pin(self.repeat(seat, missed)).await;
        }
    }

    async fn repeat(&self, seat: &Seat, repeats: Vec<Repeat>) {
        for Repeat { method, params } in repeats {
            let options = CallOptions { timeout: Some(REPEAT), progress: false };
            let answer = match seat.client.call_with(&method, params.as_deref(), options) {
                Ok(call) => call.answer().await,
                Err(error) => Err(error),
            };
            if let Err(error) = answer {
                tracing::warn!(session = self.short(), method, %error, "a request could not be repeated");
            }
        }
    }

    /// There is a new session at the server in place of one that is lost, or on a new lane: writes it down, tells the client,
    /// and gives what the server has to be told.
    async fn healed(
        &self,
        lane: usize,
        lost: Option<&Seated>,
        place: &str,
        open: &OpenSession,
    ) -> Result<Vec<Repeat>, Second> {
        let Some(session) = self.session() else { return Ok(Vec::new()) };
        let Written { seats, is_new } = self.write_down(&session, lane, lost, place, open).await?;
        if !is_new {
            // It may be another version by now, and nothing is done twice on the word of the one before.
            self.invalidate_tools();
        }
        if !self.shared.servers.are_programs() {
            // Whoever opens a session hears what comes in it, and in those of the other lanes.
            self.seize(&session).await;
            self.lanes
                .iter()
                .enumerate()
                .filter(|(no, _)| *no != lane)
                .for_each(|(_, lane)| self.listen(lane));
        }
        let mut record = Record::load(&session).await.ok().flatten().unwrap_or_default();
        if lane > 0 {
            // These keep nothing that a client could miss, and resources are watched from the first lane.
            record.subscriptions.clear();
            return Ok(record.repeats());
        }
        if is_new {
            return Ok(record.repeats());
        }
        tracing::warn!(session = self.short(), place, "the server had lost a session; it was opened anew");
        self.shared.count_healed();
        session.report_healed();
        self.announce(&session, &seats, &record).await;
        Ok(record.repeats())
    }

    /// Writes down where a lane sits, unless somebody else has sat it down in place of the seat that is lost.
    async fn write_down(
        &self,
        session: &SessionHandle,
        lane: usize,
        lost: Option<&Seated>,
        place: &str,
        open: &OpenSession,
    ) -> Result<Written, Second> {
        // A program is nobody else's as long as the lease is ours.
        let has_rivals = !self.shared.servers.are_programs();
        let fresh = Seats::opened(place, open);
        let (mut current, mut is_new, mut first) = (fresh.clone(), false, None);
        let written = Seats::change(session, |seats, version| {
            if has_rivals && self.successor(seats, lane, lost).is_some() {
                first = version.map(|version| Second { seats: seats.clone(), version });
                return false;
            }
            is_new = seats.lane(lane).is_none();
            seats.seat(lane, Seated::new(place, open));
            seats.capabilities.clone_from(&fresh.capabilities);
            current = seats.clone();
            true
        });
        let written = written.await;
        if let Some(second) = first {
            return Err(second);
        }
        match written {
            // The other lanes may have been moved before.
            Ok(Some(version)) => drop(self.follow(&current, version, Whom::But(lane))),
            Ok(None) => {}
            Err(error) => {
                tracing::error!(session = self.short(), %error, "where a session sits cannot be written down");
                self.known.suspect();
            }
        }
        Ok(Written { seats: current, is_new })
    }

    /// Tells the client that what it knows of the server may be out of date.
    async fn announce(&self, session: &SessionHandle, seats: &Seats, record: &Record) {
        if seats.offers("logging", None) && record.wants_warnings() {
            let data = r#"{"event":"session_healed","message":"The server had lost this session and was initialized again. What it kept in memory for the session is gone."}"#;
            self.tell(session, Class::Chatter, warning(data).into()).await;
        }
        self.announce_changes(session, seats, record).await;
    }
}

/// A seat is written down.
struct Written {
    seats: Seats,
    /// Nobody sat on this lane before.
    is_new: bool,
}

/// Somebody else was first, and this is what is written down.
struct Second {
    seats: Seats,
    version: u64,
}

/// Opens a session, unless the replica is found to answer nothing: opening it elsewhere does no harm.
async fn unless_suspected(
    waiting: Option<Waiting>,
    opening: impl Future<Output = Result<Seat, Error>>,
) -> Result<Seat, Error> {
    let Some(waiting) = waiting else { return opening.await };
    tokio::select! {
        biased;
        opened = opening => opened,
        () = waiting.suspicion() => Err(fell_silent()),
    }
}

/// Whether whoever tries again, or elsewhere, may fare better.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Connect(_) | Error::Broken(_) | Error::Timeout(_) | Error::OutcomeUnknown { .. } => true,
        Error::Refused { status, .. } => is_away(*status),
        _ => false,
    }
}

fn nobody_there() -> Error {
    Error::Connect("no replica is there".to_owned())
}
