//! What a lifecycle listener heard.

use std::sync::Arc;

use steadfast::{SessionEvent, SessionEventKind, SessionId};
use tokio::sync::watch;

use super::{Session, within};

/// Everything that was heard, in order.
#[derive(Clone, Debug)]
pub(crate) struct Heard(Arc<watch::Sender<Vec<(SessionId, SessionEventKind)>>>);

impl Heard {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    pub(crate) fn note(&self, event: &SessionEvent) {
        self.0.send_modify(|heard| heard.push((event.session.id, event.kind)));
    }

    /// What has been heard of a session so far.
    pub(crate) fn is_silent(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(crate) fn of(&self, session: &Session) -> Vec<SessionEventKind> {
        let id = session.session_id();
        self.0.borrow().iter().filter(|(of, _)| *of == id).map(|(_, kind)| *kind).collect()
    }

    /// Waits until something has been heard of a session so many times.
    pub(crate) async fn times(&self, session: &Session, kind: SessionEventKind, count: usize) {
        let id = session.session_id();
        let so_often = |heard: &Vec<(SessionId, SessionEventKind)>| {
            heard.iter().filter(|event| **event == (id, kind)).count() >= count
        };
        let mut heard = self.0.subscribe();
        within(&format!("{kind:?} ×{count}"), heard.wait_for(so_often)).await.expect("the sender is here");
    }

    pub(crate) async fn once(&self, session: &Session, kind: SessionEventKind) {
        self.times(session, kind, 1).await;
    }
}
