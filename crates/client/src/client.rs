//! The client itself: connecting, calls, notifications, the standalone stream and closing.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderMap;
use steadfast_wire::{RawObject, Revision};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::call::{Call, CallObserver, CallOptions, InFlight, PreparedCall};
use crate::config::{Config, StandaloneStream};
use crate::error::Error;
use crate::handler::ClientHandler;
use crate::legacy::{self, Sessions};
use crate::modern::{self, ToolAnnotations};
use crate::negotiation::{self, Negotiated};
use crate::peer::Peer;
use crate::server_requests::ServerRequests;
use crate::shared::{Mode, Shared};
use crate::transport::{Http, Transport};

/// A client of one server. Clones share one client. When the last clone and the last of its calls
/// are dropped, all background tasks of the client end. Only [`close`](Self::close) ends the
/// session at the server.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

impl Client {
    /// Connects over plain HTTP. Negotiates a revision, and opens a session if that revision has
    /// sessions.
    pub async fn connect(config: Config, handler: impl ClientHandler) -> Result<Self, Error> {
        let transport = Http::new(&config.timeouts, &config.limits);
        Self::connect_over(transport, config, handler).await
    }

    /// Connects over the given transport.
    pub async fn connect_over(
        transport: impl Transport,
        config: Config,
        handler: impl ClientHandler,
    ) -> Result<Self, Error> {
        let peer = Peer::new(Arc::new(transport), &config)?;
        let mode = match negotiation::negotiate(&peer, config.era).await? {
            Negotiated::Session(session) => Mode::Session(Sessions::new(session)),
            Negotiated::Stateless(server) => Mode::Stateless(ToolAnnotations::new(server, &config)),
        };
        Ok(Self::start(peer, mode, &config, handler))
    }

    /// Continues a session that was opened earlier, possibly by another process. Sends nothing: if
    /// the server has lost the session, the first call discovers that.
    pub fn resume_over(
        transport: impl Transport,
        config: &Config,
        session: OpenSession,
        handler: impl ClientHandler,
    ) -> Result<Self, Error> {
        let peer = Peer::new(Arc::new(transport), config)?;
        let mode = Mode::Session(Sessions::new(legacy::resume_session(session)?));
        Ok(Self::start(peer, mode, config, handler))
    }

    fn start(peer: Peer, mode: Mode, config: &Config, handler: impl ClientHandler) -> Self {
        let shared = Arc::new(Shared {
            server_requests: ServerRequests::new(config.server_request_order, &config.limits),
            calls: Arc::new(Semaphore::new(config.limits.calls)),
            closing: CancellationToken::new(),
            in_flight: InFlight::default(),
            call_answered: Notify::new(),
            headers_changed: Box::default(),
            reopen_standalone: Notify::new(),
            standalone_disabled: CancellationToken::new(),
            standalone_stream: Mutex::default(),
            handler: Arc::new(handler),
            peer,
            mode,
        });
        let client = Self { inner: Arc::new(Inner { shared }) };
        if config.standalone_stream == StandaloneStream::Open {
            client.open_standalone_stream();
        }
        client
    }

    /// Opens the standalone stream of the session and keeps it open. Does nothing if it is open
    /// already or if the revision has no sessions.
    pub fn open_standalone_stream(&self) {
        let shared = &self.inner.shared;
        let has_session = matches!(shared.mode, Mode::Session(_));
        let mut standalone_stream = shared.standalone_stream.lock().unwrap_or_else(PoisonError::into_inner);
        if has_session && standalone_stream.is_none() {
            let released = standalone_stream.insert(CancellationToken::new()).clone();
            let shared = Arc::clone(shared);
            tokio::spawn(async move {
                tokio::select! {
                    () = released.cancelled() => {}
                    () = legacy::run_standalone_stream(shared) => {}
                }
            });
        }
    }

    /// Closes and reopens the standalone stream at its current position if the server has sent no
    /// data on it. Some servers accept a second standalone stream while another client still holds
    /// the first one, and never send anything on the second.
    pub fn reopen_standalone_stream(&self) {
        self.inner.shared.reopen_standalone.notify_waiters();
    }

