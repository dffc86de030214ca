//! The wire formats of MCP: JSON-RPC messages, server-sent events, headers and protocol revisions.
//!
//! This crate does no IO, reads no clock, draws no random numbers and spawns no tasks. Received
//! payloads are never re-serialised: [`envelope`] reads the outer members of a JSON-RPC message and
//! does not change its bytes.
//!
//! It also has what every other crate shares: [`DoublingDelay`] and [`Mutex`].
#![forbid(unsafe_code)]

pub mod backoff;
pub mod discover;
pub mod envelope;
pub mod event_id;
pub mod header_annotations;
pub mod headers;
pub mod id;
pub mod idempotency_key;
pub mod idempotent_methods;
pub mod job_event_id;
pub mod media_types;
mod mutex;
pub mod params;
pub mod raw_json;
pub mod reason;
pub mod revision;
pub mod rpc;
pub mod sse;
pub mod stateless;
pub mod subscriptions;

pub use backoff::DoublingDelay;
pub use envelope::{Body, Message, MessageKind};
pub use event_id::EventId;
pub use id::RequestId;
pub use idempotency_key::IdempotencyKey;
pub use job_event_id::JobEventId;
pub use mutex::Mutex;
pub use raw_json::RawObject;
pub use reason::Reason;
pub use revision::{Revision, Revisions};
