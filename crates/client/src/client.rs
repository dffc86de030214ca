//! The client: what its owner holds.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderMap;
use steadfast_wire::Revision;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::asks::Asks;
use crate::call::{Call, CallOptions};
use crate::config::{Config, Standalone};
use crate::era::{self, Peer};
use crate::errand::{Errand, Listener};
use crate::error::Error;
use crate::in_flight::InFlight;
use crate::legacy::{self, Sessions};
use crate::link::Link;
use crate::modern::{self, Tools};
use crate::owner::Owner;
use crate::shared::{Mode, Shared};
use crate::transport::{Http, Transport};
use steadfast_wire::members::Members;

/// A client of one server. Clones are the same client; when the last of them and of its calls is gone, everything that
/// runs for it ends, but only [`close`](Self::close) ends the session at the server.
#[derive(Clone, Debug)]
pub struct Client {
    life: Arc<Life>,
}

impl Client {
    /// Connects over plain HTTP: agrees on a revision, and opens a session if that has sessions.
    pub async fn connect(config: Config, owner: impl Owner) -> Result<Self, Error> {
        let transport = Http::new(&config.timeouts, &config.limits);
        Self::connect_over(transport, config, owner).await
    }

    /// Connects over any transport.
    pub async fn connect_over(
        transport: impl Transport,
        config: Config,
        owner: impl Owner,
    ) -> Result<Self, Error> {
        let link = Link::new(Arc::new(transport), &config)?;
        let mode = match era::settle(&link, config.era).await? {
            Peer::Session(session) => Mode::Session(Sessions::new(session)),
            Peer::Stateless(server) => Mode::Stateless(Tools::new(server, &config)),
        };
        Ok(Self::start(link, mode, &config, owner))
    }

    /// Goes on with a session that was opened before, maybe by another process. Nothing is sent: if the server has forgotten
    /// it, the first call finds out.
    pub fn resume_over(
        transport: impl Transport,
        config: &Config,
        session: OpenSession,
        owner: impl Owner,
    ) -> Result<Self, Error> {
        let link = Link::new(Arc::new(transport), config)?;
        let mode = Mode::Session(Sessions::new(legacy::reopen(session)?));
        Ok(Self::start(link, mode, config, owner))
    }

    fn start(link: Link, mode: Mode, config: &Config, owner: impl Owner) -> Self {
        let shared = Arc::new(Shared {
            asks: Asks::new(config.order, &config.limits),
            calls: Arc::new(Semaphore::new(config.limits.calls)),
            closing: CancellationToken::new(),
            in_flight: InFlight::default(),
            answered: Notify::new(),
            shown: Box::default(),
            reopening: Notify::new(),
            deaf: CancellationToken::new(),
            standalone: Mutex::default(),
            owner: Arc::new(owner),
            link,
            mode,
        });
        let client = Self { life: Arc::new(Life { shared }) };
        if config.standalone == Standalone::Held {
            client.hold_standalone();
        }
        client
    }

    /// Holds the standalone stream of the session from now on, if that was not done before.
    pub fn hold_standalone(&self) {
        let shared = &self.life.shared;
        let has_session = matches!(shared.mode, Mode::Session(_));
        let mut standalone = shared.standalone.lock().unwrap_or_else(PoisonError::into_inner);
        if has_session && standalone.is_none() {
            let released = standalone.insert(CancellationToken::new()).clone();
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                tokio::select! {
                    () = released.cancelled() => {}
                    () = legacy::hold_standalone(shared) => {}
                }
            });
        }
    }

    /// Opens it again from where it is, if it is open and the server has said nothing on it yet. It may be one on which it never
    /// will: there are servers that give us such a one while somebody else has the stream.
    pub fn reopen_standalone(&self) {
        self.life.shared.reopening.notify_waiters();
    }

    /// Does not hold it any more, if it did.
    pub fn release_standalone(&self) {
        let mut standalone = self.life.shared.standalone.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = standalone.take() {
            held.cancel();
        }
    }

    /// Lets go of the standalone stream at once, and for good: somebody else listens. Calls are not concerned.
    pub fn leave_standalone(&self) {
        self.life.shared.deaf.cancel();
    }

    /// Begins a call. `params` is the JSON text of an object.
    pub fn call(&self, method: &str, params: Option<&str>) -> Result<Call, Error> {
        self.call_with(method, params, CallOptions::default())
    }

    pub fn call_with(&self, method: &str, params: Option<&str>, options: CallOptions) -> Result<Call, Error> {
        Call::start(&self.life, method, params, options)
    }

    /// A call for whoever wants to run it in a task of its own: nothing is sent before [`Errand::run`].
    pub fn errand(
        &self,
        method: &str,
        params: Option<&str>,
        options: CallOptions,
        listener: Arc<dyn Listener>,
    ) -> Result<Errand, Error> {
        Errand::new(&self.life, method, params, options, listener)
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: Option<&str>) -> Result<(), Error> {
        let shared = &self.life.shared;
        if shared.closing.is_cancelled() {
            return Err(Error::Closed);
        }
        let params = params.map(Members::parse).transpose().map_err(|_| Error::BadParams)?;
        match &shared.mode {
            Mode::Session(sessions) => legacy::notify(shared, sessions, method, params.as_ref()).await,
            Mode::Stateless(_) => modern::notify(shared, method, params).await,
        }
    }

    /// From now on these are sent with every request, in place of those of the configuration.
    pub fn set_headers(&self, headers: HeaderMap) {
        self.life.shared.link.set_headers(headers);
        self.life.shared.shown.notify_one();
    }

    /// The revision in use.
    pub fn revision(&self) -> Revision {
        self.life.shared.revision()
    }

    /// What the server said of itself: the JSON text of the result of `initialize` or `server/discover`.
    pub fn server(&self) -> Bytes {
        match &self.life.shared.mode {
            Mode::Session(sessions) => sessions.current().server.clone(),
            Mode::Stateless(tools) => tools.server(),
        }
    }

    /// The id of the session, if there is one and the server gave it a name.
    pub fn session_id(&self) -> Option<String> {
        match &self.life.shared.mode {
            Mode::Session(sessions) => sessions.current().id_text(),
            Mode::Stateless(_) => None,
        }
    }

    /// The session in use, for whoever goes on with it later.
    pub fn session(&self) -> Option<OpenSession> {
        match &self.life.shared.mode {
            Mode::Session(sessions) => Some(sessions.current().open()),
            Mode::Stateless(_) => None,
        }
    }

    /// Ends the client: calls in flight end with [`Error::Closed`], asks are dropped, and the server is told to forget the
    /// session.
    pub async fn close(self) -> Result<(), Error> {
        let shared = &self.life.shared;
        shared.closing.cancel();
        match &shared.mode {
            Mode::Session(sessions) => legacy::close(shared, &sessions.current()).await,
            Mode::Stateless(_) => Ok(()),
        }
    }
}

/// A session that the server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSession {
    /// A server may do without.
    pub id: Option<String>,
    pub revision: Revision,
    /// The JSON text of the result of `initialize`.
    pub server: Bytes,
}

/// Ends what runs for a client when the last handle is dropped.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Life {
    fn drop(&mut self) {
        self.shared.closing.cancel();
    }
}
