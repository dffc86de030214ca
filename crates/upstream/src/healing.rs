//! Sitting down at the server, and again when it is lost: the client's session goes on.

use std::sync::Arc;
use std::time::Duration;

use steadfast_client::{CallOptions, Error, OpenSession, Repeat};
use steadfast_engine::{Class, SessionHandle};
use steadfast_wire::rpc::{json_string, warning};
use tokio::time::Instant;

use crate::link::{Link, record_of};
use crate::record::{Record, Seated};
use crate::seat::Seat;

/// How soon, and at last how seldom, a server that cannot be reached is tried.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a request that is repeated in a new session may take.
const REPEAT: Duration = Duration::from_secs(10);

impl Link {
    /// Where a lane sits; if it does not, it sits down: where it sat before according to the record, or anywhere.
    pub(crate) async fn seated(&self, lane: usize) -> Result<Arc<Seat>, Error> {
        if let Some(seat) = self.lanes[lane].seat() {
            return Ok(seat);
        }
        let _settling = self.lanes[lane].settling.lock().await;
        if let Some(seat) = self.lanes[lane].seat() {
            return Ok(seat);
        }
        let session = self.session().ok_or(Error::Closed)?;
        let record = record_of(&session).await;
        let Some((name, open)) = record.session(lane) else {
            let seat = self.sit_anywhere(lane, Vec::new()).await?;
            // The first lane of a session always has a record, unless it could not be read.
            self.settle_in(lane, &seat).await;
            return Ok(self.lanes[lane].sit(seat));
        };
        if let Some(place) = self.shared.servers.find(&self.short(), name) {
            return Ok(self.lanes[lane].sit(self.resume(lane, place, open)?));
        }
        tracing::info!(
            session = self.short(),
            place = name,
            "the replica of a session is not there any more"
        );
        let seat = self.sit_anywhere(lane, Vec::new()).await?;
        self.settle_in(lane, &seat).await;
        Ok(self.lanes[lane].sit(seat))
    }

    /// Opens a session at the best place that takes it, and waits for one if there is none.
    pub(crate) async fn sit_anywhere(&self, lane: usize, avoid: Vec<String>) -> Result<Seat, Error> {
        let end = Instant::now() + self.shared.config.patience;
        let mut pause = FIRST_PAUSE;
        loop {
            let mut tried = avoid.clone();
            let mut last = Error::Connect("no other replica is there".to_owned());
            while let Some(place) = self.shared.servers.next(&self.short(), &tried) {
                let (name, replica) = (place.name.clone(), place.replica().cloned());
                match self.connect(lane, place).await {
                    Ok(seat) => {
                        replica.iter().for_each(|replica| replica.succeeded());
                        return Ok(seat);
                    }
                    // Opening a session twice does no harm, so whatever was lost on the way may be tried elsewhere.
                    Err(error @ (Error::Connect(_) | Error::Broken(_) | Error::Timeout(_))) => {
                        replica.iter().for_each(|replica| replica.failed());
                        tried.push(name);
                        last = error;
                    }
                    Err(error) => return Err(error),
                }
            }
            if Instant::now() + pause >= end {
                return Err(last);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A call on this seat met a server that is not there. Waits for it, or moves; when this returns, another attempt is
    /// worthwhile. However many calls come here, one sees to it.
    pub(crate) async fn heal(&self, lane: usize, lost: &Arc<Seat>, error: &Error) -> Result<(), Error> {
        let Some(replica) = lost.place.replica() else { return Ok(()) };
        let _settling = self.lanes[lane].settling.lock().await;
        if self.lanes[lane].seat().is_none_or(|seat| !Arc::ptr_eq(&seat, lost)) {
            return Ok(());
        }
        let end = Instant::now() + self.shared.config.patience;
        let mut pause = FIRST_PAUSE;
        loop {
            // It may have been a moment's weakness, and whoever moves leaves behind what the server remembers.
            if replica.answers().await {
                replica.succeeded();
                return Ok(());
            }
            replica.failed();
            if self.shared.servers.has_other(&replica.name) {
                let seat = self.sit_anywhere(lane, vec![replica.name.clone()]).await?;
                tracing::info!(
                    session = self.short(),
                    from = replica.name,
                    to = seat.place.name,
                    "a session moves"
                );
                self.settle_in(lane, &seat).await;
                self.lanes[lane].sit(seat);
                return Ok(());
            }
            if Instant::now() + pause >= end {
                return Err(error.clone());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tells a new session at the server what the old one knew.
    async fn settle_in(&self, lane: usize, seat: &Seat) {
        let Some(open) = seat.client.session() else { return };
        for Repeat { method, params } in self.healed(lane, &seat.place.name, &open).await {
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
