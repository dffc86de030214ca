//! The bytes that all sessions of a store hold together. When they exceed a limit, new work is
//! refused, but calls and server requests that were accepted can still finish.

use crate::lifecycle_events::CloseReason;
use crate::limits::{Limit, Limits};
use crate::session::Session;

/// The bytes that all sessions of a store hold, as far as the store counts them. A sum that the
/// store does not count is `None` and has no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedUsage {
    /// The bytes of all sessions of the store, including the current one.
    pub store_bytes: Option<u64>,
    /// The bytes of all sessions of the current session's principal.
    pub principal_bytes: Option<u64>,
}

impl SharedUsage {
    /// Returns the limit that is exceeded, if one is.
    pub fn exceeded_limit(self, limits: &Limits) -> Option<Limit> {
        if self.store_bytes > Some(limits.store_bytes) {
            Some(Limit::StoreBytes)
        } else if self.principal_bytes > Some(limits.principal_bytes) {
            Some(Limit::PrincipalBytes)
        } else {
            None
        }
    }

    /// Returns the usage with `bytes` added.
    #[must_use]
    pub fn plus(self, bytes: u64) -> Self {
        self.map(|held| held.saturating_add(bytes))
    }

    #[must_use]
    pub(crate) fn minus(self, bytes: u64) -> Self {
        self.map(|held| held.saturating_sub(bytes))
    }

    /// Returns true if more than three quarters of a limit are used.
    ///
    /// The session then evicts fully delivered streams, so that events which were already read do
    /// not cause a refusal.
    pub(crate) fn is_nearly_full(self, limits: &Limits) -> bool {
        self.nearly_exceeded_limit(limits).is_some()
    }

    /// Returns the limit of which more than three quarters are used, if there is one.
    pub(crate) fn nearly_exceeded_limit(self, limits: &Limits) -> Option<Limit> {
        let threshold = |bound: u64| bound - bound / 4;
        let (store_bytes, principal_bytes) =
            (threshold(limits.store_bytes), threshold(limits.principal_bytes));
        self.exceeded_limit(&Limits { store_bytes, principal_bytes, ..limits.clone() })
    }

    fn map(self, change: impl Fn(u64) -> u64) -> Self {
        let Self { store_bytes, principal_bytes } = self;
        Self { store_bytes: store_bytes.map(&change), principal_bytes: principal_bytes.map(change) }
    }
}

impl Session {
    /// Returns all bytes that the session holds: its streams, its state, stored answers and
    /// requests, and the parameters of `initialize`.
    ///
    /// An evicted session counts as empty at once, although it is removed later: it was evicted to
    /// make room.
    pub fn held_bytes(&self) -> u64 {
        if matches!(self.meta.closed, Some((CloseReason::Evicted, _))) {
            return 0;
        }
        let initialize = self.facts().initialize.len() as u64;
        self.bytes + self.state_bytes + self.kept_answer_bytes + self.kept_request_bytes + initialize
    }
}
