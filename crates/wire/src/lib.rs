//! MCP on the wire, and nothing else: bytes in, bytes out.
//!
//! This crate does no IO, reads no clock, draws no entropy and spawns nothing. A payload that came in is
//! never re-serialised: [`envelope`] looks at the outside of a JSON-RPC message and leaves its bytes alone.
#![forbid(unsafe_code)]

pub mod accept;
pub mod envelope;
pub mod event_id;
pub mod headers;
pub mod id;
pub mod listen;
pub mod members;
pub mod mirrored;
pub mod params;
pub mod planted;
pub mod revision;
pub mod rpc;
pub mod sse;
pub mod stateless;

pub use envelope::{Body, Message, MessageKind};
pub use event_id::EventId;
pub use id::RequestId;
pub use members::Members;
pub use planted::planted;
pub use revision::Revision;
