//! One endpoint as it is written.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast_engine as engine;
use steadfast_upstream as upstream;

use super::auth::{Auth, Jwt};
use super::setting::settings;
use super::values::{Allowed, OneOrMany, Size, Time};

/// Servers look at credentials first, so most have given their word on them by then.
const AUTH_WAIT: Duration = Duration::from_secs(2);

/// One endpoint: a path, and the server behind it.
#[derive(Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Endpoint {
    /// Where clients find it. Each endpoint has its own, and its own sessions.
    pub(crate) path: String,
    /// The identity of the endpoint: gateways that share a store share the sessions of endpoints
    /// with the same `id`. Set it to keep sessions when the path or the server's address changes. A
    /// hash of both unless set; the log and `config check` show it.
    pub(crate) id: Option<String>,
    /// The server's address, such as `http://127.0.0.1:8000/mcp` or `https://mcp.example.com/mcp`; or those of its replicas, as a list.
    pub(crate) upstream: OneOrMany,
    /// The server as a program that speaks on its standard input and output.
    pub(crate) stdio: Option<Stdio>,
    /// The built-in demo server, to try things with.
    pub(crate) demo: bool,
    /// Calls at a time in one session of the server's, for servers that lose track of more. More wait. No bound unless set.
    /// Gateways that share a store count together, but with `auth = "forward"` each counts its own.
    pub(crate) concurrency: Option<NonZeroUsize>,
    /// Sessions of the server's that the calls of one client session may be spread over; only for servers whose tools keep
    /// nothing in a session.
    pub(crate) spread: NonZeroUsize,
    /// Calls of one client session that may wait for the server. One more is refused.
    pub(crate) waiting: usize,
    /// Whether to hold the stream open on which a server sends what belongs to no call.
    pub(crate) standalone: bool,
    /// How long a server that cannot be reached is waited for, and looked for elsewhere, before its callers are told.
    pub(crate) patience: Time,
    /// A PEM file with the authorities to believe, and no others, at `https` addresses of the server. Those that browsers believe, unless
    /// set.
    pub(crate) ca: Option<String>,
    /// A PEM file with the certificate that is shown to a server at an `https` address that asks for one.
    pub(crate) client_certificate: Option<String>,
    /// A PEM file with the private key of that certificate.
    pub(crate) client_key: Option<String>,
    /// How clients prove who they are: `"none"`; `"forward"`, where the server decides; or `"jwt"`, with access tokens that are verified
    /// here (see `jwt`).
    pub(crate) auth: Auth,
    /// Which access tokens are good, with `auth = "jwt"`.
    pub(crate) jwt: Jwt,
    /// Sent to the server with every request. `"env:NAME"` is the value of a variable of the environment, `"file:PATH"` what is in a file.
    pub(crate) headers: BTreeMap<String, String>,
    /// Which `Host` values are served: `"loopback"`, `"any"` (behind a proxy that checks), or a list of names besides loopback ones.
    pub(crate) hosts: Allowed,
    /// Which web pages are served: `"loopback"`, `"any"`, or a list such as `["https://app.example.com"]` besides loopback ones.
    pub(crate) origins: Allowed,
    /// How calls are answered.
    pub(crate) response: Response,
    /// What becomes of a request whose id is in flight already. A change needs a restart.
    pub(crate) duplicates: Duplicates,
    /// Whether the server's requests to a client go out together or one at a time. A change needs a restart.
    pub(crate) ask_order: AskOrder,
    /// Bounds and times of requests.
    pub(crate) http: Http,
    /// Bounds and times of calls. A change needs a restart.
    pub(crate) engine: Engine,
    /// How long to wait for the server.
    pub(crate) timeouts: Timeouts,
    /// When to try the server again.
    pub(crate) backoff: Backoff,
    /// How soon a replica is noticed that is there and answers nothing, such as a process that is stopped. Only if another one is up.
    pub(crate) vigil: Vigil,
    /// How much the server may make the gateway hold.
    pub(crate) answers: Answers,
}

