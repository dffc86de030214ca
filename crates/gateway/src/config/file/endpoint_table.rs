//! `[[endpoint]]` and `[defaults]` as they are written in the file.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use steadfast_engine::Options;
use steadfast_upstream as upstream;

use super::auth_table::{Auth, JwtTable};
use super::values::{AllowList, ByteSize, CallLimit, OfferedRevisions, OneOrMany, TimeSpan};

/// One endpoint: a path, and the server behind it.
#[derive(Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct EndpointTable {
    /// The path that clients use. Each endpoint has its own path and its own sessions.
    pub(crate) path: String,
    /// The identity of the endpoint. Gateways that share a store share the sessions of endpoints
    /// with the same `id`. Set it to keep sessions when the path or the address of the server
    /// changes. Unset: a hash of both, which the log and `config check` show.
    pub(crate) id: Option<String>,
    /// The URL of the server, or a list with the URLs of its replicas.
    pub(crate) upstream: OneOrMany,
    /// The server as a program that uses the stdio transport.
    pub(crate) stdio: Option<Stdio>,
    /// Serve the built-in demo server.
    pub(crate) demo: bool,
    /// Calls in flight in one upstream session; further calls are queued. `"auto"`: one if the
    /// server loses or mixes up parallel calls, which the gateway finds out, otherwise any number.
    /// `"unlimited"`: any number. Gateways that share a store count together; with `auth =
    /// "forward"` each gateway counts its own calls.
    pub(crate) concurrency: CallLimit,
    /// Upstream sessions that the calls of one client session are spread over. Only for servers
    /// whose tools keep no session state.
    pub(crate) upstream_sessions: NonZeroUsize,
    /// Headers that the gateway sends with every request to the server. A value can be `"env:NAME"`
    /// (an environment variable) or `"file:PATH"`.
    pub(crate) headers: BTreeMap<String, String>,
    /// Certificates for `https` addresses of the server.
    pub(crate) upstream_tls: UpstreamTls,
    /// How clients are authenticated: `"none"`; `"forward"`, where the server decides; or `"jwt"`,
    /// where the gateway verifies access tokens (see `jwt`).
    pub(crate) auth: Auth,
    /// Which access tokens are accepted with `auth = "jwt"`.
    pub(crate) jwt: JwtTable,
    /// Accepted `Host` values: `"loopback"`, `"any"` (behind a proxy that checks), or a list of
    /// names besides loopback names.
    pub(crate) hosts: AllowList,
    /// Accepted origins of web pages: `"loopback"`, `"any"`, or a list of origins besides loopback
    /// origins.
    pub(crate) origins: AllowList,
    /// The form of the response to a call: `"stream"` (SSE, which a client can resume), `"json"`
    /// (sent when the call is done), or `"adaptive"` (JSON if the call is answered at once).
    pub(crate) response: Response,
    /// What happens to a request whose id is already in flight: `"reject"` (400), `"isolate"` (both
    /// are served), or `"by-client"`: isolated for clients that are known to send one id with every
    /// request (see `quirks`), and refused otherwise.
    pub(crate) duplicate_ids: DuplicateIds,
    /// Change the form of some answers for clients that are known to need it, such as VS Code and
    /// claude.ai. `docs/clients.md` lists them. `false`: every client gets the behaviour of the
    /// specification.
    pub(crate) quirks: bool,
    /// The protocol revisions that clients may use: `"all"`, `"legacy"` (those with sessions, up to
    /// 2025-11-25), or a list such as `["2025-11-25", "2026-07-28"]`. Clients of a declined
    /// revision negotiate an offered one.
    pub(crate) revisions: OfferedRevisions,
    /// The largest request body. Larger ones are refused with 413.
    pub(crate) max_request_bytes: ByteSize,
    /// The largest message of the server: a JSON body, an SSE event, or a line of a program.
    pub(crate) max_response_bytes: ByteSize,
    /// How long a stream may be silent before the gateway sends a comment, so that no proxy closes
    /// it.
    pub(crate) keep_alive: TimeSpan,
    /// How long the server of a call may send no progress before the gateway sends a heartbeat: a
    /// progress notification that keeps the client waiting. Only for calls whose client asked for
    /// progress. `"0s"`: never. A change needs a restart.
    pub(crate) heartbeat: TimeSpan,
    /// Requests of revision 2026-07-28, which has no sessions.
    pub(crate) modern: Modern,
    /// How long the gateway waits for the server.
    pub(crate) timeouts: Timeouts,
    /// Detects replicas that accept connections and answer nothing. Only applies while another
    /// replica is up.
    pub(crate) health_check: HealthCheck,
}

impl Default for EndpointTable {
    fn default() -> Self {
        let (upstream, http) = (upstream::Config::http(Vec::new()), steadfast_http::Config::default());
        Self {
            path: "/mcp".into(),
            id: None,
            upstream: OneOrMany::none(),
            stdio: None,
            demo: false,
            concurrency: CallLimit(upstream.calls.concurrency),
            upstream_sessions: upstream.calls.upstream_sessions,
            headers: BTreeMap::new(),
            upstream_tls: UpstreamTls::default(),
            auth: Auth::default(),
            jwt: JwtTable::default(),
            hosts: AllowList::Loopback,
            origins: AllowList::Loopback,
            response: Response::Stream,
            duplicate_ids: DuplicateIds::ByClient,
            quirks: true,
            revisions: OfferedRevisions::default(),
            max_request_bytes: ByteSize(http.max_request_bytes as u64),
            max_response_bytes: ByteSize(upstream.limits.body_bytes as u64),
            keep_alive: TimeSpan(http.keep_alive),
            heartbeat: TimeSpan(Options::default().heartbeat),
            modern: Modern::default(),
            timeouts: Timeouts::default(),
            health_check: HealthCheck::default(),
        }
    }
}

