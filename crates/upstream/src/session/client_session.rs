//! One client session at this node: its lanes, its credentials, and the messages between the server
//! and the client that belong to no call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use bytes::Bytes;
use http::HeaderMap;
use http::header::{AUTHORIZATION, HeaderValue};
use steadfast_client::{
    Client, Config as ClientConfig, Era, Error, Notification, OpenSession, ReplayRequest, ServerRequest,
    StandaloneStream,
};
use steadfast_engine::{Class, Facts, IncomingMessage, Refusal, SessionHandle, SessionRef};
use steadfast_wire::raw_json;
use steadfast_wire::rpc::ErrorObject;
use tokio::sync::watch;

use crate::call::concurrency::ConcurrencyLimit;
use crate::config::Credential;
use crate::errors;
use crate::placement::lease::{Holder, Lease};
use crate::placement::missed_events::AnnouncementLimit;
use crate::placement::server_instance::ServerInstance;
use crate::placement::stored_placement::KnownVersion;
use crate::placement::upstream_session::UpstreamSession;
use crate::session::callbacks::Callbacks;
use crate::session::in_flight::InFlight;
use crate::session::lane::Lane;
use crate::session::rebinding::Token;
use crate::session::registry::{ReloadState, SessionRegistry};
use crate::session::server_messages;
use crate::upstream::{Shared, random_id};

/// One client session at this node, with its upstream sessions.
pub(crate) struct ClientSession {
    pub(crate) shared: Arc<Shared>,
    pub(crate) facts: Arc<Facts>,
    /// The registry that contains this client session.
    registry: Weak<SessionRegistry>,
    /// Capabilities and name of the client, limits and timeouts, for the MCP client of an upstream
    /// session.
    config: ClientConfig,
    /// The newest `Authorization` header of the client, if credentials are forwarded.
    credential: RwLock<Vec<HeaderValue>>,
    /// The engine's session, once it is open.
    session: watch::Sender<Option<SessionRef>>,
    /// Created on first use, like `announcement_limit`: many sessions only listen.
    concurrency: OnceLock<Box<ConcurrencyLimit>>,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) lease: Lease,
    announcement_limit: OnceLock<Box<AnnouncementLimit>>,
    /// The version of the stored placement that the lanes of this node correspond to.
    pub(crate) known_placement: KnownVersion,
    /// The session has ended. Upstream sessions that are opened from now on are closed again.
    is_closed: AtomicBool,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) this: Weak<Self>,
}

impl ClientSession {
    /// Creates a client session without upstream sessions.
    pub(crate) fn new(shared: &Arc<Shared>, registry: &Arc<SessionRegistry>, facts: Arc<Facts>) -> Arc<Self> {
        Self::with_reload_state(shared, registry, facts, ReloadState::default())
    }

    /// Creates a client session whose calls may still run on the upstream that was replaced by a
    /// configuration reload.
    pub(crate) fn with_reload_state(
        shared: &Arc<Shared>,
        registry: &Arc<SessionRegistry>,
        facts: Arc<Facts>,
        ReloadState { permits, in_flight }: ReloadState,
    ) -> Arc<Self> {
        let concurrency =
            permits.map(|permits| Box::new(ConcurrencyLimit::with_permits(permits, &shared.config.calls)));
        let config = client_config(shared, &facts);
        let lanes = (0..shared.config.calls.upstream_sessions.get()).map(|_| Lane::default()).collect();
        Arc::new_cyclic(|this| Self {
            shared: Arc::clone(shared),
            registry: Arc::downgrade(registry),
            facts,
            config,
            credential: RwLock::default(),
            session: watch::Sender::new(None),
            concurrency: concurrency.map(OnceLock::from).unwrap_or_default(),
            lanes,
            lease: Lease::default(),
            announcement_limit: OnceLock::new(),
            known_placement: KnownVersion::default(),
            is_closed: AtomicBool::new(false),
            in_flight: in_flight.unwrap_or_default(),
            this: Weak::clone(this),
        })
    }

