//! Running a client's call at the server: the attempts, the concurrency limit, and whether a call
//! is idempotent.

pub(crate) mod concurrency;
mod listener;
pub(crate) mod parallel_calls;
mod progress;
pub(crate) mod run;
pub(crate) mod tool_annotations;
