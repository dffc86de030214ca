//! Revisions with sessions: 2025-03-26, 2025-06-18 and 2025-11-25.

mod call;
mod forgotten;
mod receive;
mod session;
mod standalone;

pub(crate) use call::{call, tell_cancelled};
pub(crate) use receive::post;
pub(crate) use session::{Session, Sessions, close, initialize, notify, reopen};
pub(crate) use standalone::hold_standalone;
