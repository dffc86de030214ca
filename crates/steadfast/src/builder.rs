//! Putting a server together.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use rmcp::ServerHandler;
use steadfast_engine::listener::Listener;
use steadfast_engine::{
    AskOrder, Clock, Duplicates, Engine, Entropy, Limits, Options, Principal, Rules, SessionEvent,
    SystemClock, SystemEntropy, Timing,
};
use steadfast_http::{Config, Denied, Endpoint, Hosts, Identify, Origins, ResponseMode};
use steadfast_store::{Store, StoreError};

use crate::adapter::{HandlerBackend, HandlerPer, Repeats, Speech};
use crate::seal::{Seal, StateKey};
use crate::server::Server;
use crate::store_url::{Durability, StoreUrl};

/// Collects what a server needs to know. Every setting has a default that is safe on one machine.
pub struct Builder<H> {
    factory: Box<dyn Fn() -> H + Send + Sync>,
    per: HandlerPer,
    speech: Speech,
    repeats: Repeats,
    place: Place,
    durability: Durability,
    rules: Rules,
    options: Options,
    config: Config,
    listeners: Vec<Box<dyn Listener>>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    state_keys: Vec<StateKey>,
    state_lifetime: Duration,
}

enum Place {
    Url(StoreUrl),
    Given(Arc<dyn Store>),
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the session store cannot be opened: {0}")]
    Store(#[from] StoreError),
}

impl<H: ServerHandler> Builder<H> {
    pub(crate) fn new(factory: impl Fn() -> H + Send + Sync + 'static) -> Self {
        Self {
            factory: Box::new(factory),
            per: HandlerPer::default(),
            speech: Speech::default(),
            repeats: Repeats::default(),
            place: Place::Url(StoreUrl::Memory),
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

    /// Where sessions are kept. In memory unless said otherwise.
    pub fn store(mut self, url: StoreUrl) -> Self {
        self.place = Place::Url(url);
        self
    }

    /// A store of your own making. It brings its own limits and times, so [`Builder::limits`] and
    /// [`Builder::timing`] do not apply.
    pub fn custom_store(mut self, store: Arc<dyn Store>) -> Self {
        self.place = Place::Given(store);
        self
    }

    /// What an acknowledged step survives: the end of the process, or a power cut as well.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// One handler value for all sessions and requests, for handlers that keep nothing in their fields.
    pub fn stateless_handler(mut self) -> Self {
        self.per = HandlerPer::Process;
        self
    }

    /// The handler sends nothing but its answers: no progress, no log messages, no requests. Then calls need no line
    /// to the client of their own, which makes each a good deal cheaper. What the handler sends all the same is
    /// refused with an error.
    pub fn silent_handler(mut self) -> Self {
        self.speech = Speech::Silent;
        self
    }

    /// If the process that runs a call dies, another one that shares the store does it again, once, provided that doing it twice does
    /// no harm: a tool that the handler's `get_tool` annotates as read-only or idempotent, or a method that only looks. The
    /// client gets its one answer on the stream that it resumes. What is kept of such a call is its method and its
    /// parameters, in the session store: the second time there is no HTTP request for the handler to look at, which is why
    /// this is off unless it is asked for. Other calls get an error that says that their outcome is not known.
    pub fn repeat_safe_calls(mut self) -> Self {
        self.repeats = Repeats::WhatIsSafe;
        self
    }

    /// Bounds of sessions.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.rules.limits = limits;
        self
    }

    /// Grace, idle and retention times.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.rules.timing = timing;
        self
    }

    /// What to do with a request whose id is in flight already.
    pub fn duplicates(mut self, duplicates: Duplicates) -> Self {
        self.options.duplicates = duplicates;
        self
    }

    /// How long a call may take.
    pub fn call_deadline(mut self, deadline: Duration) -> Self {
        self.options.call_deadline = deadline;
        self
    }

    /// How long a handler that is cancelled may take to return before it is dropped. Ten seconds, unless said otherwise.
    pub fn wind_down(mut self, limit: Duration) -> Self {
        self.options.wind_down = limit;
        self
    }

    /// How many requests of 2026-07-28 may be in flight in this process, subscriptions included. One more is refused with
    /// 503.
    pub fn exchanges(mut self, limit: usize) -> Self {
        self.options.exchanges = limit;
        self
    }

    /// How many bytes may wait for the client of a request of 2026-07-28 to read them. Beyond that older progress and log
    /// messages are dropped, and a subscription that nobody reads ends.
    pub fn exchange_bytes(mut self, limit: usize) -> Self {
        self.options.exchange_bytes = limit;
        self
    }

    /// What seals the `requestState` that clients of 2026-07-28 bring back: the first key seals, all of them open, so a
    /// new key goes in front and the old one stays for as long as [`Builder::state_lifetime`]. Without keys a random one is
    /// made at each start; servers that share their clients, or restart while users think, need keys.
    pub fn state_keys(mut self, keys: impl IntoIterator<Item = StateKey>) -> Self {
        self.state_keys = keys.into_iter().collect();
        self
    }

    /// How long a client may take to come back with a `requestState`. One hour, unless said otherwise.
    pub fn state_lifetime(mut self, lifetime: Duration) -> Self {
        self.state_lifetime = lifetime;
        self
    }

    /// How long the client may take to answer a request of the server, the wait for its turn included. After that the
    /// handler gets an error, and the client is told that nobody waits.
    pub fn ask_deadline(mut self, deadline: Duration) -> Self {
        self.options.ask_deadline = deadline;
        self
    }

