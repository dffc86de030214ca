//! The sessions that this process has something to do with.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use steadfast_engine::SessionId;

use crate::in_flight::InFlight;
use crate::link::Link;
use crate::turns::Places;

/// Sessions that are remembered after their end. It may be told more than once, soon after each other.
const MAX_ENDED: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    open: HashMap<SessionId, Arc<Link>>,
    /// Those whose link was removed last, the newest at the end.
    ended: VecDeque<SessionId>,
    /// What sessions without a link have of the configuration before.
    inherited: HashMap<SessionId, Legacy>,
}

/// What calls that run at the server leave to the link of the next configuration, for as long as they run.
#[derive(Clone, Debug)]
pub(crate) struct Legacy {
    places: Weak<Places>,
    in_flight: Weak<InFlight>,
}

/// The same, for the one who has it.
#[derive(Debug, Default)]
pub(crate) struct Heritage {
    /// Whose turn it is.
    pub(crate) places: Option<Arc<Places>>,
    pub(crate) in_flight: Option<Arc<InFlight>>,
}

/// What was known of a session that is to be forgotten.
pub(crate) enum Removed {
    Link(Arc<Link>),
    /// It had a link, which was removed a while ago.
    Before,
    /// This process had nothing to do with it.
    Unknown,
}

impl Links {
    pub(crate) fn add(&self, session: SessionId, link: Arc<Link>) {
        self.lock().open.insert(session, link);
    }

    pub(crate) fn find(&self, session: &SessionId) -> Option<Arc<Link>> {
        self.lock().open.get(session).cloned()
    }

    /// `make` is given what there is of calls of the session that run already.
    pub(crate) fn find_or_add(
        &self,
        session: SessionId,
        make: impl FnOnce(Heritage) -> Arc<Link>,
    ) -> Arc<Link> {
        let Inner { open, inherited, .. } = &mut *self.lock();
        let make = || make(inherited.remove(&session).map(|legacy| legacy.claimed()).unwrap_or_default());
        Arc::clone(open.entry(session).or_insert_with(make))
    }

    /// What there is for the links of the next configuration. `goes_on`: its calls stay where they are.
    pub(crate) fn leave(&self, goes_on: impl Fn(&Link) -> bool) -> HashMap<SessionId, Legacy> {
        let mut inner = self.lock();
        let mut left = std::mem::take(&mut inner.inherited);
        left.retain(|_, legacy| legacy.is_left());
        let open = inner.open.iter().filter(|(_, link)| goes_on(link));
        left.extend(open.map(|(session, link)| (*session, Legacy::of(link))));
        left
    }

    pub(crate) fn inherit(&self, left: HashMap<SessionId, Legacy>) {
        self.lock().inherited = left;
    }

    pub(crate) fn remove(&self, session: &SessionId) -> Removed {
        let mut inner = self.lock();
        inner.inherited.remove(session);
        let Some(link) = inner.open.remove(session) else {
            return if inner.ended.contains(session) { Removed::Before } else { Removed::Unknown };
        };
        if inner.ended.len() == MAX_ENDED {
            inner.ended.pop_front();
        }
        inner.ended.push_back(*session);
        Removed::Link(link)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Link>> {
        self.lock().open.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Legacy {
    fn of(link: &Link) -> Self {
        Self { places: link.turns().places(), in_flight: Arc::downgrade(&link.in_flight) }
    }

    fn is_left(&self) -> bool {
        self.places.strong_count() > 0 || self.in_flight.strong_count() > 0
    }

    fn claimed(&self) -> Heritage {
        Heritage { places: self.places.upgrade(), in_flight: self.in_flight.upgrade() }
    }
}