impl Default for Endpoint {
    fn default() -> Self {
        let plain = upstream::Config::http(Vec::new());
        Self {
            path: "/mcp".into(),
            id: None,
            upstream: OneOrMany::none(),
            stdio: None,
            demo: false,
            concurrency: plain.calls.concurrency,
            spread: plain.calls.spread,
            waiting: plain.calls.waiting,
            standalone: plain.standalone,
            patience: Time(plain.patience),
            ca: None,
            client_certificate: None,
            client_key: None,
            auth: Auth::default(),
            jwt: Jwt::default(),
            headers: BTreeMap::new(),
            hosts: Allowed::Loopback,
            origins: Allowed::Loopback,
            response: Response::Stream,
            duplicates: Duplicates::Reject,
            ask_order: AskOrder::Concurrent,
            http: Http::default(),
            engine: Engine::default(),
            timeouts: Timeouts::default(),
            backoff: Backoff::default(),
            vigil: Vigil::default(),
            answers: Answers::default(),
        }
    }
}

impl Endpoint {
    /// What concerns the server behind it, with everything else as if it had not been said.
    pub(crate) fn server_part(&self) -> Self {
        let plain = Self::default();
        Self {
            id: plain.id,
            // The server does not learn of tokens that are verified here.
            auth: if self.auth == Auth::Forward { Auth::Forward } else { Auth::None },
            jwt: plain.jwt,
            hosts: plain.hosts,
            origins: plain.origins,
            response: plain.response,
            duplicates: plain.duplicates,
            ask_order: plain.ask_order,
            http: plain.http,
            engine: plain.engine,
            ..self.clone()
        }
    }
}

/// Leaves out the values that may be secrets.
impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A program, and how it is run.
#[derive(Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Stdio {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub(crate) command: String,
    pub(crate) args: Vec<String>,
    /// Added to the gateway's own environment. Values can be `"env:NAME"` and `"file:PATH"`.
    pub(crate) env: BTreeMap<String, String>,
    /// Where it is started; where the gateway was, unless set.
    pub(crate) folder: Option<String>,
    /// One process for each session, or one for all.
    pub(crate) sharing: Sharing,
    /// The longest line that it may write.
    pub(crate) line_bytes: Size,
    /// How long it may take to end by itself after its input was closed, and again after it was told to.
    pub(crate) farewell: Time,
    /// Processes at a time. One more is refused.
    pub(crate) processes: usize,
}

