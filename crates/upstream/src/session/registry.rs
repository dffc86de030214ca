//! The client sessions of this node, and what they take over on a configuration reload.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use steadfast_engine::SessionId;
use steadfast_wire::Mutex;

use crate::call::concurrency::Permits;
use crate::session::client_session::ClientSession;
use crate::session::in_flight::InFlight;

/// How many ended sessions the registry remembers. The engine may report the end of a session more
/// than once within a short time.
const MAX_REMEMBERED_ENDS: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct SessionRegistry(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    open: HashMap<SessionId, Arc<ClientSession>>,
    /// Sessions whose client session was removed, the newest last.
    ended: VecDeque<SessionId>,
    /// What sessions without a client session take over from the upstream before the reload.
    from_reload: HashMap<SessionId, WeakReloadState>,
}

/// State of running calls that the client session takes over after a configuration reload. Weak: it
/// is needed only while such calls run.
#[derive(Clone, Debug)]
pub(crate) struct WeakReloadState {
    permits: Weak<Permits>,
    in_flight: Weak<InFlight>,
}

/// The state of running calls that a client session takes over after a configuration reload.
#[derive(Debug, Default)]
pub(crate) struct ReloadState {
    /// The permits of the running calls.
    pub(crate) permits: Option<Arc<Permits>>,
    pub(crate) in_flight: Option<Arc<InFlight>>,
}

pub(crate) enum Removed {
    ClientSession(Arc<ClientSession>),
    /// Its client session was removed before.
    Earlier,
    /// This node never had a client session for it.
    Unknown,
}

impl SessionRegistry {
    pub(crate) fn add(&self, session: SessionId, client_session: Arc<ClientSession>) {
        self.0.lock().open.insert(session, client_session);
    }

    pub(crate) fn find(&self, session: &SessionId) -> Option<Arc<ClientSession>> {
        self.0.lock().open.get(session).cloned()
    }

    /// Returns the client session, or creates it with `make`, which receives the state of calls
    /// that still run on the upstream before the reload.
    pub(crate) fn find_or_add(
        &self,
        session: SessionId,
        make: impl FnOnce(ReloadState) -> Arc<ClientSession>,
    ) -> Arc<ClientSession> {
        let Inner { open, from_reload, .. } = &mut *self.0.lock();
        let make = || make(from_reload.remove(&session).map(|state| state.upgrade()).unwrap_or_default());
        Arc::clone(open.entry(session).or_insert_with(make))
    }

    /// Returns the state that the next upstream takes over on a configuration reload.
    /// `is_continued` returns true if the server of the client session stays the same.
    pub(crate) fn export_reload_state(
        &self,
        is_continued: impl Fn(&ClientSession) -> bool,
    ) -> HashMap<SessionId, WeakReloadState> {
        let mut inner = self.0.lock();
        let mut states = std::mem::take(&mut inner.from_reload);
        states.retain(|_, state| state.is_alive());
        let open = inner.open.iter().filter(|(_, client_session)| is_continued(client_session));
        states.extend(open.map(|(session, client_session)| (*session, WeakReloadState::of(client_session))));
        states
    }

    pub(crate) fn import_reload_state(&self, states: HashMap<SessionId, WeakReloadState>) {
        self.0.lock().from_reload = states;
    }

    pub(crate) fn remove(&self, session: &SessionId) -> Removed {
        let mut inner = self.0.lock();
        inner.from_reload.remove(session);
        let Some(client_session) = inner.open.remove(session) else {
            return if inner.ended.contains(session) { Removed::Earlier } else { Removed::Unknown };
        };
        if inner.ended.len() == MAX_REMEMBERED_ENDS {
            inner.ended.pop_front();
        }
        inner.ended.push_back(*session);
        Removed::ClientSession(client_session)
    }

    pub(crate) fn all(&self) -> Vec<Arc<ClientSession>> {
        self.0.lock().open.values().cloned().collect()
    }
}

impl WeakReloadState {
    fn of(client_session: &ClientSession) -> Self {
        Self {
            permits: client_session.concurrency().permits(),
            in_flight: Arc::downgrade(&client_session.in_flight),
        }
    }

    fn is_alive(&self) -> bool {
        self.permits.strong_count() > 0 || self.in_flight.strong_count() > 0
    }

    fn upgrade(&self) -> ReloadState {
        ReloadState { permits: self.permits.upgrade(), in_flight: self.in_flight.upgrade() }
    }
}
