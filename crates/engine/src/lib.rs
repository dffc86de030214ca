//! The engine of one node: runs calls, delivers messages to connections, and performs periodic
//! upkeep.
//!
//! HTTP requests enter through [`Engine`]. The engine sends commands to the store and asks the
//! [`Backend`] for answers. The backend replies through handles: [`CallHandle`], [`SessionHandle`],
//! [`ExchangeHandle`]. The store calls back through `delivery::signals` only.
//!
//! # Where to look
//! - `sessions`: opening and finding sessions, and what this node does for each of them
//! - `calls`: from the begin of a call to its one answer, including calls that other nodes forward
//! - `delivery`: from the log of a stream to the connection that reads it
//! - `server_requests`: requests to the client and their answers
//! - `stateless`: requests of the revision without sessions
//! - `internal_sessions`: jobs and records, which are stored as sessions that no client can use
//! - `upkeep`: the sweeper, and the comparison of memory with the store
//! - `shutdown`: admission and draining
//!
//! # Invariants
//! - The engine owns no session. It knows which calls run on this node and which connections are
//!   served by this node. Everything else is in the store, and every change of a session is a
//!   command that the store applies.
//! - Each call that the store has begun ends exactly once: with the backend's answer, with an error
//!   (after a panic, a deadline, a shutdown or the death of its node), or without an answer because
//!   its client cancelled it.
//! - An event is delivered from the store's log or from a copy of the log's end in memory. The only
//!   exception: answers that the store does not accept are delivered without event ids.
//! - A command whose outcome is unknown is repeated, or its session is marked for reconciliation.
//!   Losing a signal of the store may delay a message, never lose it.
//! - A dropped future leaves no half-done work: steps that belong together run in
//!   `Engine::run_detached`.
//! - No lock is held across an `await` or while the backend runs. A task that takes several locks
//!   of a session takes them in this order: `sending_server_requests`, `work`, `server_requests`; a
//!   tail's lock is the last one.
//! - Timestamps and deadlines come from [`Clock`], random ids from [`Entropy`].
#![forbid(unsafe_code)]

pub mod backend;
mod calls;
pub mod clock;
mod delivery;
mod engine;
pub mod entropy;
mod internal_sessions;
pub mod options;
mod panics;
pub mod refusal;
mod run_futures;
mod server_requests;
mod sessions;
mod shutdown;
mod stateless;
mod upkeep;

pub use backend::{Backend, Denial, IncomingMessage, InitializeError, InitializeOk, Route, Routing};
pub use calls::{BegunCall, BegunCalls, CallDriver, CallHandle, Heartbeat, ResponseFormat, Retry};
pub use clock::{Clock, ManualClock, SystemClock};
pub use delivery::{Cursor, CursorStatus, Event, MessageQueue};
pub use engine::Engine;
pub use entropy::{Entropy, SystemEntropy};
pub use internal_sessions::{CreatedJob, JobStatus, PrincipalRecord, stands_for_request};
pub use options::{Options, ServerRequestOrder};
pub use refusal::Refusal;
pub use server_requests::ServerRequestHandle;
pub use sessions::{
    LifecycleListener, LiveSession, OpenError, SessionEvent, SessionEventKind, SessionHandle, SessionRef,
    StateError,
};
pub use stateless::{
    Answer, CallJob, Change, ChangeFilter, ExchangeHandle, ExchangeObserver, Replies, Reply,
};

pub use bytes::Bytes;
pub use steadfast_session::command::{Duplicates, Fence};
pub use steadfast_session::{
    CallNo, Class, CloseReason, Facts, Limit, Limits, NodeId, Principal, Rules, SessionId, SessionToken,
    StateEntry, StreamNo, Time, Timing,
};