    pub(crate) fn this(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// Sets the engine's session once it is open.
    pub(crate) fn open(&self, session: &SessionHandle) {
        self.session.send_replace(Some(session.downgrade()));
    }

    /// Returns the engine's session, unless the engine has stopped.
    pub(crate) fn session(&self) -> Option<SessionHandle> {
        self.session.borrow().as_ref().and_then(SessionRef::upgrade)
    }

    /// Waits until the session is open: a server may send messages before the client has its
    /// session id.
    async fn opened(&self) -> Option<SessionHandle> {
        let mut session = self.session.subscribe();
        let opened = session.wait_for(Option::is_some).await.ok()?;
        opened.as_ref().and_then(SessionRef::upgrade)
    }

    /// Returns a short form of the session id for logs.
    pub(crate) fn short(&self) -> String {
        self.facts.id.short()
    }

    /// Stores the credentials of the client's newest request for requests to the server, if they
    /// are forwarded.
    pub(crate) fn set_credential(&self, request: &IncomingMessage) {
        let Credential::Forwarded = self.shared.config.credential else { return };
        let sent = request.http.headers.get_all(AUTHORIZATION);
        let is_new = {
            let mut credential = self.credential.write().unwrap_or_else(PoisonError::into_inner);
            let is_new = !credential.iter().eq(sent.iter());
            if is_new {
                *credential = sent.iter().cloned().collect();
            }
            is_new
        };
        if is_new {
            let headers = self.headers();
            self.upstream_sessions().for_each(|session| session.client.set_headers(headers.clone()));
        }
    }

    /// Returns the access token of the client's newest request, if it is forwarded and says whom it
    /// was issued to.
    pub(crate) fn token(&self) -> Option<Token> {
        if self.shared.forwards_credentials() { Token::of(&self.headers()) } else { None }
    }

    /// Returns the headers of requests to the server, with the newest credentials.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = self.config.headers.clone();
        if let Credential::Forwarded = self.shared.config.credential {
            headers.remove(AUTHORIZATION);
            let credential = self.credential.read().unwrap_or_else(PoisonError::into_inner);
            headers.extend(credential.iter().map(|value| (AUTHORIZATION, value.clone())));
        }
        headers
    }

    /// Opens an upstream session at this server instance.
    pub(crate) async fn connect(
        &self,
        lane: usize,
        instance: ServerInstance,
    ) -> Result<UpstreamSession, Error> {
        let (url, headers, standalone) = (instance.url.clone(), self.headers(), self.standalone(&instance));
        let config = ClientConfig { url, headers, standalone_stream: standalone, ..self.config.clone() };
        let callbacks = self.callbacks(lane, &instance);
        let no = callbacks.session_no;
        let client = Client::connect_over(Arc::clone(&instance.transport), config, callbacks).await?;
        Ok(UpstreamSession::new(no, instance, client))
    }

    /// Continues an upstream session that was opened before. Sends nothing.
    pub(crate) fn resume(
        &self,
        lane: usize,
        instance: ServerInstance,
        session: OpenSession,
    ) -> Result<UpstreamSession, Error> {
        // Requests of another node or of an earlier process may still be in flight with small ids.
        let first_id = random_id();
        let headers = self.headers();
        let standalone =
            if self.lease.is_held_here() { self.standalone(&instance) } else { StandaloneStream::Closed };
        let config = ClientConfig {
            url: instance.url.clone(),
            first_id,
            headers,
            standalone_stream: standalone,
            ..self.config.clone()
        };
        let callbacks = self.callbacks(lane, &instance);
        let no = callbacks.session_no;
        let client = Client::resume_over(Arc::clone(&instance.transport), &config, session, callbacks)?;
        Ok(UpstreamSession::new(no, instance, client))
    }

    pub(crate) fn concurrency(&self) -> &ConcurrencyLimit {
        self.concurrency.get_or_init(|| {
            let concurrency = ConcurrencyLimit::new(&self.shared.config.calls);
            if let Some(per_lane) = self.adapted_concurrency() {
                concurrency.set_per_lane(per_lane);
            }
            Box::new(concurrency)
        })
    }

    /// Changes how many calls run at a time in a lane.
    pub(crate) fn set_calls_per_lane(&self, per_lane: usize) {
        if let Some(concurrency) = self.concurrency.get() {
            concurrency.set_per_lane(per_lane);
        }
    }

    pub(crate) fn registry(&self) -> Option<Arc<SessionRegistry>> {
        self.registry.upgrade()
    }

    pub(crate) fn announcement_limit(&self) -> &AnnouncementLimit {
        self.announcement_limit.get_or_init(Box::default)
    }

