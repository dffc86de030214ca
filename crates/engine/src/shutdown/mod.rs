//! Shutdown of a node: admission control and draining.

mod admission;
mod drain;

pub(crate) use admission::{Admission, InFlightCount, InFlightGuard};
pub(crate) use drain::shutting_down;