impl EndpointTable {
    /// Returns only what concerns the server; every other key has its default. Two tables with the
    /// same part can use the same upstream.
    pub(crate) fn server_part(&self) -> Self {
        let default = Self::default();
        Self {
            id: default.id,
            // The server gets no token that the gateway verifies.
            auth: if self.auth == Auth::Forward { Auth::Forward } else { Auth::None },
            jwt: default.jwt,
            hosts: default.hosts,
            origins: default.origins,
            response: default.response,
            duplicate_ids: default.duplicate_ids,
            quirks: default.quirks,
            revisions: default.revisions,
            max_request_bytes: default.max_request_bytes,
            keep_alive: default.keep_alive,
            heartbeat: default.heartbeat,
            modern: default.modern,
            // The engine applies the deadline of a call, and keeps it until a restart.
            timeouts: Timeouts { call: default.timeouts.call, ..self.timeouts.clone() },
            ..self.clone()
        }
    }
}

/// Leaves out values that may be secrets.
impl std::fmt::Debug for EndpointTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndpointTable").field("path", &self.path).finish_non_exhaustive()
    }
}

/// A program that uses the stdio transport.
#[derive(Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Stdio {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub(crate) command: String,
    /// The arguments of the program.
    pub(crate) args: Vec<String>,
    /// Environment variables of the program. A value can be `"env:NAME"` or `"file:PATH"`.
    pub(crate) env: BTreeMap<String, String>,
    /// Variables that the program inherits from the gateway, besides `PATH`, `HOME`, `LANG` and
    /// others that hold no secrets.
    pub(crate) inherit_env: Vec<String>,
    /// The working directory of the program. Unset: that of the gateway.
    pub(crate) cwd: Option<String>,
    /// `"per-session"`: one process for each session. `"shared"`: one process for all sessions.
    pub(crate) sharing: Sharing,
    /// Processes at a time. If a session needs another one, the idle process that was not used for
    /// the longest time ends; its session gets a new one with its next call.
    pub(crate) max_processes: usize,
    /// Only for a program that keeps no state between calls: how long a process runs without a
    /// call. The next call starts another one. Unset: as long as its session lives.
    pub(crate) idle_timeout: Option<TimeSpan>,
}

impl Default for Stdio {
    fn default() -> Self {
        Self {
            command: String::new(),
            args: Vec::new(),
            env: BTreeMap::new(),
            inherit_env: Vec::new(),
            cwd: None,
            sharing: Sharing::PerSession,
            max_processes: upstream::Stdio::new(upstream::Program::default()).processes,
            idle_timeout: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sharing {
    PerSession,
    Shared,
}

/// Certificates for `https` addresses of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct UpstreamTls {
    /// A PEM file with the certificate authorities to trust. Unset: the authorities that browsers
    /// trust.
    pub(crate) ca: Option<String>,
    /// A PEM file with the client certificate of the gateway, for servers that ask for one.
    pub(crate) certificate: Option<String>,
    /// A PEM file with the private key of that certificate.
    pub(crate) key: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Response {
    /// Always an SSE stream, which a client can resume.
    Stream,
    /// Always JSON, sent when the call is done. A client cannot resume it.
    Json,
    /// JSON if the call is answered at once, otherwise a stream.
    Adaptive,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DuplicateIds {
    /// Isolated for clients that are known to send one id with every request, and otherwise
    /// refused.
    ByClient,
    /// The request is refused with 400. The request in flight is unaffected.
    Reject,
    /// Both requests are served separately.
    Isolate,
}

/// Requests of revision 2026-07-28.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Modern {
    /// How long a request continues after its connection broke, so that the client can resume the
    /// response. Then the request is cancelled. `"0s"` follows the letter of the specification: no
    /// response can be resumed, and a broken connection cancels its request at once. A change needs
    /// a restart.
    pub(crate) resume_grace: TimeSpan,
}

impl Default for Modern {
    fn default() -> Self {
        Self { resume_grace: TimeSpan(Options::default().resume_grace) }
    }
}

/// How long the gateway waits for the server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Timeouts {
    /// For the answer to a call. Then the call fails with an explicit error. A change needs a
    /// restart.
    pub(crate) call: TimeSpan,
    /// For every other request, such as the one that opens a session. Unset: 30 seconds, or 2
    /// minutes for a program, which may have to be downloaded first.
    pub(crate) control: Option<TimeSpan>,
    /// For a server that cannot be reached. Then its calls fail.
    pub(crate) unavailable: TimeSpan,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            call: TimeSpan(Options::default().call_deadline),
            control: None,
            unavailable: TimeSpan(upstream::Config::http(Vec::new()).unavailable_timeout),
        }
    }
}

/// Detects replicas that hang.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub(crate) struct HealthCheck {
    /// How long a replica that owes a response may send nothing before the gateway sends it an
    /// OPTIONS request. If the replica does not answer that either, it gets no new sessions.
    pub(crate) silence: TimeSpan,
    /// How long a replica may leave health checks unanswered before its sessions move to another
    /// replica. A server that handles one request at a time cannot answer while it is busy.
    pub(crate) failover_after: TimeSpan,
}

impl Default for HealthCheck {
    fn default() -> Self {
        let upstream::HealthCheck { silence, failover_after } = upstream::HealthCheck::default();
        Self { silence: TimeSpan(silence), failover_after: TimeSpan(failover_after) }
    }
}
