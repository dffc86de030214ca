//! The sessions that this process has something to do with.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use steadfast_engine::SessionId;

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
    /// What sessions without a link have of the configuration before: whose turn it is there.
    inherited: HashMap<SessionId, Weak<Places>>,
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

    /// `make` is given the places that calls of the session have already, if there are any.
    pub(crate) fn find_or_add(
        &self,
        session: SessionId,
        make: impl FnOnce(Option<Arc<Places>>) -> Arc<Link>,
    ) -> Arc<Link> {
        let Inner { open, inherited, .. } = &mut *self.lock();
        let make = || make(inherited.remove(&session).and_then(|places| places.upgrade()));
        Arc::clone(open.entry(session).or_insert_with(make))
    }

    /// Whose turn it is in each session, for the links of the next configuration. `goes_on`: its calls stay where they are.
    pub(crate) fn leave(&self, goes_on: impl Fn(&Link) -> bool) -> HashMap<SessionId, Weak<Places>> {
        let mut inner = self.lock();
        let mut left = std::mem::take(&mut inner.inherited);
        left.retain(|_, places| places.strong_count() > 0);
        let open = inner.open.iter().filter(|(_, link)| goes_on(link));
        left.extend(open.map(|(session, link)| (*session, link.turns().places())));
        left
    }

    pub(crate) fn inherit(&self, left: HashMap<SessionId, Weak<Places>>) {
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
