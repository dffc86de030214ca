//! [`KeyCache`]: caches the issuer's keys and fetches them again.
//!
//! Keys are fetched when they are old or when a token names an unknown key. At most one fetch runs
//! at a time; all requests that need it wait for it. A minimum interval separates two fetches. If a
//! fetch fails, the cached keys stay in use for a bounded time.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_engine::{Clock, Time};
use tokio::sync::watch;

use crate::jwks::KeySet;
use crate::key_source::{FetchError, KeySource};
use crate::settings::Fetching;

pub(crate) struct KeyCache {
    source: KeySource,
    fetching: Fetching,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// The number of fetches that have ended.
    ended: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    keys: Option<Fetched>,
    fetch: FetchState,
}

#[derive(Clone, Debug)]
struct Fetched {
    keys: Arc<KeySet>,
    at: Time,
}

#[derive(Clone, Copy, Debug, Default)]
enum FetchState {
    #[default]
    Never,
    Running,
    Ended {
        at: Time,
        succeeded: bool,
    },
}

/// The cached keys, by their age.
#[derive(Clone, Debug)]
pub(crate) enum CurrentKeys {
    /// No fetch is needed.
    Fresh(Arc<KeySet>),
    /// Usable only if a fetch fails.
    Stale(Arc<KeySet>),
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastFetch {
    Succeeded,
    /// The fetch failed, or has not ended.
    Failed {
        /// The time until the next fetch may start.
        next: Duration,
    },
}

#[derive(Debug)]
pub(crate) struct PendingFetch(watch::Receiver<u64>);

impl PendingFetch {
    /// Waits until the fetch has ended.
    pub(crate) async fn ended(mut self) {
        // The sender lives as long as the cache, and a fetch ends in bounded time.
        let _ = self.0.changed().await;
    }
}

impl KeyCache {
    pub(crate) fn new(source: KeySource, fetching: Fetching, clock: Arc<dyn Clock>) -> Self {
        Self { source, fetching, clock, state: Mutex::default(), ended: watch::Sender::new(0) }
    }

    pub(crate) fn current(&self) -> CurrentKeys {
        let now = self.clock.now();
        let state = self.state();
        let Some(Fetched { keys, at }) = &state.keys else { return CurrentKeys::None };
        let keys = Arc::clone(keys);
        if now < at.plus(self.fetching.fresh) {
            CurrentKeys::Fresh(keys)
        } else if now < at.plus(self.fetching.stale) {
            CurrentKeys::Stale(keys)
        } else {
            CurrentKeys::None
        }
    }

    /// Starts a fetch, unless one is running. Returns the running fetch, or `None` if the last
    /// fetch ended less than [`Fetching::pause`] ago.
    pub(crate) fn fetch(self: &Arc<Self>) -> Option<PendingFetch> {
        let now = self.clock.now();
        let mut state = self.state();
        let pending = PendingFetch(self.ended.subscribe());
        match state.fetch {
            FetchState::Running => return Some(pending),
            FetchState::Ended { at, .. } if now < at.plus(self.fetching.pause) => return None,
            FetchState::Ended { .. } | FetchState::Never => {}
        }
        state.fetch = FetchState::Running;
        drop(state);
        // The fetch runs in its own task, because the request that starts it may be dropped while
        // other requests wait for it.
        let cache = Arc::clone(self);
        tokio::spawn(async move {
            let mut guard = FetchGuard { cache: &cache, outcome: None };
            guard.outcome = Some(cache.source.fetch().await);
        });
        Some(pending)
    }

    /// Returns how the last fetch ended, and when the next one may start.
    pub(crate) fn last_fetch(&self) -> LastFetch {
        let now = self.clock.now();
        match self.state().fetch {
            FetchState::Ended { succeeded: true, .. } => LastFetch::Succeeded,
            FetchState::Ended { at, .. } => {
                let next = at.plus(self.fetching.pause).0.saturating_sub(now.0);
                LastFetch::Failed { next: Duration::from_millis(next) }
            }
            FetchState::Running | FetchState::Never => LastFetch::Failed { next: self.fetching.timeout },
        }
    }

    /// Fetches the keys now. Fails if they cannot be fetched.
    pub(crate) async fn load(&self) -> Result<(), FetchError> {
        self.finish(self.source.fetch().await)
    }

    fn finish(&self, outcome: Result<KeySet, FetchError>) -> Result<(), FetchError> {
        let now = self.clock.now();
        let mut state = self.state();
        state.fetch = FetchState::Ended { at: now, succeeded: outcome.is_ok() };
        let outcome = outcome.map(|keys| state.keys = Some(Fetched { keys: Arc::new(keys), at: now }));
        drop(state);
        self.ended.send_modify(|ended| *ended += 1);
        outcome
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for KeyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCache").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Records the end of a fetch, also if its task panics or is dropped.
struct FetchGuard<'a> {
    cache: &'a KeyCache,
    outcome: Option<Result<KeySet, FetchError>>,
}

impl Drop for FetchGuard<'_> {
    fn drop(&mut self) {
        let aborted = || Err(FetchError::Unreachable("the fetch was aborted".to_owned()));
        let outcome = self.outcome.take().unwrap_or_else(aborted);
        if let Err(error) = self.cache.finish(outcome) {
            tracing::warn!(source = %self.cache.source, %error, "could not fetch the keys for token verification");
        }
    }
}
