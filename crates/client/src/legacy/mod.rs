//! Revisions with sessions: 2025-03-26, 2025-06-18 and 2025-11-25.

mod call;
mod dispatch;
mod session;
mod session_probe;
mod standalone_stream;

pub(crate) use call::{call, send_cancelled};
pub(crate) use dispatch::post;
pub(crate) use session::{Session, Sessions, close, initialize, notify, resume_session};
pub(crate) use standalone_stream::run_standalone_stream;
