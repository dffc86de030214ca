//! Requests of 2026-07-28 to a server of 2026-07-28: passed on as they are, one by one, and nothing is kept.
//!
//! The id and the progress token are ours on the way there and the client's on the way back; every other byte of the
//! parameters and of the result is as it came. The client's connection is the request's life: when it goes, the
//! connection to the server is closed, and that is how the server learns of it.

mod discover;
mod era;
mod errors;
mod forward;
mod outgoing;
mod serve;

pub(crate) use discover::verdict_of;
pub(crate) use era::{Era, Verdict};
pub use forward::{Forwarder, Missed};
pub(crate) use serve::serve;
