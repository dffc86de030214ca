//! One process of a stdio program: its start, its pipes, its environment and its end.

pub(crate) mod environment;
pub(crate) mod lifecycle;
mod line_reader;
mod log_rate_limit;
mod pipes;
mod process_group;
pub(crate) mod restart_backoff;
