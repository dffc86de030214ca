//! The HTTP side of one MCP endpoint, as a tower service. Sessions themselves are in the engine.
//!
//! [`Endpoint`] checks a request in this order: header size, host, origin, method, principal, media
//! types, body size, JSON, era, session, version. Then it passes the request to the engine and
//! turns the outcome into a response. Every refusal is a [`problem::Problem`]: a status, a JSON-RPC
//! code and a message that says what to do.
//!
//! - `request/`: checks of the head, identity, CORS, headers
//! - `post/`, `get.rs`, `delete.rs`: one HTTP method each
//! - `quirks/`: known deviations of clients
//! - `response/`: heads, bodies and refusals
//! - `listen/` (feature `listen`): an accept loop with TLS and worker threads
#![forbid(unsafe_code)]

mod coarse_timer;
pub mod config;
mod delete;
mod get;
#[cfg(feature = "listen")]
pub mod listen;
mod mcp_endpoint;
mod post;
pub mod quirks;
mod request;
mod response;

pub use config::{Config, DuplicateIds, Hosts, Origins, ResponseMode};
pub use mcp_endpoint::Endpoint;
pub use quirks::Quirks;
pub use request::identify::{Denied, Identified, Identify, PrincipalOf};
pub use response::body::ResponseBody;
pub use response::problem;
