//! What a server may have said while nobody listened: nobody knows it, so the client is told to look.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_engine::{Class, SessionHandle, StateError};
use steadfast_wire::rpc::json_string;
use tokio::time::Instant;

use crate::link::Link;
use crate::record::Record;
use crate::seats::Seats;

/// The shortest time between two of these announcements. There are servers that end their stream all the time and have no ids
/// for what comes on it; whoever is told to look does so.
const PACE: Duration = Duration::from_secs(30);

/// When the client of a session is told that something may be missing.
#[derive(Debug, Default)]
pub(crate) struct Gaps(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    told: Option<Instant>,
    /// Somebody will tell.
    is_due: bool,
}

impl Gaps {
    /// Something may be missing. Gives when that is to be told, unless somebody else is about to.
    fn note(&self, now: Instant) -> Option<Instant> {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_due, true) {
            return None;
        }
        Some(state.told.map_or(now, |told| now.max(told + PACE)))
    }

    /// It is told now. What is noticed from here on is told anew.
    fn tell(&self, now: Instant) {
        *self.lock() = State { told: Some(now), is_due: false };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// The server's own stream goes on, and something may be missing on it.
    pub(crate) fn announce_a_gap(self: &Arc<Self>) {
        let Some(time) = self.gaps().note(Instant::now()) else { return };
        let link = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(time).await;
            let Some(link) = link.upgrade().filter(|link| !link.is_closed()) else { return };
            link.gaps().tell(Instant::now());
            // Whoever has the lease sees to it.
            let Some(session) = link.session().filter(|_| link.lease.is_ours()) else { return };
            let (seats, record) = match (Seats::load(&session).await, Record::load(&session).await) {
                (Ok(seats), Ok(record)) => (seats.map(|(seats, _)| seats), record),
                (Err(StateError::NoSession), _) | (_, Err(StateError::NoSession)) => return,
                // It is not forgotten, only told later.
                (Err(_), _) | (_, Err(_)) => return link.announce_a_gap(),
            };
            let (seats, record) = (seats.unwrap_or_default(), record.unwrap_or_default());
            tracing::info!(session = link.short(), "messages on the server's own stream may be missing");
            link.announce_changes(&session, &seats, &record).await;
        });
    }

    /// Tells the client that what it knows of the server's lists, and of the resources that it watches, may be out of date.
    pub(crate) async fn announce_changes(&self, session: &SessionHandle, seats: &Seats, record: &Record) {
        for kind in ["tools", "prompts", "resources"] {
            if seats.offers(kind, Some("listChanged")) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_later_ones_together() {
        let (gaps, start) = (Gaps::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert_eq!(gaps.note(start), Some(start));
        assert_eq!(gaps.note(start + second), None, "it is about to be told");
        gaps.tell(start + second);
        assert_eq!(gaps.note(start + second * 2), Some(start + second + PACE));
        assert_eq!(gaps.note(start + second * 3), None, "that is told with it");
        gaps.tell(start + second + PACE);
        let late = start + second * 2 + PACE * 2;
        assert_eq!(gaps.note(late), Some(late), "long after");
    }
}
