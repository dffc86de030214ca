//! The rules of an MCP session, as a pure state machine.
//!
//! A [`Session`] consists of a few small tables (calls in flight, server requests in flight,
//! streams, session state). Each stream is an append-only log of events. [`Session::apply`] applies
//! one [`Command`] at a time. It returns an [`Outcome`] for the caller and records [`Changes`],
//! which a store persists and a node delivers.
//!
//! This crate does no IO, reads no clock, draws no random numbers and spawns no tasks. The memory
//! store runs it directly. Every other store is tested against it.
#![forbid(unsafe_code)]

mod calls;
pub mod changes;
pub mod command;
mod expiry;
mod fencing;
mod forwarding;
mod holdings;
pub mod ids;
pub mod lifecycle_events;
pub mod limits;
mod reassignment;
pub mod rows;
mod server_requests;
mod session;
mod session_eviction;
mod shared_usage;
mod state;
mod streams;
#[cfg(test)]
mod tests;

pub use changes::Changes;
pub use command::{Command, Outcome, Step};
pub use holdings::{ForwardedCall, Holdings};
pub use ids::{CallNo, ConnNo, NodeId, Principal, ServerRequestNo, SessionId, SessionToken, StreamNo, Time};
pub use lifecycle_events::{CloseReason, Lifecycle};
pub use limits::{Limit, Limits, Rules, Timing};
pub use rows::{
    CALL_SUBJECT, Call, Class, Facts, ForwardedBegin, Meta, Request, ServerRequest, SessionState, StateEntry,
    StoredAnswer, StoredEvent, Stream, StreamKind, Streams,
};
pub use session::Session;
pub use session_eviction::LastUse;
pub use shared_usage::SharedUsage;
pub use streams::read::{Read, Slice};