    /// Returns the number of calls that wait for the concurrency limit.
    pub(crate) fn queued_calls(&self) -> usize {
        self.concurrency.get().map_or(0, |concurrency| concurrency.queued())
    }

    /// Waits until no call of an HTTP server with a concurrency limit runs or is queued. The next
    /// lease holder applies the limit on its own.
    pub(crate) async fn calls_done(&self) {
        let concurrency = self.concurrency.get().filter(|_| !self.shared.instances.is_stdio());
        if let Some(concurrency) = concurrency {
            concurrency.until_idle().await;
        }
    }

    /// Returns whether to hold the standalone stream at this server instance. The upstream that
    /// replaced this one holds it where it can.
    fn standalone(&self, instance: &ServerInstance) -> StandaloneStream {
        let is_held_by_replacement = self.shared.is_heard_by_replacement(&instance.name);
        if is_held_by_replacement { StandaloneStream::Closed } else { self.config.standalone_stream }
    }

    /// Closes the standalone streams that the upstream that replaced this one holds. Keeps the
    /// others: the server may send requests on them for calls that still run here.
    pub(crate) fn release_standalone_streams(&self) {
        self.upstream_sessions()
            .filter(|upstream_session| self.shared.is_heard_by_replacement(&upstream_session.instance.name))
            .for_each(|session| session.client.disable_standalone_stream());
    }

    fn callbacks(&self, lane: usize, instance: &ServerInstance) -> Callbacks {
        Callbacks::new(Weak::clone(&self.this), lane, self.in_flight.next_session_no(), instance.name.clone())
    }

    /// Makes this upstream session the current one of a lane.
    pub(crate) fn set_upstream_session(
        &self,
        lane: usize,
        upstream_session: UpstreamSession,
    ) -> Arc<UpstreamSession> {
        let upstream_session = Arc::new(upstream_session);
        drop(self.lanes[lane].replace(Some(Arc::clone(&upstream_session))));
        self.apply_verdict();
        if let Some(client_session) = self.this().filter(|_| self.is_closed()) {
            tokio::spawn(async move { client_session.close().await });
        }
        if self.shared.is_replaced() {
            self.release_standalone_streams();
        }
        upstream_session
    }

