//! What the engine can be told.

use std::time::Duration;

use steadfast_session::command::Duplicates;

/// Settings of a node. What belongs to a session is in [`Rules`](steadfast_session::Rules), with the store.
#[derive(Clone, Debug)]
pub struct Options {
    pub duplicates: Duplicates,
    /// A call that has not been answered by then gets an explicit error.
    pub call_deadline: Duration,
    /// How long a cancelled backend may take to wind down before its future is dropped.
    pub wind_down: Duration,
    /// An ask that has not been answered by then is withdrawn. Waiting for its turn counts.
    pub ask_deadline: Duration,
    pub ask_order: AskOrder,
    /// Asks of one session that may wait for their turn on this node, beyond those in flight.
    pub waiting_asks: usize,
    /// Notifications of one session's client that may wait for the backend.
    pub notifications: usize,
    /// Notifications of all clients that may wait for the backend or be worked on.
    pub notifications_in_all: usize,
    /// How long the backend may work on a notification.
    pub notification_deadline: Duration,
    /// How much of each stream a node keeps at hand, so that its readers need not ask the store.
    pub tail_bytes: usize,
    /// How much a reader takes from the store at a time.
    pub read_bytes: u64,
    /// How often the sweeper looks for what time has brought about.
    pub sweep_interval: Duration,
    /// How long what this node knows of a session is kept while nothing happens.
    pub forget_after: Duration,
    /// How long an answer is offered to a store that does not take it before it is set aside. The sweeper goes on
    /// offering it.
    pub finish_patience: Duration,
    /// Stateless requests in flight, subscriptions included.
    pub exchanges: usize,
    /// Bytes that may wait for the client of a stateless request to read them.
    pub exchange_bytes: usize,
    /// Lifecycle events that may wait for a listener.
    pub listener_backlog: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            duplicates: Duplicates::default(),
            call_deadline: Duration::from_secs(60 * 60),
            wind_down: Duration::from_secs(10),
            ask_deadline: Duration::from_secs(10 * 60),
            ask_order: AskOrder::default(),
            waiting_asks: 4096,
            notifications: 256,
            notifications_in_all: 65_536,
            notification_deadline: Duration::from_secs(60),
            tail_bytes: 256 << 10,
            read_bytes: 256 << 10,
            sweep_interval: Duration::from_secs(1),
            forget_after: Duration::from_secs(30),
            finish_patience: Duration::from_secs(60),
            exchanges: 65_536,
            exchange_bytes: 1 << 20,
            listener_backlog: 65_536,
        }
    }
}

/// How many requests to the client a session has in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AskOrder {
    /// As many as the limit `asks` allows.
    #[default]
    Concurrent,
    /// One at a time, in the order of arrival: the next is sent when the one before has its outcome. For clients that
    /// handle one request at a time and get confused by more.
    Strict,
}
