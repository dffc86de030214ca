//! A [`Backend`](steadfast_engine::Backend) whose work is done by an MCP server somewhere else: over HTTP, or in a child
//! process that is spoken to over its standard input and output. The server is not changed and need not know.
//!
//! [`Upstream`] is that backend, and [`Config`] is all it is told.
#![forbid(unsafe_code)]

mod attend;
mod call;
mod config;
mod converge;
mod entry;
mod errors;
mod farewell;
mod gaps;
mod healing;
mod in_flight;
mod lease;
mod link;
mod links;
mod messages;
mod names;
mod owner;
mod record;
mod replicas;
mod seat;
mod seats;
pub mod stateless;
pub mod stdio;
mod tool_annotations;
mod tool_list;
mod turns;
mod upstream;
mod vigil;

pub use config::{Calls, Config, Credential, Program, Server, Sharing, Stdio, Vigil};
pub use names::Names;
pub use replicas::ReplicaStatus;
pub use steadfast_client::transport::{Identity, Tls, TlsError, TlsFiles};
pub use upstream::{StartError, Upstream};
