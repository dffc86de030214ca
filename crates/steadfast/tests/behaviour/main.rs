//! How sessions behave over real HTTP, on every store.
#[path = "../support/mod.rs"]
mod support;

mod asks;
mod concurrent_calls;
mod duplicate_ids;
mod endings;
mod expiry;
mod hang_ups;
mod lifecycle;
mod response_modes;
mod restart;
mod restore;
mod resume;
mod slow_readers;
mod standalone;
mod store_faults;