impl Default for Stdio {
    fn default() -> Self {
        let plain = upstream::Stdio::new(upstream::Program::default());
        Self {
            command: String::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
            folder: None,
            sharing: Sharing::PerSession,
            line_bytes: Size(plain.line_bytes as u64),
            farewell: Time(plain.farewell),
            processes: plain.processes,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sharing {
    PerSession,
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Response {
    /// Always a stream: it can be resumed.
    Stream,
    /// Always plain JSON once the call is done. Cheap, but an answer that is lost on the way is lost to the client.
    Json,
    /// Plain JSON for a call that is answered at once, a stream for the rest.
    Adaptive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Duplicates {
    /// It is refused with 400, and the first is untouched.
    Reject,
    /// Both are served apart.
    Isolate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AskOrder {
    /// As many as the limit `asks` allows.
    Concurrent,
    /// One at a time, in the order of arrival.
    Strict,
}

settings! {
    /// Bounds and times of requests.
    Http of steadfast_http::Config = steadfast_http::Config { auth_wait: AUTH_WAIT, ..Default::default() }; {
        /// The largest POST body. A larger one is refused with 413.
        max_body_bytes: Size,
        /// How long a client may take to send a body. Then it is refused with 408.
        body_timeout: Time,
        /// The largest `params` of `initialize`, which are kept for as long as the session lives. Larger ones are refused with 413.
        max_initialize_bytes: Size,
        /// The largest sum of header names and values. A larger one is refused with 431.
        max_header_bytes: Size,
        /// The longest batch of 2025-03-26.
        max_batch: usize,
        /// A stream that has been silent for this long gets a comment, so that no proxy takes it for dead.
        keep_alive: Time,
        /// How long a client should wait before it comes back to a stream that broke off.
        retry: Time,
        /// With `auth = "forward"`: how long the head of the answer to a call waits for the server's word on the client's credentials, so that
        /// a client whose token has expired gets a 401 and fetches another. A server that begins a stream has given its word; one that answers in
        /// JSON gives it with the answer. Until then a client cannot resume the answer. `"0s"`: it does not wait.
        auth_wait: Time,
        /// Connections are sent away after this long, to come back; for balancers that cut long responses. Never unless set.
        max_connection_age: Option<Time>,
    }
}

settings! {
    /// Bounds and times of calls.
    Engine of engine::Options = engine::Options::default(); {
        /// A call that has not been answered by then gets an explicit error.
        call_deadline: Time,
        /// How long a cancelled call may take to wind down.
        wind_down: Time,
        /// A request to the client that has not been answered by then is withdrawn. Waiting for its turn counts.
        ask_deadline: Time,
        /// Requests to the client of one session that may wait for their turn, beyond those in flight.
        waiting_asks: usize,
        /// Notifications of one session's client that may wait. One more is refused with 429.
        notifications: usize,
        /// Notifications of all clients that may wait or be worked on. One more is refused with 503.
        notifications_in_all: usize,
        /// How long the server may work on a notification.
        notification_deadline: Time,
        /// How much of each stream is kept at hand, so that its readers need not ask the store.
        tail_bytes: Size,
        /// How much a reader takes from the store at a time.
        read_bytes: Size,
        /// How often to look for what time has brought about.
        sweep_interval: Time,
        /// How long what is known of a session is kept at hand while nothing happens.
        forget_after: Time,
        /// How long an answer is offered to a store that does not take it before its client gets it unlogged.
        finish_patience: Time,
        /// Requests of 2026-07-28 in flight, subscriptions included. One more is refused with 503.
        exchanges: usize,
        /// Bytes that may wait for the client of a request of 2026-07-28 to read them.
        exchange_bytes: Size,
    }
}

settings! {
    /// How long to wait for the server.
    Timeouts of steadfast_client::Timeouts = upstream::Config::http(Vec::new()).timeouts; {
        /// For a connection.
        connect: Time,
        /// For the head of an answer to a call. A server that answers in JSON sends it when the call is done.
        head: Time,
        /// For a whole call.
        call: Time,
        /// For everything that is no call, such as the start of a session. 30 seconds unless set, and 2 minutes for a program, which may
        /// have to be downloaded first.
        control: Option<Time>,
    }
}

settings! {
    /// When to try the server again.
    Backoff of steadfast_client::Backoff = upstream::Config::http(Vec::new()).backoff; {
        /// The wait before the first attempt; each later one is twice as long.
        first: Time,
        /// The longest wait of the gateway's own choice.
        longest: Time,
        /// The longest wait that a server may choose.
        longest_retry: Time,
        /// Failures in a row after which to give up.
        attempts: u32,
    }
}

settings! {
    /// How soon a replica is noticed that is there and answers nothing.
    Vigil of upstream::Vigil = upstream::Vigil::default(); {
        /// How long a replica that is to answer something may say nothing at all before it is tried. If it does not answer that either, no new
        /// session goes there.
        silence: Time,
        /// For how long after that it may leave trials unanswered before its sessions go elsewhere and calls that wait there are given up. A server
        /// that does one thing at a time answers nobody while it is busy.
        endurance: Time,
    }
}

settings! {
    /// How much the server may make the gateway hold.
    Answers of steadfast_client::Limits = upstream::Config::http(Vec::new()).limits; {
        /// Calls at a time in one session of the server's.
        calls: usize,
        /// Requests of the server that are handled at a time, of one session of the server's. More wait.
        asks: usize,
        /// Requests of the server that wait. When so many do, no stream that carries another is read on.
        waiting_asks: usize,
        /// Notifications of a call that have not been taken. When so many wait, the call's stream is not read on.
        notifications: usize,
        /// The longest JSON body of an answer.
        body_bytes: Size,
        /// The longest line of an event stream.
        line_bytes: Size,
        /// The longest event of an event stream.
        event_bytes: Size,
        /// The longest head of an answer, at least 8 KiB.
        head_bytes: Size,
        /// Headers of an answer.
        headers: usize,
        /// Messages in one batch of 2025-03-26.
        batch: usize,
        /// Tools whose annotations are remembered.
        tools: usize,
        /// Pages of `tools/list` that are read to find the annotations of one tool.
        pages: usize,
        /// How often one call may come back and ask for more input.
        rounds: usize,
    }
}
