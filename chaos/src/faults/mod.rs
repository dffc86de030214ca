//! Faults of a run: which faults happen, and how they are caused.

mod nemesis;
mod network_fault;
mod plan;
mod proxy;

pub(crate) use nemesis::Nemesis;
pub(crate) use plan::{Fault, FaultSequence, Link, ProcessCounts};
pub(crate) use proxy::Proxy;
