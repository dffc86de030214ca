//! Missed events: after a gap in the standalone stream the gateway does not know which
//! notifications were lost, so it tells the client to read the lists and the subscribed resources
//! again.

use std::sync::Arc;
use std::time::Duration;

use steadfast_engine::{Class, SessionHandle, StateError};
use steadfast_wire::Mutex;
use steadfast_wire::rpc::json_string;
use tokio::time::Instant;

use crate::placement::stored_placement::Placement;
use crate::session::client_session::ClientSession;
use crate::session::replay_state::ReplayState;

/// The minimum interval between two announcements. Some servers end their stream all the time and
/// send no event ids, and each announcement causes several requests of the client.
const MIN_ANNOUNCE_INTERVAL: Duration = Duration::from_secs(30);

/// Limits how often missed events are announced to a client.
#[derive(Debug, Default)]
pub(crate) struct AnnouncementLimit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    announced_at: Option<Instant>,
    /// A task is going to announce missed events.
    is_scheduled: bool,
}

impl AnnouncementLimit {
    /// Returns when to announce missed events, or `None` if an announcement is scheduled already.
    fn schedule(&self, now: Instant) -> Option<Instant> {
        let mut state = self.0.lock();
        if std::mem::replace(&mut state.is_scheduled, true) {
            return None;
        }
        Some(state.announced_at.map_or(now, |announced_at| now.max(announced_at + MIN_ANNOUNCE_INTERVAL)))
    }

    /// Records an announcement. Events that are missed later need another one.
    fn announced(&self, now: Instant) {
        *self.0.lock() = State { announced_at: Some(now), is_scheduled: false };
    }
}

impl ClientSession {
    /// Announces that events may have been lost before the standalone stream was opened again.
    pub(crate) fn announce_missed_events(self: &Arc<Self>) {
        let Some(time) = self.announcement_limit().schedule(Instant::now()) else { return };
        let client_session = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(time).await;
            let Some(client_session) = client_session.upgrade().filter(|session| !session.is_closed()) else {
                return;
            };
            client_session.announcement_limit().announced(Instant::now());
            // The lease holder announces missed events.
            let Some(session) = client_session.session().filter(|_| client_session.lease.is_held_here())
            else {
                return;
            };
            let (placement, replay_state) =
                match (Placement::load(&session).await, ReplayState::load(&session).await) {
                    (Ok(placement), Ok(replay_state)) => {
                        (placement.map(|(placement, _)| placement), replay_state)
                    }
                    (Err(StateError::NoSession), _) | (_, Err(StateError::NoSession)) => return,
                    // The store failed. The announcement is made later.
                    (Err(_), _) | (_, Err(_)) => return client_session.announce_missed_events(),
                };
            let (placement, replay_state) = (placement.unwrap_or_default(), replay_state.unwrap_or_default());
            tracing::info!(
                session = client_session.short(),
                "messages on the standalone stream of the server may be missing"
            );
            client_session.announce_changes(&session, &placement, &replay_state).await;
        });
    }

    /// Notifies the client that the lists of the server and the subscribed resources may have
    /// changed.
    pub(crate) async fn announce_changes(
        &self,
        session: &SessionHandle,
        placement: &Placement,
        replay_state: &ReplayState,
    ) {
        for kind in ["tools", "prompts", "resources"] {
            if placement.offers(kind, Some("listChanged")) {
                let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{kind}/list_changed"}}"#);
                self.notify_client(session, Class::Notification, text.into()).await;
            }
        }
        for uri in &replay_state.subscriptions {
            let uri = json_string(uri);
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":{uri}}}}}"#
            );
            self.notify_client(session, Class::Notification, text.into()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_announced_at_once_and_later_ones_together() {
        let (limit, start) = (AnnouncementLimit::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert_eq!(limit.schedule(start), Some(start));
        assert_eq!(limit.schedule(start + second), None, "it is scheduled");
        limit.announced(start + second);
        assert_eq!(limit.schedule(start + second * 2), Some(start + second + MIN_ANNOUNCE_INTERVAL));
        assert_eq!(limit.schedule(start + second * 3), None, "it is part of the scheduled one");
        limit.announced(start + second + MIN_ANNOUNCE_INTERVAL);
        let late = start + second * 2 + MIN_ANNOUNCE_INTERVAL * 2;
        assert_eq!(limit.schedule(late), Some(late), "long after");
    }
}
