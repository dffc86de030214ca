//! Settings of an endpoint.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use steadfast_engine::Principal;
use steadfast_wire::Revisions;

use crate::quirks::Quirks;
use crate::request::identify::{Denied, PrincipalOf};

/// Settings of one endpoint. The defaults are safe on a developer's machine: only loopback hosts
/// and origins are allowed.
#[derive(Clone)]
pub struct Config {
    /// Which `Host` values are allowed.
    pub hosts: Hosts,
    /// Which `Origin` values are allowed, if the header is present.
    pub origins: Origins,
    /// Determines the principal of a request.
    pub principal: PrincipalOf,
    pub response: ResponseMode,
    /// What happens to a request whose id is in flight in its session.
    pub duplicate_ids: DuplicateIds,
    /// Whether known deviations of clients change the form of answers.
    pub quirks: Quirks,
    /// Which protocol revisions are offered.
    pub revisions: Revisions,
    /// The largest POST body.
    pub max_request_bytes: usize,
    /// How long a client may take to send a body.
    pub body_timeout: Duration,
    /// The largest `params` of `initialize`. The engine keeps them for the lifetime of the session.
    pub max_initialize_bytes: usize,
    /// The largest sum of header names and values.
    pub max_header_bytes: usize,
    /// The longest batch of 2025-03-26.
    pub max_batch: usize,
    /// A stream that has been silent for this long gets a comment, so that proxies do not close it.
    pub keep_alive: Duration,
    /// How long a client should wait before it resumes a stream (SSE `retry:`). The TypeScript and
    /// the Python SDK try twice, with this pause before each attempt, so the default bridges two
    /// seconds: a cut, or a crash of a process that its supervisor restarts. A process that shuts
    /// down asks for a longer pause.
    pub retry: Duration,
    /// How long the head of the response to a call waits for an upstream server that verifies the
    /// client's credentials itself. A client fetches new credentials for status 401, but not for an
    /// error after the head. Zero if no backend denies credentials.
    pub auth_wait: Duration,
    /// Streams are closed after this long, with a `retry:` hint to resume. For load balancers that
    /// cut long responses.
    pub max_connection_age: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            hosts: Hosts::Loopback,
            origins: Origins::Loopback,
            principal: Arc::new(|_: &Parts| Ok::<_, Denied>(Principal::anonymous())),
            response: ResponseMode::default(),
            duplicate_ids: DuplicateIds::default(),
            quirks: Quirks::default(),
            revisions: Revisions::all(),
            max_request_bytes: 4 << 20,
            body_timeout: Duration::from_secs(30),
            max_initialize_bytes: 64 << 10,
            max_header_bytes: 32 << 10,
            max_batch: 100,
            keep_alive: Duration::from_secs(15),
            retry: Duration::from_secs(1),
            auth_wait: Duration::ZERO,
            max_connection_age: None,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("hosts", &self.hosts)
            .field("origins", &self.origins)
            .finish_non_exhaustive()
    }
}

/// Which hosts are allowed. Without this check a web page can reach a local server by DNS
/// rebinding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// `localhost`, `127.0.0.1` and `[::1]`, with any port.
    Loopback,
    /// Loopback hosts and these names. A name without a port matches every port.
    LoopbackAnd(Vec<String>),
    /// These names. A name without a port matches every port.
    Only(Vec<String>),
    /// Every host. For servers behind a proxy that checks the host.
    Any,
}

/// Which origins are allowed. A request without `Origin` does not come from a web page and passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// Origins at `localhost`, `127.0.0.1` and `[::1]`, with any port.
    Loopback,
    /// Loopback origins and exactly these origins, such as `https://app.example.com`.
    LoopbackAnd(Vec<String>),
    /// Exactly these origins.
    Only(Vec<String>),
    Any,
}

/// How POSTs with calls are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseMode {
    /// Always with a stream, which the client can resume.
    #[default]
    Stream,
    /// Always with JSON when the call is done. Cheap, but the client cannot recover an answer that
    /// is lost in transit. Progress and other notifications go to the standalone stream.
    Json,
    /// With JSON if the answer is available immediately, otherwise with a stream.
    Adaptive,
}

/// What happens to a request whose JSON-RPC id is in flight in its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DuplicateIds {
    /// It is served separately if the client is known to send one id with every request
    /// ([`quirks`](crate::quirks)), and refused otherwise.
    #[default]
    ByClient,
    /// It is refused with 400. The request in flight is unaffected.
    Reject,
    /// Both are served separately.
    Isolate,
}
