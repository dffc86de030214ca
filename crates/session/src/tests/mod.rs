//! Tests of the rules: scenarios by subject, and invariants checked on random command sequences.

mod fixture;

mod calls;
mod closing;
mod connections;
mod duplicates;
mod eviction;
mod expiry;
mod leases;
mod limits;
mod reassignment;
mod routing;
mod server_requests;
mod session_eviction;
mod shared_usage;
mod state;
mod stored_answers;
mod streams;

mod random;
