//! What becomes of a message of the server that does not answer the request in whose response it came.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_wire::{MessageKind, RequestId, params};

use super::Session;
use crate::errand::Job;
use crate::error::Error;
use crate::incoming::Incoming;
use crate::message::{Answer, Received};
use crate::owner::{self, Ask, Event, Notification, RaceSign};
use crate::shared::Shared;

/// Posts a message that expects no answer. A server that mixes up its responses may send the answer to a call in this one.
pub(crate) async fn post(shared: &Shared, session: &Session, text: Bytes) -> Result<Incoming, Error> {
    let (_, incoming) = shared.link.control(session.headers(), text).await?;
    if let Incoming::Whole(body) = &incoming
        && !body.is_empty()
    {
        for message in shared.link.messages(body, session.revision).unwrap_or_default() {
            if let MessageKind::Response(id) = message.kind {
                deliver(shared, id.as_ref(), message.answer);
            }
        }
    }
    Ok(incoming)
}

/// Hands an answer to the call in flight that it belongs to. It came in the response to another request.
fn deliver(shared: &Shared, id: Option<&RequestId>, answer: Option<Answer>) {
    let (Some(id), Some(answer)) = (id, answer) else {
        tracing::debug!("the server sent an answer without an id; dropped");
        return;
    };
    if shared.in_flight.deliver(id, answer) {
        shared.owner.event(Event::RaceSuspected(RaceSign::AnswerToAnotherCall));
    } else {
        tracing::debug!(%id, "the server sent an answer to a call that is not in flight; dropped");
    }
}

/// Hands a message to whom it concerns: answers to their calls, asks to the dispatcher, progress to the call that wanted it, notifications to the
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
        MessageKind::Response(id) => deliver(shared, id.as_ref(), message.answer),
    }
}

async fn notify(shared: &Arc<Shared>, message: Received, job: Option<&Job>) {
    let token = match message.method.as_str() {
        "notifications/progress" => message.progress_token(),
        _ => None,
    };
    let elsewhere = token.filter(|token| job.is_none_or(|job| job.id != *token));
    let listener = elsewhere.and_then(|token| shared.in_flight.listener(&token));
    let notification = Notification { method: message.method, params: message.params };
    match (listener, job) {
        (Some(listener), _) => listener.overhear(notification),
        (None, Some(job)) => job.listener.hear(notification).await,
        (None, None) => owner::tell(&shared.owner, notification).await,
    }
}
