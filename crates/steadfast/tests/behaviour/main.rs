//! How sessions behave over real HTTP, on every store.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../support/mod.rs"]
mod support;

mod asks;
mod both_eras;
mod client_traces;
mod concurrent_calls;
mod draining;
mod duplicate_ids;
mod endings;
mod eviction;
mod expiry;
mod handlers;
mod handover;
mod hang_ups;
mod idempotency_keys;
mod lifecycle;
mod lost_track;
mod nodes;
mod notifications;
mod questions;
mod races;
mod response_modes;
mod restart;
mod restore;
mod resume;
mod revisions;
mod sent_away;
mod slow_readers;
mod standalone;
mod stateless;
mod stateless_endings;
mod stateless_input;
mod stateless_listen;
mod stateless_resume;
mod store_faults;
mod sweeping;
mod timers;
mod tokens;
