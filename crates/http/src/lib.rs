//! One MCP endpoint as a tower service: what HTTP asks of a session, and nothing of the session itself.
//!
//! [`Endpoint`] checks a request from the outside in (host, verb, principal, media types, size, JSON, era,
//! session, version), hands it to the engine, and turns what comes back into a response. Every refusal is a
//! [`problem::Problem`]: a status, a JSON-RPC code and a message that says what to do.
#![forbid(unsafe_code)]

mod body;
pub mod config;
mod cors;
mod delete;
mod edge;
mod endpoint;
mod exchange_body;
mod get;
mod identify;
#[cfg(feature = "listen")]
pub mod listen;
mod moment;
mod names;
mod post;
pub mod problem;
mod silence;
mod sse_body;

pub use body::ResponseBody;
pub use config::{Config, Hosts, Origins, ResponseMode};
pub use endpoint::Endpoint;
pub use identify::{Denied, Identified, Identify, PrincipalOf};
