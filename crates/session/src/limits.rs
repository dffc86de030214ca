//! Every bound of a session, with its name and its default, and the times that rule its life.

use std::fmt;
use std::time::Duration;

/// What a session is held to. Stores receive it once and apply it to every session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub limits: Limits,
    pub timing: Timing,
}

/// How much of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions in the store.
    pub sessions: u64,
    /// Sessions of one principal.
    pub sessions_per_principal: u64,
    /// Bytes held by all sessions of a store before new sessions, calls and notifications are refused. A store that cannot know
    /// the sum does not apply it.
    pub store_bytes: u64,
    /// The same for the sessions of one principal.
    pub principal_bytes: u64,
    /// Calls in flight in one session.
    pub calls: usize,
    /// Asks in flight in one session. Those beyond it wait for their turn.
    pub asks: usize,
    /// Streams of one session that are open or hold an answer that nobody has read.
    pub streams: usize,
    /// Standalone streams of one session.
    pub standalone_streams: usize,
    /// Finished streams that are kept although their answer has been written to a connection.
    pub delivered_streams: usize,
    /// Bytes held by one stream before messages that can be spared are dropped, and notifications refused.
    pub stream_bytes: u64,
    /// Bytes held by one session before new calls and notifications are refused.
    pub session_bytes: u64,
    /// Bytes of answers in one session that came to another node than the one whose asker waits, until that one has them.
    pub kept_answer_bytes: u64,
    /// Bytes of requests in one session that are kept because another node runs them, or may have to.
    pub kept_request_bytes: u64,
    /// Entries of session state.
    pub state_entries: usize,
    /// Bytes of session state, keys and values together.
    pub state_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 1_000_000,
            sessions_per_principal: 1_000_000,
            store_bytes: 1 << 30,
            // No less than everybody has together: where clients are not told apart, all of them are one principal.
            principal_bytes: 1 << 30,
            calls: 4096,
            asks: 64,
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

/// How long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A session with no call, no connection and no request for this long ends.
    pub idle: Duration,
    /// A session whose last connection broke ends after this long, unless somebody comes back.
    pub grace: Duration,
    /// An answer that nobody has read stays readable for this long, and up to a quarter longer.
    pub retention: Duration,
    /// A closed session's last events stay readable for this long, for connections that are still writing.
    pub linger: Duration,
    /// Activity is recorded no finer than this, so that a busy session is not rewritten at each request. Expiry
    /// allows for it: no session ends early.
    pub touch: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30 * 60),
            grace: Duration::from_secs(5 * 60),
            retention: Duration::from_secs(5 * 60),
            linger: Duration::from_secs(10),
            touch: Duration::from_secs(2),
        }
    }
}

/// The bound that a refused command ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    Sessions,
    SessionsPerPrincipal,
    StoreBytes,
    PrincipalBytes,
    Calls,
    Asks,
    WaitingAsks,
    Notifications,
    NotificationsInAll,
    Streams,
    StandaloneStreams,
    StreamBytes,
    SessionBytes,
    KeptAnswerBytes,
    KeptRequestBytes,
    State,
    /// Stateless requests that one node works on; they are in no session.
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
            Self::Asks => "asks",
            Self::WaitingAsks => "waiting_asks",
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
