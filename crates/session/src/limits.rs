//! The limits and timeouts of sessions, with their names and defaults.

use std::fmt;
use std::time::Duration;

/// The limits and timeouts of sessions. A store receives them once and applies them to every
/// session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub limits: Limits,
    pub timing: Timing,
}

/// How much sessions may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions in the store. Beyond it, a session is evicted for each new one.
    pub sessions: u64,
    /// Sessions of one principal, with the same consequence as `sessions`.
    pub sessions_per_principal: u64,
    /// Bytes that all sessions of a store may hold. Beyond it, sessions are evicted; new sessions,
    /// calls and notifications are refused if that does not help. A store that does not count this
    /// sum ignores the limit.
    pub store_bytes: u64,
    /// Bytes that the sessions of one principal may hold, with the same consequence as
    /// `store_bytes`.
    pub principal_bytes: u64,
    /// Calls in flight in one session.
    pub calls: usize,
    /// Server requests in flight in one session. Further ones wait in a queue of the node.
    pub server_requests: usize,
    /// Streams of one session that are open or not fully delivered.
    pub streams: usize,
    /// Standalone streams of one session.
    pub standalone_streams: usize,
    /// Fully delivered streams that one session keeps for clients that resume.
    pub delivered_streams: usize,
    /// Bytes that one stream may hold. Beyond it, progress and log messages are dropped, and
    /// notifications are refused.
    pub stream_bytes: u64,
    /// Bytes that one session may hold. Beyond it, new calls and notifications are refused.
    pub session_bytes: u64,
    /// Bytes of stored answers to server requests in one session: answers that one node received
    /// and another node has not collected.
    pub kept_answer_bytes: u64,
    /// Bytes of stored requests in one session: requests of calls that another node runs, or may
    /// have to run.
    pub kept_request_bytes: u64,
    /// Entries of the session state.
    pub state_entries: usize,
    /// Bytes of the session state, keys and values together.
    pub state_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 1_000_000,
            sessions_per_principal: 1_000_000,
            store_bytes: 1 << 30,
            // Not less than `store_bytes`: without authentication all clients are one principal.
            principal_bytes: 1 << 30,
            calls: 4096,
            server_requests: 64,
            streams: 8192,
            standalone_streams: 16,
            delivered_streams: 256,
            stream_bytes: 8 << 20,
            session_bytes: 64 << 20,
            kept_answer_bytes: 16 << 20,
            kept_request_bytes: 4 << 20,
            state_entries: 256,
            state_bytes: 1 << 20,
        }
    }
}

/// The timeouts of sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A session without a call, a connection or a request closes after this time.
    pub idle: Duration,
    /// A detached session closes after this time, unless a client reattaches.
    pub grace: Duration,
    /// A finished stream stays readable for this time, and up to a quarter longer.
    pub retention: Duration,
    /// The last events of a closed session stay readable for this time, for connections that are
    /// still writing them.
    pub linger: Duration,
    /// Activity is recorded at most once in this time, so that a busy session is not written at
    /// each request. Expiry adds this time, so that no session closes early.
    pub touch: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            // Longer than a weekend and shorter than a vacation: people leave a client open, and
            // go on where they were. `sessions` and `store_bytes` bound what such sessions cost.
            idle: Duration::from_secs(7 * 24 * 60 * 60),
            grace: Duration::from_secs(7 * 24 * 60 * 60),
            retention: Duration::from_secs(5 * 60),
            linger: Duration::from_secs(10),
            touch: Duration::from_secs(2),
        }
    }
}

/// The limit that caused a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    Sessions,
    SessionsPerPrincipal,
    StoreBytes,
    PrincipalBytes,
    Calls,
    ServerRequests,
    QueuedServerRequests,
    Notifications,
    NotificationsInAll,
    Streams,
    StandaloneStreams,
    StreamBytes,
    SessionBytes,
    KeptAnswerBytes,
    KeptRequestBytes,
    State,
    /// Stateless requests that one node serves. They belong to no session.
    Exchanges,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sessions => "sessions",
            Self::SessionsPerPrincipal => "sessions_per_principal",
            Self::StoreBytes => "store_bytes",
            Self::PrincipalBytes => "principal_bytes",
            Self::Calls => "calls",
            Self::ServerRequests => "asks",
            Self::QueuedServerRequests => "waiting_asks",
            Self::Notifications => "notifications",
            Self::NotificationsInAll => "notifications_in_all",
            Self::Streams => "streams",
            Self::StandaloneStreams => "standalone_streams",
            Self::StreamBytes => "stream_bytes",
            Self::SessionBytes => "session_bytes",
            Self::KeptAnswerBytes => "kept_answer_bytes",
            Self::KeptRequestBytes => "kept_request_bytes",
            Self::State => "state",
            Self::Exchanges => "exchanges",
        })
    }
}
