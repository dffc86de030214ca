//! The keys in use: looked for when they are old or one is missing, by one at a time, and not too often.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_engine::{Clock, Time};
use tokio::sync::watch;

use crate::jwks::KeySet;
use crate::settings::Fetching;
use crate::source::{FetchError, Source};

/// What is known of an issuer's keys.
pub(crate) struct Keyring {
    source: Source,
    fetching: Fetching,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// How many looks have ended.
    ended: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    keys: Option<Fetched>,
    look: Look,
}

#[derive(Clone, Debug)]
struct Fetched {
    keys: Arc<KeySet>,
    at: Time,
}

/// The last look for keys.
#[derive(Clone, Copy, Debug, Default)]
enum Look {
    #[default]
    Never,
    /// Somebody is looking now.
    Under,
    Ended {
        at: Time,
        succeeded: bool,
    },
}

/// The keys as they are now.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// They need no look.
    Fresh(Arc<KeySet>),
    /// They are good if no newer ones can be had.
    Stale(Arc<KeySet>),
    Nothing,
}

/// What is known of the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastLook {
    Succeeded,
    /// Or not ended yet.
    Failed {
        next: Duration,
    },
}

/// A look that somebody makes.
#[derive(Debug)]
pub(crate) struct Looking(watch::Receiver<u64>);

impl Looking {
    pub(crate) async fn end(mut self) {
        // The sender lives as long as the keyring, and a look ends in bounded time.
        let _ = self.0.changed().await;
    }
}

impl Keyring {
    pub(crate) fn new(source: Source, fetching: Fetching, clock: Arc<dyn Clock>) -> Self {
        Self { source, fetching, clock, state: Mutex::default(), ended: watch::Sender::new(0) }
    }

    pub(crate) fn known(&self) -> Known {
        let now = self.clock.now();
        let state = self.state();
        let Some(Fetched { keys, at }) = &state.keys else { return Known::Nothing };
        let keys = Arc::clone(keys);
        if now < at.plus(self.fetching.fresh) {
            Known::Fresh(keys)
        } else if now < at.plus(self.fetching.stale) {
            Known::Stale(keys)
        } else {
            Known::Nothing
        }
    }

    /// Newer keys are wanted. However many want them, one looks, and all may wait for its end; nobody looks if somebody just
    /// has.
    pub(crate) fn look(self: &Arc<Self>) -> Option<Looking> {
        let now = self.clock.now();
        let mut state = self.state();
        let looking = Looking(self.ended.subscribe());
        match state.look {
            Look::Under => return Some(looking),
            Look::Ended { at, .. } if now < at.plus(self.fetching.pause) => return None,
            Look::Ended { .. } | Look::Never => {}
        }
        state.look = Look::Under;
        drop(state);
        // In a task of its own: whoever wished may be gone before it ends, and others wait.
        let keyring = Arc::clone(self);
        tokio::spawn(async move {
            let mut ending = Ending { keyring: &keyring, outcome: None };
            ending.outcome = Some(keyring.source.fetch().await);
        });
        Some(looking)
    }

    /// How the last look ended, and when the next one may begin.
    pub(crate) fn last_look(&self) -> LastLook {
        let now = self.clock.now();
        match self.state().look {
            Look::Ended { succeeded: true, .. } => LastLook::Succeeded,
            Look::Ended { at, .. } => {
                let next = at.plus(self.fetching.pause).0.saturating_sub(now.0);
                LastLook::Failed { next: Duration::from_millis(next) }
            }
            Look::Under | Look::Never => LastLook::Failed { next: self.fetching.timeout },
        }
    }

    /// Looks now, and says what is wrong if there is nothing.
    pub(crate) async fn load(&self) -> Result<(), FetchError> {
        self.end(self.source.fetch().await)
    }

    fn end(&self, outcome: Result<KeySet, FetchError>) -> Result<(), FetchError> {
        let now = self.clock.now();
        let mut state = self.state();
        state.look = Look::Ended { at: now, succeeded: outcome.is_ok() };
        let outcome = outcome.map(|keys| state.keys = Some(Fetched { keys: Arc::new(keys), at: now }));
        drop(state);
        self.ended.send_modify(|ended| *ended += 1);
        outcome
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Ends a look however its task ends.
struct Ending<'a> {
    keyring: &'a Keyring,
    outcome: Option<Result<KeySet, FetchError>>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let cut_off = || Err(FetchError::Unreachable("the look was cut off".to_owned()));
        let outcome = self.outcome.take().unwrap_or_else(cut_off);
        if let Err(error) = self.keyring.end(outcome) {
            tracing::warn!(source = %self.keyring.source, %error, "the keys of tokens cannot be had");
        }
    }
}
