//! Serialises the notifications and requests that a handler sends.

use bytes::Bytes;
use rmcp::model::{ServerJsonRpcMessage, ServerNotification, ServerRequest};
use steadfast_engine::Class;

/// Returns a notification as JSON, with its class: progress and log messages may be dropped if the
/// stream is over its bound.
pub(crate) fn notification(notification: ServerNotification) -> (Class, Bytes) {
    let class = match &notification {
        ServerNotification::ProgressNotification(_) | ServerNotification::LoggingMessageNotification(_) => {
            Class::Droppable
        }
        _ => Class::Notification,
    };
    (class, to_json(&ServerJsonRpcMessage::notification(notification)))
}

/// Returns a request as JSON, from `"method"` on: the engine adds the id in front.
pub(super) fn request(request: &ServerRequest) -> Bytes {
    to_json(request).slice(1..)
}

fn to_json(message: &impl serde::Serialize) -> Bytes {
    // rmcp's own types always serialise: their maps have string keys.
    serde_json::to_vec(message).unwrap_or_else(|_| b"{}".to_vec()).into()
}
