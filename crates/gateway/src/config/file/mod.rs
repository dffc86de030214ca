//! The configuration file as serde types. Every key has a default. The doc comment of a field is
//! its description in the JSON schema and in `docs/steadfast.toml`.

mod auth_table;
mod endpoint_table;
mod values;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast_engine::Options;
use steadfast_http::listen;

pub(crate) use auth_table::{Auth, JwtTable, PrincipalClaim};
pub(crate) use endpoint_table::{DuplicateIds, EndpointTable, Response, Sharing, Stdio, UpstreamTls};
pub(crate) use values::{AllowList, ByteSize, CallLimit, OneOrMany, TimeSpan};

/// The configuration of `steadfast serve --config`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct File {
    /// The address to listen on, or a list of addresses. A change needs a restart.
    pub(crate) listen: OneOrMany,
    /// The session store: `memory:`, `sqlite:PATH`, `redis://HOST` or `postgres://HOST/DATABASE`.
    /// Unset: a SQLite file in the data folder of the user. A change needs a restart.
    pub(crate) store: Option<String>,
    /// Which failures a committed change survives, for the store `sqlite:`: `"process"` (the end of
    /// the process) or `"power"` (a power failure as well). A change needs a restart.
    pub(crate) durability: Durability,
    /// The log level, or a filter such as `info,steadfast_http=debug`. The variable `RUST_LOG`
    /// overrides it.
    pub(crate) log: String,
    /// Serve HTTPS instead of HTTP. To switch between the two needs a restart. The gateway rereads
    /// the files when they change.
    pub(crate) tls: Option<Tls>,
    /// The admin listener: health checks and metrics.
    pub(crate) admin: Admin,
    /// The three steps of a shutdown. Together they are the longest time that a shutdown takes.
    pub(crate) shutdown: Shutdown,
    /// Upper bounds, for all endpoints. A change needs a restart.
    pub(crate) limits: Limits,
    /// How long sessions are kept, for all endpoints. A change needs a restart.
    pub(crate) session: Session,
    /// Requests of servers to clients (sampling, elicitation, roots), for all endpoints. A change
    /// needs a restart.
    pub(crate) server_requests: ServerRequests,
    /// Values for every endpoint that does not set them itself.
    pub(crate) defaults: EndpointTable,
    /// The endpoints, each with its own path.
    pub(crate) endpoint: Vec<EndpointTable>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            listen: OneOrMany::one("127.0.0.1:7411"),
            store: None,
            durability: Durability::Process,
            // rmcp logs each of its loops at info, which is one line per call of the demo server.
            log: "info,rmcp=warn".into(),
            tls: None,
            admin: Admin::default(),
            shutdown: Shutdown::default(),
            limits: Limits::default(),
            session: Session::default(),
            server_requests: ServerRequests::default(),
            defaults: EndpointTable::default(),
            endpoint: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Durability {
    /// The end of the process, including `kill -9`
    Process,
    /// A power failure as well; costs a disk flush per group of commits
    Power,
}

impl From<Durability> for steadfast::Durability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Process => Self::Process,
            Durability::Power => Self::Power,
        }
    }
}

/// The certificate of the listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Tls {
    /// A PEM file with the certificate and its intermediate certificates.
    pub(crate) certificate: String,
    /// A PEM file with the private key of the certificate.
    pub(crate) key: String,
}

/// The admin listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Admin {
    /// The address that serves `/healthz`, `/readyz` and `/metrics`. Keep it away from the public.
    /// Unset: no admin listener. A change needs a restart.
    pub(crate) listen: Option<String>,
}

/// The steps of a shutdown.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Shutdown {
    /// How long the gateway still serves requests on open connections, so that load balancers
    /// notice. It accepts no new connections. A change needs a restart.
    pub(crate) delay: TimeSpan,
    /// How long running calls may take to finish. Also applies to an endpoint that is removed from
    /// the file.
    pub(crate) drain: TimeSpan,
    /// How long connections may take to send what is left after the drain. A change needs a
    /// restart.
    pub(crate) flush: TimeSpan,
}