    /// Whether a session's requests to the client go out together, up to the limit `asks`, or one at a time.
    pub fn ask_order(mut self, order: AskOrder) -> Self {
        self.options.ask_order = order;
        self
    }

    /// How many requests to the client may wait for their turn in one session; more are refused with an error.
    pub fn waiting_asks(mut self, asks: usize) -> Self {
        self.options.waiting_asks = asks;
        self
    }

    /// How many notifications of one client may wait for the handler; more are refused with 429.
    pub fn notifications(mut self, notifications: usize) -> Self {
        self.options.notifications = notifications;
        self
    }

    /// How many notifications of all clients may wait for handlers; more are refused with 503.
    pub fn notifications_in_all(mut self, notifications: usize) -> Self {
        self.options.notifications_in_all = notifications;
        self
    }

    /// How long the handler may work on one notification.
    pub fn notification_deadline(mut self, deadline: Duration) -> Self {
        self.options.notification_deadline = deadline;
        self
    }

    /// How long an answer is offered to a store that does not take it before its client gets it unlogged. It is offered
    /// to the store for as long as it takes.
    pub fn finish_patience(mut self, patience: Duration) -> Self {
        self.options.finish_patience = patience;
        self
    }

    /// How many lifecycle events may wait for a listener; more are missed, and that is logged.
    pub fn listener_backlog(mut self, events: usize) -> Self {
        self.options.listener_backlog = events;
        self
    }

    /// How much of each stream that is being read is kept at hand, so that its reader need not ask the store.
    pub fn tail_bytes(mut self, bytes: usize) -> Self {
        self.options.tail_bytes = bytes;
        self
    }

    /// How often the server looks for what time has brought about: deadlines, sessions that are over, processes that died.
    pub fn sweep_interval(mut self, interval: Duration) -> Self {
        self.options.sweep_interval = interval;
        self
    }

    /// How long what this process knows of a session is kept at hand while nothing happens.
    pub fn forget_after(mut self, time: Duration) -> Self {
        self.options.forget_after = time;
        self
    }

    /// How calls are answered.
    pub fn response(mut self, mode: ResponseMode) -> Self {
        self.config.response = mode;
        self
    }

    /// Which `Host` values are served. Loopback names only, unless said otherwise.
    pub fn hosts(mut self, hosts: Hosts) -> Self {
        self.config.hosts = hosts;
        self
    }

    /// Which web pages are served. Loopback pages only, unless said otherwise.
    pub fn origins(mut self, origins: Origins) -> Self {
        self.config.origins = origins;
        self
    }

    /// Who is calling. A session belongs to the principal that opened it; to everybody else it does not exist.
    pub fn principal(
        mut self,
        principal: impl Fn(&Parts) -> Result<Principal, Denied> + Send + Sync + 'static,
    ) -> Self {
        self.config.principal = Arc::new(principal);
        self
    }

    /// Who is calling, by somebody who may have to ask elsewhere.
    pub fn identify(mut self, identify: impl Identify) -> Self {
        self.config.principal = Arc::new(identify);
        self
    }

    /// The largest POST body.
    pub fn max_body_bytes(mut self, bytes: usize) -> Self {
        self.config.max_body_bytes = bytes;
        self
    }

    /// How long a client may take to send a POST body.
    pub fn body_timeout(mut self, limit: Duration) -> Self {
        self.config.body_timeout = limit;
        self
    }

    /// The largest `params` of `initialize`, which are kept for as long as the session lives.
    pub fn max_initialize_bytes(mut self, bytes: usize) -> Self {
        self.config.max_initialize_bytes = bytes;
        self
    }

    /// The largest sum of header names and values.
    pub fn max_header_bytes(mut self, bytes: usize) -> Self {
        self.config.max_header_bytes = bytes;
        self
    }

    /// The longest batch of 2025-03-26.
    pub fn max_batch(mut self, messages: usize) -> Self {
        self.config.max_batch = messages;
        self
    }

    /// How often a silent stream gets a comment.
    pub fn keep_alive(mut self, interval: Duration) -> Self {
        self.config.keep_alive = interval;
        self
    }

    /// How long a client should wait before it comes back to a stream that broke off.
    pub fn retry(mut self, wait: Duration) -> Self {
        self.config.retry = wait;
        self
    }

    /// Sends connections away after this long, to come back; for balancers that cut long responses.
    pub fn max_connection_age(mut self, age: Duration) -> Self {
        self.config.max_connection_age = Some(age);
        self
    }

    /// Hears of each step in each session's life, on a thread of its own.
    pub fn on_session_event(mut self, listener: impl FnMut(SessionEvent) + Send + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Where time comes from.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where session ids come from, and what seals are made with.
    pub fn entropy(mut self, entropy: Arc<dyn Entropy>) -> Self {
        self.entropy = entropy;
        self
    }

    /// Opens the store and starts the node.
    pub async fn start(mut self) -> Result<Server, StartError> {
        if self.options.ask_order == AskOrder::Strict {
            // The store sees to it that no two processes ask at once.
            self.rules.limits.asks = self.rules.limits.asks.min(1);
        }
        let store = match self.place {
            Place::Url(url) => url.open(self.rules, self.durability)?,
            Place::Given(store) => store,
        };
        let (clock, entropy) = (Arc::clone(&self.clock), Arc::clone(&self.entropy));
        let seal = Seal::new(&self.state_keys, self.state_lifetime, clock, entropy);
        let backend = Arc::new(HandlerBackend::new(self.factory, self.per, self.speech, self.repeats, seal));
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
