//! What all parts of a client share.

use std::fmt;
use std::sync::{Arc, Mutex};

use steadfast_wire::Revision;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::asks::Asks;
use crate::in_flight::InFlight;
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
    pub(crate) in_flight: InFlight,
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
