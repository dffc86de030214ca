//! Server requests: requests to the client, such as sampling and elicitation, and the wait for
//! their answers.
//!
//! A session has a bounded number of server requests in flight. The others wait in a queue of this
//! node, in the order of arrival. The store enforces the bound between nodes. A queued request is
//! not in the store: it costs nothing there and is lost with this process.

mod answer;
mod queue;
mod request_handle;
mod send;
#[cfg(test)]
mod tests;

pub use request_handle::ServerRequestHandle;

pub(crate) use queue::ServerRequestQueue;
