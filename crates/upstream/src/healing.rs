//! Sitting down at the server, and again when it is lost: the client's session goes on.

use std::sync::Arc;
use std::time::Duration;

use steadfast_client::{CallOptions, Error, OpenSession, Repeat, Succession};
use steadfast_engine::{Class, SessionHandle, StateError};
use steadfast_wire::rpc::{json_string, warning};
use tokio::time::Instant;

use crate::lease::Held;
use crate::link::{Link, record_of};
use crate::record::{Record, Seated};
use crate::seat::Seat;

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
        let record = record_of(&session).await;
        self.claim_what_is_needed(&session).await?;
        if let Some((name, open)) = record.session(lane) {
            if let Some(place) = self.shared.servers.find(&self.short(), name) {
                return Ok(self.sit(lane, self.resume(lane, place, open)?));
            }
            let session = self.short();
            tracing::info!(session, place = name, "the replica of a session is not there any more");
        }
        let seat = self.sit_anywhere(lane, end).await?;
        self.settle_in(lane, &seat).await;
        Ok(self.sit(lane, seat))
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
        let record = record_of(&session).await;
        if self.claim_what_is_needed(&session).await.is_err() {
            return;
        }
        for (lane, place) in self.lanes.iter().enumerate() {
            let _settling = place.settling.lock().await;
            if place.seat().is_none()
                && let Some((name, open)) = record.session(lane)
                && let Some(found) = self.shared.servers.find(&self.short(), name)
                && let Ok(seat) = self.resume(lane, found, open)
            {
                self.sit(lane, seat);
            }
        }
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
            let error = match self.connect(lane, place).await {
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
            if !matches!(error, Error::Refused { .. }) {
                replica.iter().for_each(|replica| replica.failed());
            }
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
        let mut pauses = Pauses::until(end);
        // A process that is being killed may accept connections for a moment.
        tokio::time::sleep(FIRST_PAUSE).await;
        loop {
            // It may have been a moment's weakness, and whoever moves leaves behind what the server remembers.
            if replica.answers().await {
                replica.succeeded();
                return Ok(());
            }
            replica.failed();
            if self.shared.servers.has_other(&replica.name)
                && let Ok(seat) = self.sit_once(lane, Some(&replica.name)).await
            {
                let (session, from, to) = (self.short(), &replica.name, &seat.place.name);
                tracing::info!(session, from, to, "a session moves");
                self.settle_in(lane, &seat).await;
                self.sit(lane, seat);
                return Ok(());
            }
            if pauses.next().await {
                return Err(error.clone());
            }
        }
    }

    /// The server has forgotten a session. It may be that nobody wants it any more, or that another process has seen to it.
    pub(crate) async fn succession(&self, lane: usize, place: &str, lost: &OpenSession) -> Succession {
        let Some(session) = self.session() else { return Succession::End };
        match Record::load(&session).await {
            Err(StateError::NoSession) => {
                if let Some(link) = self.me() {
                    tokio::spawn(async move { link.forsake().await });
                }
                Succession::End
            }
            Ok(Some(record)) => match record.session(lane) {
                Some((name, open)) if name == place && open.id != lost.id => Succession::Adopt(open),
                _ => Succession::Renew,
            },
            Ok(None) | Err(_) => Succession::Renew,
        }
    }

    /// Tells a new session at the server what the old one knew.
    async fn settle_in(&self, lane: usize, seat: &Seat) {
        let Some(open) = seat.client.session() else { return };
        let repeats = self.healed(lane, &seat.place.name, &open).await;
        self.repeat(seat, repeats).await;
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
    pub(crate) async fn healed(&self, lane: usize, place: &str, open: &OpenSession) -> Vec<Repeat> {
        let Some(session) = self.session() else { return Vec::new() };
        let (mut current, mut is_new) = (Record::default(), false);
        let fresh = Record::opened(place, open);
        let written = Record::change(&session, |record| {
            is_new = record.lanes.get(lane).is_none_or(Option::is_none);
            record.seat(lane, Seated::new(place, open));
            record.capabilities.clone_from(&fresh.capabilities);
            current = record.clone();
            true
        });
        if let Err(error) = written.await {
            tracing::error!(session = self.short(), %error, "where a session sits cannot be written down");
        }
        if !self.shared.servers.are_programs() {
            // Whoever opens a session hears what comes in it.
            self.seize(&session).await;
        }
        if lane > 0 {
            // These keep nothing that a client could miss, and resources are watched from the first lane.
            current.subscriptions.clear();
            return current.repeats();
        }
        if is_new {
            return current.repeats();
        }
        tracing::warn!(session = self.short(), place, "the server had lost a session; it was opened anew");
        self.shared.count_healed();
        session.report_healed();
        self.announce(&session, &current).await;
        current.repeats()
    }

    /// Tells the client that what it knows of the server may be out of date.
    async fn announce(&self, session: &SessionHandle, record: &Record) {
        if record.offers("logging", None) && record.wants_warnings() {
            let data = r#"{"event":"session_healed","message":"The server had lost this session and was initialized again. What it kept in memory for the session is gone."}"#;
            self.tell(session, Class::Chatter, warning(data).into()).await;
        }
        for kind in ["tools", "prompts", "resources"] {
            if record.offers(kind, Some("listChanged")) {
                let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{kind}/list_changed"}}"#);
                self.tell(session, Class::Notice, text.into()).await;
            }
        }
        for uri in &record.subscriptions {
            let uri = json_string(uri);
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":{uri}}}}}"#
            );
            self.tell(session, Class::Notice, text.into()).await;
        }
    }
}

/// Whether whoever tries again, or elsewhere, may fare better.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Connect(_) | Error::Broken(_) | Error::Timeout(_) | Error::OutcomeUnknown { .. } => true,
        Error::Refused { status, .. } => matches!(status, 502..=504),
        _ => false,
    }
}

fn nobody_there() -> Error {
    Error::Connect("no replica is there".to_owned())
}
