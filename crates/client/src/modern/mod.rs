//! The stateless revision, 2026-07-28: every request says who sends it and what it can do, and nothing is remembered.

mod call;
mod head;
mod inputs;
mod tools;

pub(crate) use call::{call, notify, supported, supported_in};
pub(crate) use head::discover;
pub(crate) use tools::Tools;
