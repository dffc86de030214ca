//! The file as it is written. Every key has a default; the documentation of a field is its text in the schema.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast::Durability as PlainDurability;
use steadfast_http::listen;

use super::endpoint::Endpoint;
use super::setting::settings;
use super::values::{OneOrMany, Size, Time};

/// The configuration of `steadfast serve --config`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct File {
    /// Where to listen: one address, or a list of them. A change needs a restart.
    pub(crate) listen: OneOrMany,
    /// Where sessions are kept: `memory:`, `sqlite:PATH`, `redis://HOST` or `postgres://HOST/DATABASE`. A file in the user's data
    /// folder unless said otherwise. A change needs a restart.
    pub(crate) store: Option<String>,
    /// What an acknowledged step survives. A change needs a restart.
    pub(crate) durability: Durability,
    /// How long running calls may take to finish when the gateway stops, or when their endpoint is taken out of the file.
    pub(crate) drain: Time,
    /// Which log lines are written: a level, or a filter such as `info,steadfast_http=debug`. `RUST_LOG` goes before it.
    pub(crate) log: String,
    /// Serve HTTPS instead of HTTP; to begin or end that needs a restart. The files are followed, too.
    pub(crate) tls: Option<Tls>,
    /// The listener for health checks and metrics.
    pub(crate) admin: Admin,
    /// Bounds of each address that is listened on. A change needs a restart.
    pub(crate) listener: Listener,
    /// Bounds of sessions, of all endpoints. A change needs a restart.
    pub(crate) limits: Limits,
    /// What rules the life of sessions, of all endpoints. A change needs a restart.
    pub(crate) timing: Timing,
    /// What holds for every endpoint that does not say otherwise.
    pub(crate) defaults: Endpoint,
    /// The endpoints, each at a path of its own.
    pub(crate) endpoint: Vec<Endpoint>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            listen: OneOrMany::one("127.0.0.1:7411"),
            store: None,
            durability: Durability::Process,
            drain: Time(std::time::Duration::from_secs(10)),
            // rmcp reports each of its loops at info, which for us is each call.
            log: "info,rmcp=warn".into(),
            tls: None,
            admin: Admin::default(),
            listener: Listener::default(),
            limits: Limits::default(),
            timing: Timing::default(),
            defaults: Endpoint::default(),
            endpoint: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Durability {
    /// The end of the process, however it comes
    Process,
    /// A power cut as well, at the price of a disk flush for each group of steps
    Power,
}

impl From<Durability> for PlainDurability {
    fn from(written: Durability) -> Self {
        match written {
            Durability::Process => Self::Process,
            Durability::Power => Self::Power,
        }
    }
}

/// The listener's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Tls {
    /// A PEM file with the certificate and those that lead to its authority.
    pub(crate) certificate: String,
    /// A PEM file with the certificate's private key.
    pub(crate) key: String,
    /// How long a client may take for the handshake. A change needs a restart.
    pub(crate) handshake: Time,
}

impl Default for Tls {
    fn default() -> Self {
        let handshake = Time(std::time::Duration::from_secs(10));
        Self { certificate: String::new(), key: String::new(), handshake }
    }
}

/// The listener for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Admin {
    /// Where `/healthz`, `/readyz` and `/metrics` are served; nowhere unless set. Not for the public. A change needs a restart.
    pub(crate) listen: Option<String>,
}

settings! {
    /// Bounds of an accept loop.
    Listener of listen::Limits = listen::Limits::default(); {
        /// Connections at a time. More wait to be accepted.
        connections: usize,
        /// How long a client may take to send the head of a request.
        header_timeout: Time,
        /// How long requests are still taken on open connections when the gateway stops; new ones are not accepted from the
        /// start, so that balancers go elsewhere.
        notice: Time,
        /// How long open connections may take to finish after the drain.
        farewell: Time,
    }
}

settings! {
    /// How much of everything.
    Limits of steadfast::Limits = steadfast::Limits::default(); {
        /// Sessions in the store. One more is refused with 503.
        sessions: u64,
        /// Sessions of one principal at one endpoint. One more is refused with 429.
        sessions_per_principal: u64,
        /// Bytes held by all sessions before new sessions, calls and notifications are refused with 503. For the stores `memory:`
        /// and `sqlite:`; what a database may hold is its own setting.
        store_bytes: Size,
        /// Bytes held by the sessions of one principal at one endpoint before its new sessions, calls and notifications are
        /// refused with 429. For the store `memory:`.
        principal_bytes: Size,
        /// Calls in flight in one session. One more is refused with 429.
        calls: usize,
        /// Requests to the client in flight in one session. More wait for their turn.
        asks: usize,
        /// Streams of one session that are open or hold an answer that nobody has read. One more is refused with 429.
        streams: usize,
        /// Standalone streams of one session. One more is refused with 429.
        standalone_streams: usize,
        /// Finished streams that are kept although their answer has been written to a connection.
        delivered_streams: usize,
        /// Bytes held by one stream before messages that can be spared are dropped, and notifications refused.
        stream_bytes: Size,
        /// Bytes held by one session before new calls and notifications are refused.
        session_bytes: Size,
        /// Entries of session state.
        state_entries: usize,
        /// Bytes of session state, keys and values together.
        state_bytes: Size,
    }
}

settings! {
    /// How long.
    Timing of steadfast::Timing = steadfast::Timing::default(); {
        /// A session with no call, no connection and no request for this long ends.
        idle: Time,
        /// A session whose last connection broke ends after this long, unless somebody comes back.
        grace: Time,
        /// An answer that nobody has read stays readable for this long, and up to a quarter longer.
        retention: Time,
        /// A closed session's last events stay readable for this long.
        linger: Time,
        /// Activity is recorded no finer than this.
        touch: Time,
    }
}
