//! Which tools are idempotent, according to the annotations that the server gives them.

pub(crate) mod cache;
pub(crate) mod idempotent_tools;
mod read;
