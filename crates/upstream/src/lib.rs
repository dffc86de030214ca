//! A [`Backend`](steadfast_engine::Backend) that forwards the requests of clients to an MCP server.
//! The server is reached over HTTP or started as a child process (stdio). The server needs no
//! changes.
//!
//! [`Upstream`] is the backend, [`Config`] its configuration.
//!
//! - `session`: one client session at this node.
//! - `placement`: which server instance and which upstream sessions serve a client session; leases
//!   and failover.
//! - `call`: one call at the server; concurrency limit, retries, annotations of tools.
//! - `replicas`: the replicas of an HTTP server; name resolution, probes and health checks.
//! - [`stateless`]: requests of revision 2026-07-28, which have no session.
//! - [`stdio`]: child processes, presented as HTTP servers in memory.
#![forbid(unsafe_code)]

mod backend;
mod call;
mod config;
mod errors;
mod placement;
mod replicas;
mod session;
pub mod stateless;
pub mod stdio;
mod upstream;

pub use call::parallel_calls::{SerialReason, Verdict};
pub use config::{Calls, Concurrency, Config, Credential, HealthCheck, Program, Server, Sharing, Stdio};
pub use replicas::dns::Resolver;
pub use replicas::replica::ReplicaStatus;
pub use steadfast_client::transport::{Identity, Tls, TlsError, TlsFiles};
pub use upstream::{StartError, Upstream};
