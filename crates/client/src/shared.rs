//! What all parts of a client share.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_wire::{RequestId, Revision};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::asks::Asks;
use crate::errand::Listener;
use crate::legacy::Sessions;
use crate::link::Link;
use crate::modern::Tools;
use crate::owner::Owner;

pub(crate) struct Shared {
    pub(crate) link: Link,
    pub(crate) owner: Arc<dyn Owner>,
    pub(crate) mode: Mode,
    pub(crate) asks: Asks,
    /// One permit for each call that may be in flight.
    pub(crate) calls: Arc<Semaphore>,
    /// Ends everything that runs.
    pub(crate) closing: CancellationToken,
    /// Ends the holding of the standalone stream, while somebody holds it.
    pub(crate) standalone: Mutex<Option<CancellationToken>>,
    /// Told when the standalone stream is to be opened again.
    pub(crate) reopening: Notify,
    /// Ends the standalone stream, and nobody opens it again.
    pub(crate) deaf: CancellationToken,
    pub(crate) progress: Progress,
    /// Told whenever the server has answered a call: it is there.
    pub(crate) answered: Notify,
    /// Told whenever other headers are sent: a server that refused us may not do so any more.
    pub(crate) shown: Box<Notify>,
}

/// How the server is spoken to.
#[derive(Debug)]
pub(crate) enum Mode {
    Session(Sessions),
    Stateless(Tools),
}

impl Shared {
    pub(crate) fn revision(&self) -> Revision {
        match &self.mode {
            Mode::Session(sessions) => sessions.current().revision,
            Mode::Stateless(_) => Revision::V2026_07_28,
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

/// Who wants to hear the progress of which token, on whatever stream it comes.
#[derive(Default)]
pub(crate) struct Progress(Mutex<HashMap<RequestId, Arc<dyn Listener>>>);

/// Ends the interest in a token when it is dropped.
pub(crate) struct Interest<'a> {
    progress: &'a Progress,
    token: RequestId,
}

impl Progress {
    pub(crate) fn watch(&self, token: &RequestId, listener: Arc<dyn Listener>) -> Interest<'_> {
        self.lock().insert(token.clone(), listener);
        Interest { progress: self, token: token.clone() }
    }

    pub(crate) fn listener(&self, token: &RequestId) -> Option<Arc<dyn Listener>> {
        self.lock().get(token).cloned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RequestId, Arc<dyn Listener>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Interest<'_> {
    fn drop(&mut self) {
        self.progress.lock().remove(&self.token);
    }
}
