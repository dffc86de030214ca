//! Periodic work: deadlines and expiry, the comparison of memory with the store, and hints between
//! nodes.

mod abandoned_calls;
mod ended_sessions;
mod pending_hints;
mod reconcile;
mod renotify;
mod round_robin;
mod single_flight;
mod store_poll;
mod sweeper;

pub(crate) use abandoned_calls::ReaderChecks;
pub(crate) use ended_sessions::EndedSessionCheck;
pub(crate) use pending_hints::PendingHints;
pub(crate) use round_robin::RoundRobin;
pub(crate) use single_flight::SingleFlight;
