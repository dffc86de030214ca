//! [`Builder`]: the settings of a server, with their defaults.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use rmcp::ServerHandler;
use steadfast_engine::LifecycleListener;
use steadfast_engine::{
    Clock, Engine, Entropy, Limits, Options, Principal, Rules, ServerRequestOrder, SessionEvent, SystemClock,
    SystemEntropy, Timing,
};
use steadfast_http::{
    Config, Denied, DuplicateIds, Endpoint, Hosts, Identify, Origins, Quirks, ResponseMode,
};
use steadfast_store::{Store, StoreError};
use steadfast_wire::Revisions;

use crate::adapter::{HandlerBackend, HandlerMessages, HandlerScope, RetryPolicy};
use crate::request_state::{Seal, StateKey};
use crate::server::Server;
use crate::store_url::{Durability, StoreUrl};

/// Collects the settings of a server; [`Builder::start`] starts it.
///
/// Every setting has a default. The defaults keep sessions in memory and serve clients and web
/// pages of the local machine only.
pub struct Builder<H> {
    factory: Box<dyn Fn() -> H + Send + Sync>,
    scope: HandlerScope,
    messages: HandlerMessages,
    retry: RetryPolicy,
    store: StoreChoice,
    durability: Durability,
    rules: Rules,
    options: Options,
    config: Config,
    listeners: Vec<Box<dyn LifecycleListener>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    state_keys: Vec<StateKey>,
    state_lifetime: Duration,
}

enum StoreChoice {
    Url(StoreUrl),
    Custom(Arc<dyn Store>),
}

/// Error of [`Builder::start`].
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store could not be opened, or failed while the server registered there.
    #[error("the session store cannot be opened: {0}")]
    Store(#[from] StoreError),
}

