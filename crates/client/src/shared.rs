//! State that the handles and the background tasks of one client share.

use std::fmt;
use std::sync::{Arc, Mutex};

use steadfast_wire::Revision;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::call::InFlight;
use crate::handler::ClientHandler;
use crate::legacy::Sessions;
use crate::modern::ToolAnnotations;
use crate::peer::Peer;
use crate::server_requests::ServerRequests;

pub(crate) struct Shared {
    pub(crate) peer: Peer,
    pub(crate) handler: Arc<dyn ClientHandler>,
    pub(crate) mode: Mode,
    pub(crate) server_requests: ServerRequests,
    /// One permit for each call that may be in flight.
    pub(crate) calls: Arc<Semaphore>,
    /// Cancelled when the client is closed. All tasks of the client end then.
    pub(crate) closing: CancellationToken,
    /// Closes the standalone stream. `None` while the stream is closed.
    pub(crate) standalone_stream: Mutex<Option<CancellationToken>>,
    /// Notified when the standalone stream is to be reopened.
    pub(crate) reopen_standalone: Notify,
    /// Cancelled when the standalone stream is closed permanently.
    pub(crate) standalone_disabled: CancellationToken,
    pub(crate) in_flight: InFlight,
    /// Notified when the server answers a call, which shows that the server is reachable.
    pub(crate) call_answered: Notify,
    /// Notified when the headers change: a server that refused the old credentials may accept the
    /// new ones.
    pub(crate) headers_changed: Box<Notify>,
}

/// The protocol in use: with sessions or stateless.
#[derive(Debug)]
pub(crate) enum Mode {
    Session(Sessions),
    Stateless(ToolAnnotations),
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
