//! What the sessions of a store hold together: a bound on it refuses new work, never what was accepted.

use crate::limits::{Limit, Limits};
use crate::session::Session;

/// The bytes of a session and of those beside it, as far as its store counts them: nothing is refused for what it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Held by all sessions of the store, this one included.
    pub store_bytes: Option<u64>,
    /// Held by those of its principal.
    pub principal_bytes: Option<u64>,
}

impl Crowd {
    /// The bound that these sessions have passed.
    pub fn over(self, limits: &Limits) -> Option<Limit> {
        if self.store_bytes > Some(limits.store_bytes) {
            Some(Limit::StoreBytes)
        } else if self.principal_bytes > Some(limits.principal_bytes) {
            Some(Limit::PrincipalBytes)
        } else {
            None
        }
    }

    /// With so many bytes more.
    #[must_use]
    pub fn and(self, bytes: u64) -> Self {
        self.map(|held| held.saturating_add(bytes))
    }

    /// With so many bytes less.
    #[must_use]
    pub(crate) fn without(self, bytes: u64) -> Self {
        self.map(|held| held.saturating_sub(bytes))
    }

    /// Whether room begins to get short: then answers that were written out are not kept for those who might come back for
    /// them, so that what has been read is no reason to refuse anybody.
    pub(crate) fn is_dense(self, limits: &Limits) -> bool {
        let most = |bound: u64| Some(bound - bound / 4);
        self.store_bytes > most(limits.store_bytes) || self.principal_bytes > most(limits.principal_bytes)
    }

    fn map(self, change: impl Fn(u64) -> u64) -> Self {
        let Self { store_bytes, principal_bytes } = self;
        Self { store_bytes: store_bytes.map(&change), principal_bytes: principal_bytes.map(change) }
    }
}

impl Session {
    /// What it holds in all: the messages of its streams, its state, answers and requests that are kept, and what the client
    /// said when it opened the session.
    pub fn held_bytes(&self) -> u64 {
        let said = self.facts().initialize.len() as u64;
        self.bytes + self.state_bytes + self.kept_answer_bytes + self.request_bytes + said
    }
}
