//! Settings of a node.

use std::time::Duration;

/// Settings of a node. Rules that apply to a session at every node are in
/// [`Rules`](steadfast_session::Rules), which the store holds.
///
/// Bounds on memory have defaults that a well-behaved client never reaches.
#[derive(Clone, Debug)]
pub struct Options {
    /// The longest time from the beginning of a call to its answer; then the client gets an error.
    /// One hour: a call in flight keeps its session from expiring, so there must be a bound, but
    /// tools may run for long.
    pub call_deadline: Duration,
    /// If a call with a progress token has sent no progress for this long, the backend sends a
    /// heartbeat. Zero: never. 20 seconds: clients give up after 60 seconds or later.
    pub heartbeat: Duration,
    /// How long a cancelled backend may take to end before its future is dropped. Ten seconds:
    /// enough to cancel a request at an upstream server.
    pub wind_down: Duration,
    /// The longest time from the sending of a server request to the client's answer; then the
    /// request is withdrawn. Time in the queue counts. Ten minutes: a person may have to answer.
    pub server_request_deadline: Duration,
    /// How many server requests of one session are in flight at a time.
    pub server_request_order: ServerRequestOrder,
    /// Bounds the server requests of one session that are queued on this node, beyond those in
    /// flight. 4096: the queue is in memory only.
    pub queued_server_requests: usize,
    /// Bounds the client notifications of one session that are queued for the backend. 256: clients
    /// notify rarely, and a full queue means that the backend hangs.
    pub notifications: usize,
    /// Bounds the client notifications of all sessions that are queued or being processed.
    pub notifications_in_all: usize,
    /// How long the backend may process one notification before it is dropped. One minute: the
    /// notifications behind it wait that long.
    pub notification_deadline: Duration,
    /// Bounds the bytes of each stream that a node caches for its reader. A reader within the bound
    /// does not read from the store. 256 KiB: most answers fit.
    pub tail_bytes: usize,
    /// Bounds the bytes of one read from the store.
    pub read_bytes: u64,
    /// The interval of the sweeper. One second: deadlines and expiry times are exact to this
    /// interval.
    pub sweep_interval: Duration,
    /// How long this node keeps its in-memory part of an idle session. 30 seconds: the next request
    /// of a busy client finds it, and thousands of idle sessions cost little memory.
    pub forget_after: Duration,
    /// How long a command that must not be lost, such as the answer of a call, is retried while the
    /// store fails. After that the answer stays in memory, and the sweeper retries it. One minute:
    /// long enough for the failover of a database.
    pub finish_retry_window: Duration,
    /// Bounds the stateless requests in flight on this node, including subscriptions.
    pub exchanges: usize,
    /// Bounds the bytes that are buffered for the client of one stateless request. 1 MiB: only a
    /// client that stops reading reaches it.
    pub exchange_bytes: usize,
    /// How long a stateless request that was promoted to a job continues without a reader. After
    /// that it is cancelled. Five seconds: the known clients resume within two. Zero: no request
    /// is promoted, and a broken connection cancels its request at once, as the specification says.
    pub resume_grace: Duration,
    /// Bounds the lifecycle events that are queued for one listener. A listener that falls further
    /// behind misses events.
    pub listener_backlog: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            call_deadline: Duration::from_secs(60 * 60),
            heartbeat: Duration::from_secs(20),
            wind_down: Duration::from_secs(10),
            server_request_deadline: Duration::from_secs(10 * 60),
            server_request_order: ServerRequestOrder::default(),
            queued_server_requests: 4096,
            notifications: 256,
            notifications_in_all: 65_536,
            notification_deadline: Duration::from_secs(60),
            tail_bytes: 256 << 10,
            read_bytes: 256 << 10,
            sweep_interval: Duration::from_secs(1),
            forget_after: Duration::from_secs(30),
            finish_retry_window: Duration::from_secs(60),
            exchanges: 65_536,
            exchange_bytes: 1 << 20,
            resume_grace: Duration::from_secs(5),
            listener_backlog: 65_536,
        }
    }
}

/// How many server requests of one session are in flight at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerRequestOrder {
    /// As many as the limit `server_requests` allows.
    #[default]
    Concurrent,
    /// One at a time, in the order of arrival: the next one is sent when the one before has its
    /// outcome. For clients that cannot handle concurrent requests.
    Strict,
}
