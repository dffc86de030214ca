//! A program that speaks MCP on its standard input and output, presented as an HTTP server in memory: [`Child`] is a
//! [`Transport`](steadfast_client::transport::Transport), so everything that a client does over HTTP it does here, and a
//! crash is healed in the way in which a server is that forgot its session.
//!
//! [`Programs`] starts it: once for each session, or once for all of them.
//!
//! **Shared programs.** The process is initialised with what the first client can do, and those after it get the same answer.
//! Log level, subscriptions and whatever else a server keeps for its one client are everybody's. An ask is passed on
//! only if it is certain whom it concerns. This fits servers that keep nothing.
//!
//! **Cost.** A process that runs has four tasks of ours, two pipes' worth of buffers, and one shell that watches over all
//! of the processes of a program. What is idle is not read and not written.
//!
//! **Ends.** Its input is closed; after `farewell` its process group gets SIGTERM, after as much again SIGKILL. Only a
//! process that leaves its group outlives this.

mod body;
mod child;
mod environment;
mod group;
mod lines;
mod mail;
mod pipes;
mod process;
mod programs;
mod quota;
mod reply;
mod restarts;
mod router;
mod session_id;
pub(crate) mod splice;
mod unavailable;
mod watch;

pub use child::Child;
pub use programs::Programs;
