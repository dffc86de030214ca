//! The server's messages as bytes.

use bytes::Bytes;
use rmcp::model::{ServerJsonRpcMessage, ServerNotification, ServerRequest};
use steadfast_engine::Class;

/// A notification, and what it is worth when room gets short.
pub(crate) fn notification(notification: ServerNotification) -> (Class, Bytes) {
    let class = match &notification {
        ServerNotification::ProgressNotification(_) | ServerNotification::LoggingMessageNotification(_) => {
            Class::Chatter
        }
        _ => Class::Notice,
    };
    (class, to_json(&ServerJsonRpcMessage::notification(notification)))
}

/// A request from `"method"` on; the engine puts the id in front.
pub(super) fn request(request: &ServerRequest) -> Bytes {
    to_json(request).slice(1..)
}

fn to_json(message: &impl serde::Serialize) -> Bytes {
    // rmcp's own types always serialise: their maps have string keys.
    serde_json::to_vec(message).unwrap_or_else(|_| b"{}".to_vec()).into()
}
