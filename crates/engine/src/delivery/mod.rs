//! The way of a message: from the backend to the log in the store, and from the log to the
//! connection that reads the stream.

mod append;
mod attach;
mod cursor;
mod message_queue;
mod store_subscriber;
mod tail;

pub use cursor::{Cursor, CursorStatus, Event};
pub use message_queue::MessageQueue;

pub(crate) use store_subscriber::Signals;
pub(crate) use tail::{CredentialCheck, Tail, TailRead};
