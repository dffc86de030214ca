//! Servers that communicate over standard input and output (stdio). [`ProcessTransport`] presents
//! such a program as an HTTP server in memory: it is a
//! [`Transport`](steadfast_client::transport::Transport), so sessions, calls and failover work as
//! they do over HTTP. A crash looks like a server that has lost its session.
//!
//! [`ProcessPool`] starts the processes: one per session, or one that all sessions share.
//!
//! **Shared processes.** The process is initialised with the capabilities of the first client, and
//! all other clients get the same `initialize` result. They share the log level, the subscriptions
//! and all other state that the server keeps for its one client. A server request is forwarded only
//! if it is certain which client it concerns. This suits servers that keep no state.
//!
//! **Cost.** Each process has four tasks of the gateway and the buffers of two pipes. All processes
//! of a program share one shell, the orphan guard.
//!
//! **Shutdown.** The gateway closes the input of the process. After `exit_timeout` it sends SIGTERM
//! to the process group, and after another `exit_timeout` SIGKILL. Only a process that leaves its
//! group survives that.

mod orphan_guard;
mod process;
mod process_pool;
mod routing;
mod transport;

pub use process_pool::ProcessPool;
pub use transport::process_transport::ProcessTransport;
