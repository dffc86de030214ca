//! What becomes of a message of the server that answers no call of ours.

use std::sync::Arc;

use steadfast_wire::{MessageKind, params};

use super::Session;
use crate::errand::Job;
use crate::message::Received;
use crate::owner::{self, Ask, Notification};
use crate::shared::Shared;

/// Hands a message to whom it concerns: asks to the dispatcher, progress to the call that wanted it, notifications to the
/// call on whose stream they came, or else to the owner. Waits while they have no room.
pub(super) async fn receive(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    message: Received,
    job: Option<&Job>,
) {
    match message.kind {
        MessageKind::Request(id) if message.method == "ping" => shared.asks.ping(shared, session, id).await,
        MessageKind::Request(id) => {
            let call = job.map(|job| job.id.clone());
            let ask = Ask { method: message.method, params: message.params, call };
            shared.asks.accept(shared, session, id, ask).await;
        }
        MessageKind::Notification if message.method == "notifications/cancelled" => {
            let params = message.params.as_deref().and_then(|params| std::str::from_utf8(params).ok());
            if let Some(id) = params.and_then(params::cancelled_request) {
                shared.asks.cancel(session, &id);
            }
        }
        MessageKind::Notification => notify(shared, message, job).await,
        MessageKind::Response(id) => {
            tracing::warn!(?id, "the server answers on a stream that does not belong to the call: ignored");
        }
    }
}

async fn notify(shared: &Arc<Shared>, message: Received, job: Option<&Job>) {
    let token = match message.method.as_str() {
        "notifications/progress" => message.progress_token(),
        _ => None,
    };
    let elsewhere = token.filter(|token| job.is_none_or(|job| job.id != *token));
    let listener = elsewhere.and_then(|token| shared.progress.listener(&token));
    let notification = Notification { method: message.method, params: message.params };
    match (listener, job) {
        (Some(listener), _) => listener.overhear(notification),
        (None, Some(job)) => job.listener.hear(notification).await,
        (None, None) => owner::tell(&shared.owner, notification).await,
    }
}
