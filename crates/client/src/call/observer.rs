//! [`CallObserver`]: what an application implements to observe a call.

use crate::handler::{BoxFuture, Notification};

/// Receives what the server sends about a call before its answer.
pub trait CallObserver: Send + Sync + 'static {
    /// Receives a notification from the call's own stream. The client reads no further from that
    /// stream until the future completes.
    fn on_notification(&self, notification: Notification) -> BoxFuture<'_, ()>;

    /// Receives progress of the call that arrived on another stream. Must not block: the client
    /// continues to read that stream.
    fn on_progress_from_other_stream(&self, notification: Notification);

    /// The server has opened a stream for the answer, so it has accepted the call.
    fn on_stream_opened(&self) {}

    /// The server has closed the call's stream before the answer and expects the client to
    /// reconnect, which the client does by itself.
    fn on_polling_requested(&self) {}
}
