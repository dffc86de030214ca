//! Requests of revision 2026-07-28, which have no session, to a server of that revision. The
//! gateway forwards each request on its own and stores nothing.
//!
//! The gateway replaces the request id and the progress token by its own, and back in the answer.
//! All other bytes of the parameters and of the result stay unchanged. When the client closes its
//! connection, the gateway closes its connection to the server, which cancels the request.

mod discover;
mod era_detection;
mod error_mapping;
mod forward;
mod try_replicas;
mod upstream_request;

pub(crate) use discover::era_in_answer;
pub(crate) use era_detection::{EraDetection, ServerEra};
pub use forward::{ForwardError, Forwarder};
pub(crate) use try_replicas::serve;
