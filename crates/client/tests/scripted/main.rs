//! The client against scripted servers that send exact bytes.

#[path = "../support/mod.rs"]
mod support;

mod calls;
mod eras;
mod framing;
mod input_required;
mod lost_sessions;
mod misrouted;
mod resume;
mod server_requests;
mod sessions;
mod standalone_stream;
mod stateless;
#[cfg(target_os = "linux")]
mod vanishing;
