//! The rules of an MCP session, written once.
//!
//! A [`Session`] is a few small tables (calls in flight, asks in flight, streams) and one append-only log per
//! stream. [`Session::apply`] changes it by one [`Command`] at a time and says what came of it: an outcome for
//! the caller, and [`Changes`] for whoever has to persist, deliver or announce them.
//!
//! This crate does no IO, reads no clock, draws no entropy and spawns nothing. The memory store runs it as it
//! is; every other store is tested against it.
#![forbid(unsafe_code)]

mod asks;
mod attach;
mod calls;
pub mod changes;
pub mod command;
mod crowd;
mod expiry;
mod handover;
mod held;
pub mod ids;
pub mod lifecycle;
pub mod limits;
mod log;
mod session;
mod state;
pub mod tables;
#[cfg(test)]
mod tests;

pub use changes::Changes;
pub use command::{Command, Outcome, Step};
pub use crowd::Crowd;
pub use held::{Errand, Holdings};
pub use ids::{AskNo, CallNo, ConnNo, NodeId, Principal, SessionId, SessionToken, StreamNo, Time};
pub use lifecycle::{CloseReason, Lifecycle};
pub use limits::{Limit, Limits, Rules, Timing};
pub use log::{Read, Slice};
pub use session::Session;
pub use tables::{
    Ask, Call, Class, Entry, Facts, Kept, Mailed, Meta, Request, State, Stream, StreamKind, Streams, Value,
};
