//! Streams: append-only logs of server-to-client messages, and the connections that read them.

mod append;
mod connections;
mod eviction;
pub(crate) mod read;