/// Methods that set one value each.
macro_rules! setters {
    ($($(#[$doc:meta])+ $name:ident: $type:ty => $($field:ident).+,)+) => {
        $($(#[$doc])+ pub fn $name(mut self, value: $type) -> Self {
            self.$($field).+ = value;
            self
        })+
    };
}

impl<H: ServerHandler> Builder<H> {
    pub(crate) fn new(factory: impl Fn() -> H + Send + Sync + 'static) -> Self {
        Self {
            factory: Box::new(factory),
            scope: HandlerScope::default(),
            messages: HandlerMessages::default(),
            retry: RetryPolicy::default(),
            store: StoreChoice::Url(StoreUrl::Memory),
            durability: Durability::default(),
            rules: Rules::default(),
            options: Options::default(),
            config: Config::default(),
            listeners: Vec::new(),
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            state_keys: Vec::new(),
            state_lifetime: Duration::from_secs(60 * 60),
        }
    }

    /// Sets where sessions are stored. Default: in memory.
    pub fn store(mut self, url: StoreUrl) -> Self {
        self.store = StoreChoice::Url(url);
        self
    }

    /// Uses a store that the caller has opened. The store applies the [`Rules`] that it was opened
    /// with, so [`Builder::limits`] and [`Builder::timing`] have no effect.
    pub fn custom_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = StoreChoice::Custom(store);
        self
    }

    /// Creates one handler value and uses it for all sessions and requests of this process. Use it
    /// for handlers that keep no client's data in their fields.
    ///
    /// Default: one handler value per session, and one per stateless request. Handlers of a type
    /// without fields are always shared.
    pub fn shared_handler(mut self) -> Self {
        self.scope = HandlerScope::Process;
        self
    }

    /// Declares that the handler sends only its answers: no progress, no log messages, no requests
    /// to the client. Calls then share one `context.peer` instead of getting one each, which makes
    /// every call cheaper. A notification or request that the handler sends anyway fails with an
    /// error at the handler; the client does not receive it.
    pub fn silent_handler(mut self) -> Self {
        self.messages = HandlerMessages::Refused;
        self
    }

    /// Retries an idempotent call once if the node that runs it dies. Another node that shares the
    /// store runs the call, and the client gets its one answer on the stream that it resumes.
    ///
    /// A call is idempotent if its method only reads (such as `tools/list` or `resources/read`), or
    /// if it is a `tools/call` of a tool whose annotations in the handler's `get_tool` have
    /// `readOnlyHint` or `idempotentHint`. Every other call of the dead node is answered with an
    /// error whose reason is `outcome_unknown`.
    ///
    /// The store holds the method and the parameters of an idempotent call while it runs. It does
    /// not hold the HTTP request, so on the retry the `extensions` of the handler's context contain
    /// no HTTP headers of the client. For that reason the default is no retry.
    pub fn retry_idempotent_calls(mut self) -> Self {
        self.retry = RetryPolicy::IdempotentCalls;
        self
    }

    /// Sets the keys that encrypt the `requestState` which clients of 2026-07-28 hold. The first
    /// key encrypts, and every key decrypts. To rotate keys, put the new key first and keep the old
    /// one for at least [`Builder::state_lifetime`].
    ///
    /// Default: a random key per start. Set keys if several servers serve one client, or if a
    /// `requestState` must survive a restart.
    pub fn state_keys(mut self, keys: impl IntoIterator<Item = StateKey>) -> Self {
        self.state_keys = keys.into_iter().collect();
        self
    }

    /// Sets the function that returns the principal of a request, or denies the request. A session
    /// belongs to the principal that opened it; requests of other principals get the same 404 as
    /// for an unknown session. Default: all requests have one anonymous principal.
    pub fn principal(
        mut self,
        principal: impl Fn(&Parts) -> Result<Principal, Denied> + Send + Sync + 'static,
    ) -> Self {
        self.config.principal = Arc::new(principal);
        self
    }

    /// Sets the principal of a request like [`Builder::principal`], with an [`Identify`] that may
    /// wait for I/O, for example to fetch keys.
    pub fn identify(mut self, identify: impl Identify) -> Self {
        self.config.principal = Arc::new(identify);
        self
    }

    /// Closes each SSE response after `age`, so that the client resumes the stream on a new
    /// connection. Use it behind load balancers that abort long responses. Default: no bound.
    pub fn max_connection_age(mut self, age: Duration) -> Self {
        self.config.max_connection_age = Some(age);
        self
    }

    /// Calls `listener` for each session event in this process: opened, detached, reattached,
    /// restored, closed. Each listener runs on its own thread and may block.
    pub fn on_session_event(mut self, listener: impl FnMut(SessionEvent) + Send + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Replaces the system clock, for tests.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Replaces the system's random generator, for tests. Session tokens and the nonces and default
    /// key of `requestState` depend on it.
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    setters! {
        /// Sets what a commit in a SQLite file survives: a crash of the process, or also a power
        /// failure.
        durability: Durability => durability,
        /// Sets the limits of sessions: counts and bytes.
        limits: Limits => rules.limits,
        /// Sets how long idle sessions, detached sessions and unread answers are kept.
        timing: Timing => rules.timing,
        /// Sets what happens to a request whose JSON-RPC id is already in flight in its session.
        /// Default: it is refused, unless the client is known to send one id with every request.
        duplicate_ids: DuplicateIds => config.duplicate_ids,
        /// Sets whether known deviations of clients change the form of answers. `docs/clients.md`
        /// lists the deviations. Default: they do.
        quirks: Quirks => config.quirks,
        /// Sets which protocol revisions are offered. Default: all.
        ///
        /// `initialize` negotiates an offered revision. If no stateless revision is offered,
        /// `server/discover` is answered with a result that lists the offered revisions, and
        /// clients that prefer a stateless revision open a session. Other requests of a declined
        /// revision are refused with 400. Sessions that are open keep their revision.
        revisions: Revisions => config.revisions,
        /// Sets how long a call may take before the client gets an error. Default: one hour.
        call_deadline: Duration => options.call_deadline,
        /// Sets how long a cancelled handler may take to return before its future is dropped.
        /// Default: ten seconds.
        wind_down: Duration => options.wind_down,
        /// Bounds the stateless requests (2026-07-28) in flight in this process, subscriptions
        /// included. A request beyond the bound is refused with 503.
        exchanges: usize => options.exchanges,
        /// Bounds the bytes that are buffered for the client of one stateless request (2026-07-28).
        /// Beyond the bound, the oldest progress and log messages are dropped; a subscription whose
        /// client does not read ends.
        exchange_bytes: usize => options.exchange_bytes,
        /// Sets how long a stateless request (2026-07-28) continues after its client has
        /// disconnected. A client that resumes the response within that time, at any node, gets the
        /// rest of it. Default: five seconds. Zero follows the letter of the specification: no
        /// response can be resumed, and a broken connection cancels its request at once.
        resume_grace: Duration => options.resume_grace,
        /// Sets how long a `requestState` is valid. Default: one hour.
        state_lifetime: Duration => state_lifetime,
        /// Sets how long a server request may take, from sending to the client's answer, time in
        /// the queue included. After that the handler gets an error and the client
        /// `notifications/cancelled`. Default: ten minutes.
        server_request_deadline: Duration => options.server_request_deadline,
        /// Sets whether the server requests of one session are sent concurrently, up to the limit
        /// [`Limits::server_requests`], or one at a time.
        server_request_order: ServerRequestOrder => options.server_request_order,
        /// Bounds the server requests of one session that are queued because the limit
        /// [`Limits::server_requests`] is reached. A request beyond the bound fails at the handler.
        queued_server_requests: usize => options.queued_server_requests,
        /// Bounds the notifications of one client that are queued for the handler. A notification
        /// beyond the bound is refused with 429.
        notifications: usize => options.notifications,
        /// Bounds the notifications of all clients that are queued for handlers. A notification
        /// beyond the bound is refused with 503.
        notifications_in_all: usize => options.notifications_in_all,
        /// Sets how long the handler may process one notification before its future is dropped.
        notification_deadline: Duration => options.notification_deadline,
        /// Sets how long the server retries to append an answer to a failing store before it
        /// delivers the answer to the client without a log entry. After that the server keeps
        /// retrying in the background.
        finish_retry_window: Duration => options.finish_retry_window,
        /// Bounds the session events that are queued for one listener of
        /// [`Builder::on_session_event`]. The listener misses events beyond the bound, and the
        /// server logs that.
        listener_backlog: usize => options.listener_backlog,
        /// Bounds the bytes of each stream that are cached for its reader. Within the bound the
        /// reader does not read from the store.
        tail_bytes: usize => options.tail_bytes,
        /// Sets how often the server checks for passed deadlines, expired sessions and dead nodes.
        /// Default: one second.
        sweep_interval: Duration => options.sweep_interval,
        /// Sets how long this process caches an idle session. After that the next request loads it
        /// from the store.
        forget_after: Duration => options.forget_after,
        /// Sets whether calls are answered with an SSE stream or with plain JSON.
        response: ResponseMode => config.response,
        /// Sets which `Host` values are served; other requests are refused. Default: loopback names
        /// only.
        hosts: Hosts => config.hosts,
        /// Sets which `Origin` values are served if a request has one; other requests are refused.
        /// Default: loopback origins only.
        origins: Origins => config.origins,
        /// Bounds the body of a POST. A larger body is refused with 413.
        max_request_bytes: usize => config.max_request_bytes,
        /// Sets how long a client may take to send the body of a POST.
        body_timeout: Duration => config.body_timeout,
        /// Bounds the `params` of `initialize`. The store holds them until the session ends.
        max_initialize_bytes: usize => config.max_initialize_bytes,
        /// Bounds the sum of the lengths of all header names and values of a request.
        max_header_bytes: usize => config.max_header_bytes,
        /// Bounds the messages of a JSON-RPC batch, which only revision 2025-03-26 has.
        max_batch: usize => config.max_batch,
        /// Sets after how long without data an SSE stream gets a comment, so that proxies do not
        /// close it.
        keep_alive: Duration => config.keep_alive,
        /// Sets the `retry:` hint of SSE streams: how long a client should wait before it resumes a
        /// stream.
        retry: Duration => config.retry,
    }

    /// Opens the store and starts the server. Fails if the store cannot be opened.
    pub async fn start(mut self) -> Result<Server, StartError> {
        if self.options.server_request_order == ServerRequestOrder::Strict {
            // The limit is part of the session, so the store enforces it across nodes.
            self.rules.limits.server_requests = self.rules.limits.server_requests.min(1);
        }
        let store = match self.store {
            StoreChoice::Url(url) => url.open(self.rules, self.durability)?,
            StoreChoice::Custom(store) => store,
        };
        let (clock, entropy) = (Arc::clone(&self.clock), Arc::clone(&self.entropy));
        let seal = Seal::new(&self.state_keys, self.state_lifetime, clock, entropy);
        let backend = HandlerBackend::new(self.factory, self.scope, self.messages, self.retry, seal);
        let backend = Arc::new(backend);
        let engine =
            Engine::start(store, backend, self.clock, self.entropy, self.options, self.listeners).await?;
        Ok(Server::new(Endpoint::new(engine, self.config)))
    }
}

impl<H> std::fmt::Debug for Builder<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("rules", &self.rules)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
