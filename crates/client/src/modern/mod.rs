//! Calls of the stateless revision, 2026-07-28. Every request carries the client's identity and
//! capabilities, and the server keeps no state between requests.

mod call;
mod input_required;
mod request_head;
mod tool_annotations;

pub(crate) use call::{call, notify, supported, supported_in};
pub(crate) use request_head::discover;
pub(crate) use tool_annotations::ToolAnnotations;
