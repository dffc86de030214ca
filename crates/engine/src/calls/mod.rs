//! Calls of clients, from the begin command to the answer, and notifications of clients.

mod begin;
mod call_handle;
mod finish;
mod forwarded;
mod forwarded_notifications;
mod heartbeats;
mod keyed;
mod notification_queue;
mod run;
mod stored_request;

pub use begin::{BegunCalls, ResponseFormat};
pub use call_handle::{CallHandle, Retry};
pub use heartbeats::Heartbeat;
pub use run::{BegunCall, CallDriver};

pub(crate) use finish::not_started;
pub(crate) use heartbeats::Heartbeats;
pub(crate) use keyed::KeyedRequest;
pub(crate) use notification_queue::NotificationQueue;