    /// Closes the standalone stream. [`open_standalone_stream`](Self::open_standalone_stream) can
    /// open it again.
    pub fn close_standalone_stream(&self) {
        let mut standalone_stream =
            self.inner.shared.standalone_stream.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = standalone_stream.take() {
            held.cancel();
        }
    }

    /// Closes the standalone stream immediately and permanently, because another process reads it
    /// now. Calls continue.
    pub fn disable_standalone_stream(&self) {
        self.inner.shared.standalone_disabled.cancel();
    }

    /// Starts a call. `params` is the JSON text of an object. Fails with [`Error::TooManyCalls`] if
    /// [`Limits::calls`](crate::Limits::calls) calls are in flight.
    pub fn call(&self, method: &str, params: Option<&str>) -> Result<Call, Error> {
        self.call_with(method, params, CallOptions::default())
    }

    pub fn call_with(&self, method: &str, params: Option<&str>, options: CallOptions) -> Result<Call, Error> {
        Call::start(&self.inner, method, params, options)
    }

    /// Creates a call that the application runs in its own task. Nothing is sent before
    /// [`PreparedCall::run`].
    pub fn prepare(
        &self,
        method: &str,
        params: Option<&str>,
        options: CallOptions,
        observer: Arc<dyn CallObserver>,
    ) -> Result<PreparedCall, Error> {
        PreparedCall::new(&self.inner, method, params, options, observer)
    }

    /// Sends a notification. `params` is the JSON text of an object.
    pub async fn notify(&self, method: &str, params: Option<&str>) -> Result<(), Error> {
        let shared = &self.inner.shared;
        if shared.closing.is_cancelled() {
            return Err(Error::Closed);
        }
        let params = params.map(RawObject::parse).transpose().map_err(|_| Error::BadParams)?;
        match &shared.mode {
            Mode::Session(sessions) => legacy::notify(shared, sessions, method, params.as_ref()).await,
            Mode::Stateless(_) => modern::notify(shared, method, params).await,
        }
    }

    /// Replaces the headers of the configuration. The new headers are sent with every request from
    /// now on.
    pub fn set_headers(&self, headers: HeaderMap) {
        self.inner.shared.peer.set_headers(headers);
        self.inner.shared.headers_changed.notify_one();
    }

    /// The protocol revision in use.
    pub fn revision(&self) -> Revision {
        self.inner.shared.revision()
    }

    /// How the server described itself: the JSON text of the result of `initialize` or
    /// `server/discover`.
    pub fn server(&self) -> Bytes {
        match &self.inner.shared.mode {
            Mode::Session(sessions) => sessions.current().server.clone(),
            Mode::Stateless(tools) => tools.server(),
        }
    }

    /// The session id, if the revision has sessions and the server assigned an id.
    pub fn session_id(&self) -> Option<String> {
        match &self.inner.shared.mode {
            Mode::Session(sessions) => sessions.current().id_text(),
            Mode::Stateless(_) => None,
        }
    }

    /// The current session, in the form that [`resume_over`](Self::resume_over) accepts.
    pub fn session(&self) -> Option<OpenSession> {
        match &self.inner.shared.mode {
            Mode::Session(sessions) => Some(sessions.current().to_open_session()),
            Mode::Stateless(_) => None,
        }
    }

    /// Closes the client. Calls in flight end with [`Error::Closed`], server requests are dropped,
    /// and the session is deleted at the server.
    pub async fn close(self) -> Result<(), Error> {
        let shared = &self.inner.shared;
        shared.closing.cancel();
        match &shared.mode {
            Mode::Session(sessions) => legacy::close(shared, &sessions.current()).await,
            Mode::Stateless(_) => Ok(()),
        }
    }
}

/// A session that exists at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSession {
    /// `None` if the server assigned no id.
    pub id: Option<String>,
    pub revision: Revision,
    /// The JSON text of the result of `initialize`.
    pub server: Bytes,
}

/// The state that every handle (`Client`, `Call`, `PreparedCall`) keeps alive. Background tasks
/// hold only [`Shared`], so they end when the last handle is dropped.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.closing.cancel();
    }
}
