//! A stdio program presented as an HTTP server in memory.

mod http_response;
pub(crate) mod process_transport;
pub(crate) mod session_id;
mod sse_body;
mod stateless_requests;
pub(crate) mod unavailable;
