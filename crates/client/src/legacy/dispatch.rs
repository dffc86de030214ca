//! Dispatches messages from the server: those of the standalone stream, and those that arrive in
//! the response to a request and are not its answer.

use std::sync::Arc;

use bytes::Bytes;
use steadfast_wire::{MessageKind, RequestId, params};

use super::Session;
use crate::call::CallSpec;
use crate::error::Error;
use crate::handler::{self, Event, Misrouting, Notification, ServerRequest};
use crate::peer::{Answer, ServerMessage, ServerResponse};
use crate::shared::Shared;

/// Posts a notification or the answer to a server request. A server that mixes up its responses may
/// put the answer to a call into this response. Other messages in it have no meaning.
pub(crate) async fn post(shared: &Shared, session: &Session, text: Bytes) -> Result<ServerResponse, Error> {
    let (_, incoming) = shared.peer.control(session.headers(), text).await?;
    if let ServerResponse::Complete(body) = &incoming
        && !body.is_empty()
    {
        for message in shared.peer.messages(body, session.revision).unwrap_or_default() {
            if let MessageKind::Response(id) = message.kind {
                deliver_misrouted(shared, id.as_ref(), message.answer);
            }
        }
    }
    Ok(incoming)
}

/// Delivers an answer to its call, although the answer arrived in the response to another request.
fn deliver_misrouted(shared: &Shared, id: Option<&RequestId>, answer: Option<Answer>) {
    let (Some(id), Some(answer)) = (id, answer) else {
        tracing::debug!("the server sent an answer without an id; dropped");
        return;
    };
    if shared.in_flight.deliver(id, answer) {
        shared.handler.on_event(Event::MisroutingSuspected(Misrouting::AnswerInOtherResponse));
    } else {
        tracing::debug!(%id, "the server sent an answer to a call that is not in flight; dropped");
    }
}

/// Dispatches a message: answers to their calls, server requests to the handler, a cancellation to
/// its server request, progress to the call that requested it, other notifications to the call on
/// whose stream they came, or else to the handler. The client answers pings itself. Waits while the
/// queue of server requests is full, or while the receiver of a notification is busy.
pub(super) async fn dispatch(
    shared: &Arc<Shared>,
    session: &Arc<Session>,
    message: ServerMessage,
    spec: Option<&CallSpec>,
) {
    match message.kind {
        MessageKind::Request(id) if message.method == "ping" => {
            shared.server_requests.answer_ping(shared, session, id).await
        }
        MessageKind::Request(id) => {
            let call = spec.map(|spec| spec.id.clone());
            let server_request = ServerRequest { method: message.method, params: message.params, call };
            shared.server_requests.accept(shared, session, id, server_request).await;
        }
        MessageKind::Notification if message.method == "notifications/cancelled" => {
            let params = message.params.as_deref().and_then(|params| std::str::from_utf8(params).ok());
            if let Some(id) = params.and_then(params::cancelled_request) {
                shared.server_requests.cancel(session, &id);
            }
        }
        MessageKind::Notification => dispatch_notification(shared, message, spec).await,
        MessageKind::Response(id) => deliver_misrouted(shared, id.as_ref(), message.answer),
    }
}

async fn dispatch_notification(shared: &Arc<Shared>, message: ServerMessage, spec: Option<&CallSpec>) {
    let token = match message.method.as_str() {
        "notifications/progress" => message.progress_token(),
        _ => None,
    };
    // Progress with a token that no call has is treated like any other notification.
    let other_token = token.filter(|token| spec.is_none_or(|spec| spec.id != *token));
    let observer = other_token.and_then(|token| shared.in_flight.observer(&token));
    let notification = Notification { method: message.method, params: message.params };
    match (observer, spec) {
        (Some(observer), _) => observer.on_progress_from_other_stream(notification),
        (None, Some(spec)) => spec.observer.on_notification(notification).await,
        (None, None) => handler::deliver_notification(&shared.handler, notification).await,
    }
}