impl Default for Shutdown {
    fn default() -> Self {
        let listener = listen::Limits::default();
        Self {
            delay: TimeSpan(listener.drain_delay),
            drain: TimeSpan(Duration::from_secs(10)),
            flush: TimeSpan(listener.shutdown_grace),
        }
    }
}

/// Upper bounds, and what happens beyond them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Limits {
    /// Connections at each address. Further connections wait to be accepted.
    pub(crate) connections: usize,
    /// Sessions in the store. Beyond that, an idle session is evicted for each new one, or the new
    /// one is refused with 503 if all are in use.
    pub(crate) sessions: u64,
    /// Sessions of one principal at one endpoint. Beyond that, one of its own idle sessions is
    /// evicted, or the new one is refused with 429.
    pub(crate) sessions_per_principal: u64,
    /// Calls in flight in one session. Further ones are refused with 429.
    pub(crate) calls: usize,
    /// Requests of revision 2026-07-28 in flight at one endpoint, subscriptions included. Further
    /// ones are refused with 503.
    pub(crate) stateless_requests: usize,
    /// Bytes of all sessions, for the stores `memory:` and `sqlite:`. Beyond it idle sessions
    /// are evicted; new sessions, calls and notifications are refused with 503 if all are in use.
    pub(crate) store_bytes: ByteSize,
    /// Bytes of one session. Beyond it new calls and notifications are refused with 429.
    pub(crate) session_bytes: ByteSize,
    /// Bytes of one stream. Beyond it the oldest progress and log notifications are dropped.
    pub(crate) stream_bytes: ByteSize,
}

impl Default for Limits {
    fn default() -> Self {
        let library = steadfast::Limits::default();
        Self {
            connections: listen::Limits::default().connections,
            sessions: library.sessions,
            sessions_per_principal: library.sessions_per_principal,
            calls: library.calls,
            stateless_requests: Options::default().exchanges,
            store_bytes: ByteSize(library.store_bytes),
            session_bytes: ByteSize(library.session_bytes),
            stream_bytes: ByteSize(library.stream_bytes),
        }
    }
}

/// How long sessions are kept.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Session {
    /// How long a session is kept that has no call in flight, no connection and no request.
    pub(crate) idle_timeout: TimeSpan,
    /// How long a session is kept after its last connection broke.
    pub(crate) grace: TimeSpan,
    /// How long an answer is kept that no client has read. It may be kept up to a quarter longer.
    pub(crate) retention: TimeSpan,
}

impl Default for Session {
    fn default() -> Self {
        let library = steadfast::Timing::default();
        Self {
            idle_timeout: TimeSpan(library.idle),
            grace: TimeSpan(library.grace),
            retention: TimeSpan(library.retention),
        }
    }
}

/// Requests of servers to clients.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ServerRequests {
    /// Requests in flight in one session. Further ones are queued.
    pub(crate) concurrency: usize,
    /// Requests of one session that may be queued. Further ones are refused.
    pub(crate) queue: usize,
    /// `"concurrent"`: a client gets them at once. `"strict"`: one after the other.
    pub(crate) order: ServerRequestOrder,
    /// How long a client may take to answer, time in the queue included. Then the request is
    /// cancelled.
    pub(crate) deadline: TimeSpan,
}

impl Default for ServerRequests {
    fn default() -> Self {
        let options = Options::default();
        Self {
            concurrency: steadfast::Limits::default().server_requests,
            queue: options.queued_server_requests,
            order: ServerRequestOrder::Concurrent,
            deadline: TimeSpan(options.server_request_deadline),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ServerRequestOrder {
    /// At once, up to `server_requests.concurrency`
    Concurrent,
    /// One at a time, in the order of arrival
    Strict,
}
