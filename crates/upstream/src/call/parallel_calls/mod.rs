//! Whether a server answers parallel calls of one session correctly (`concurrency = "auto"`).
//!
//! A server that keeps its session as one blob, which each request loads and writes back, loses the
//! answers of parallel calls (php-sdk). The gateway decides once per replica and server version:
//!
//! 1. The verdict of another node, or of an earlier process, is in a record in the store
//!    (`record.rs`).
//! 2. Otherwise the gateway checks the server in an upstream session of its own (`check.rs`):
//!    before the first parallel calls, or with the first session if other nodes share the store.
//! 3. A wrong answer to a call makes the verdict serial, whatever the check has shown.
//!
//! Until the verdict is known, and if it is serial, an upstream session gets one call at a time,
//! from the node that holds the lease. The first call never waits for the check.

mod check;
mod decide;
mod php_sdk;
mod record;
mod verdict;

pub(crate) use record::LastRead as LastVerdictRead;
pub(crate) use verdict::{KnownVerdicts, ServerTag};
pub use verdict::{SerialReason, Verdict};