    pub(crate) fn upstream_sessions(&self) -> impl Iterator<Item = Arc<UpstreamSession>> {
        self.lanes.iter().filter_map(Lane::upstream_session)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Queues a request that changes session settings for the other lanes, which send it before
    /// their next call. A lane without an upstream session gets the settings from the replay state.
    /// Only the first lane subscribes to resources.
    pub(crate) fn queue_for_other_lanes(&self, lane: usize, method: &str, params: &str) {
        let about = raw_json::get_string(params, &["uri"]).unwrap_or_default();
        let others = self
            .lanes
            .iter()
            .enumerate()
            .filter(|(no, other)| *no != lane && other.upstream_session().is_some());
        for (_, other) in others.filter(|(no, _)| *no == 0 || method != "resources/subscribe") {
            let repeat = ReplayRequest { method: method.to_owned(), params: Some(params.to_owned()) };
            if !other.add_missed(&about, repeat) {
                tracing::warn!(
                    session = self.short(),
                    method,
                    "could not queue a session setting for another lane: too many are queued"
                );
            }
        }
    }

    /// Sends a server request to the client and returns the client's answer.
    pub(crate) async fn send_request(
        &self,
        session_no: u64,
        server_request: ServerRequest,
    ) -> Result<Bytes, ErrorObject> {
        let opened = self.opened().await.is_some();
        let rest = server_messages::without_id(&server_request);
        let answer = match &server_request.call {
            _ if !opened => Err(Refusal::NoSession),
            Some(id) => match self.in_flight.find(session_no, id).map(|call| call.send_request(rest)) {
                Some(answer) => answer.await,
                None => Err(Refusal::ServerRequestWithdrawn),
            },
            None => self.send_request_anywhere(session_no, rest).await,
        };
        server_messages::answer(&answer.map_err(|refusal| errors::of_ask(&refusal))?)
    }

    /// Sends a server request that belongs to no call: on the stream of a running call if there is
    /// one, else on the standalone stream. If the call ends first, its stream ends too, and the
    /// request is sent once more on the standalone stream.
    async fn send_request_anywhere(&self, session_no: u64, rest: Bytes) -> Result<Bytes, Refusal> {
        if let Some(answer) = self.in_flight.newest(session_no).map(|call| call.send_request(rest.clone())) {
            match answer.await {
                Err(Refusal::ServerRequestWithdrawn) => {}
                outcome => return outcome,
            }
        }
        // A pending request must not keep the engine alive, so the session handle is dropped before
        // the wait.
        let holder = self.lease.holder();
        if !matches!(holder, Holder::ThisNode(_)) {
            return Err(Refusal::Fenced);
        }
        let answer = self.session().map(|session| session.send_request_fenced(holder.fence(), rest));
        let answer = answer.ok_or(Refusal::NoSession)?.await;
        self.release_if_fenced(holder, &answer).await;
        answer
    }

    /// Handles the loss of the lease if the engine refused a command because another node holds the
    /// lease.
    async fn release_if_fenced<T>(&self, holder: Holder, result: &Result<T, Refusal>) {
        if let (Holder::ThisNode(version), Err(Refusal::Fenced)) = (holder, result) {
            self.handle_lost_lease(version).await;
        }
    }

    /// Forwards a notification that belongs to no call.
    pub(crate) async fn forward_notification(&self, lane: usize, notification: Notification) {
        self.inspect_notification(&notification);
        // The first lane receives this notification as well.
        if lane > 0 && notification.method.ends_with("/list_changed") {
            return;
        }
        let Some((class, payload)) = server_messages::for_session(&notification) else { return };
        let Some(session) = self.opened().await else { return };
        let holder = self.lease.holder();
        if !matches!(holder, Holder::ThisNode(_)) {
            tracing::debug!(
                session = self.short(),
                "dropped a notification of the server: another node holds the lease"
            );
            return;
        }
        let sent = session.notify_fenced(holder.fence(), class, payload).await;
        drop(session);
        self.release_if_fenced(holder, &sent).await;
        if let Err(refusal) = sent {
            tracing::debug!(session = self.short(), method = notification.method, %refusal, "could not store a notification of the server");
        }
    }

    /// Sends a notification of the gateway to the client: on the stream of a call if there is one,
    /// else on the standalone stream.
    pub(crate) async fn notify_client(&self, session: &SessionHandle, class: Class, payload: Bytes) {
        let sent = match self.in_flight.newest(u64::MAX) {
            Some(call) => call.notify(class, payload).await,
            None => session.notify(class, payload).await,
        };
        if let Err(refusal) = sent {
            tracing::debug!(session = self.short(), %refusal, "could not send a notification to the client");
        }
    }

    /// Closes the client session because the session has ended at another node.
    pub(crate) async fn close_ended(&self) {
        if let Some(registry) = self.registry.upgrade() {
            drop(registry.remove(&self.facts.id));
        }
        self.close().await;
    }

    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let upstream_sessions = self.take_upstream_sessions();
        self.close_upstream_sessions(upstream_sessions).await;
    }

    pub(crate) fn take_upstream_sessions(&self) -> Vec<Arc<UpstreamSession>> {
        self.lanes.iter().filter_map(|lane| lane.replace(None)).collect()
    }

    pub(crate) async fn close_upstream_sessions(&self, upstream_sessions: Vec<Arc<UpstreamSession>>) {
        for upstream_session in upstream_sessions {
            if let Err(error) = upstream_session.client.clone().close().await {
                tracing::debug!(session = self.short(), %error, "could not close an upstream session");
            }
        }
    }
}

/// Returns the MCP client configuration with the capabilities and the name that the client sent.
fn client_config(shared: &Shared, facts: &Facts) -> ClientConfig {
    let params = std::str::from_utf8(&facts.initialize).unwrap_or_default();
    let mut config = shared.client.clone();
    config.era = Era::Session(facts.revision);
    for (member, field) in [("capabilities", &mut config.capabilities), ("clientInfo", &mut config.info)] {
        if let Some(text) = raw_json::get(params, &[member]) {
            text.clone_into(field);
        }
    }
    config.standalone_stream =
        if shared.config.standalone { StandaloneStream::Open } else { StandaloneStream::Closed };
    config
}

impl std::fmt::Debug for ClientSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSession").field("session", &self.short()).finish_non_exhaustive()
    }
}
