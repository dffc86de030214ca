//! Sends `server/discover` to find out whether a server has sessions, before it gets a request
//! without one.

use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use steadfast_client::transport::{SendError, Transport};
use steadfast_client::{Error, ServerResponse};
use steadfast_engine::IncomingMessage;
use steadfast_wire::{Message, MessageKind, RequestId, raw_json};

use super::era_detection::{ServerEra, discover_request, era_of_error, era_of_result};
use super::forward::{ForwardError, Forwarder, TIMED_OUT, error_in};
use super::upstream_request::UpstreamRequest;
use crate::errors;
use crate::replicas::replica::is_unavailable;

impl Forwarder {
    /// Sends `server/discover` with the credentials of the request that follows. Returns `None` if
    /// the server denies access or fails, which proves nothing: its response to the request itself
    /// decides.
    pub(super) async fn discover(
        &self,
        transport: &Arc<dyn Transport>,
        url: &Uri,
        request: &IncomingMessage,
    ) -> Result<Option<ServerEra>, ForwardError> {
        let own_id = self.next_id();
        let outgoing =
            UpstreamRequest::new(&discover_request(request), own_id, url, &self.headers, &self.credential);
        let answered = async {
            match transport.send(outgoing.request).await {
                Ok(response) => {
                    era_in_response(ServerResponse::read(response, &self.limits).await, own_id).await
                }
                // Whether or not the server got `server/discover`, it has not got the request.
                Err(SendError::Connect(why) | SendError::Broken(why)) => Err(ForwardError::Unreachable(why)),
                Err(SendError::Untrusted(why)) => Err(ForwardError::Untrusted(why)),
            }
        };
        let answered = tokio::time::timeout(self.timeouts.control, answered).await;
        answered.unwrap_or_else(|_| Err(ForwardError::Unreachable(TIMED_OUT.to_owned())))
    }
}

/// Returns the era that a response shows. A server whose response cannot be read does not know
/// `server/discover`.
async fn era_in_response(
    received: Result<ServerResponse, Error>,
    own_id: i64,
) -> Result<Option<ServerEra>, ForwardError> {
    let era = match received {
        Ok(ServerResponse::Complete(body)) => era_in_message(&body, own_id),
        Ok(ServerResponse::Stream(mut stream)) => loop {
            let Ok(event) = stream.next().await else { break None };
            if let Some(era) = era_in_message(&event.data, own_id) {
                stream.drain_in_background();
                break Some(era);
            }
        },
        Ok(ServerResponse::Refusal { status, body, .. }) => match status.as_u16() {
            503 => return Err(ForwardError::Refused(refusal(&body))),
            status if is_unavailable(status) => {
                return Err(ForwardError::Unreachable(format!(
                    "the server is unavailable, with status {status}"
                )));
            }
            401 | 403 | 407 | 408 | 429 | 500.. => return Ok(None),
            _ => era_in_message(&body, own_id),
        },
        Err(Error::BadAnswer(_)) => None,
        Err(error) => return Err(ForwardError::Unreachable(error.to_string())),
    };
    Ok(Some(era.unwrap_or(ServerEra::Sessions)))
}

/// Returns the era that a message shows, if it is the answer.
fn era_in_message(bytes: &Bytes, own_id: i64) -> Option<ServerEra> {
    let message = Message::parse(std::str::from_utf8(bytes).ok()?).ok()?;
    let is_ours = match &message.kind {
        // The server could not read the id.
        MessageKind::Response(None) => true,
        MessageKind::Response(Some(id)) => *id == RequestId::Number(own_id),
        MessageKind::Request(_) | MessageKind::Notification => false,
    };
    is_ours.then(|| era_in_answer(&message))
}

pub(crate) fn era_in_answer(answer: &Message<'_>) -> ServerEra {
    match error_in(answer) {
        Some(error) => era_of_error(error.code),
        None => era_of_result(raw_json::get(answer.text, &["result"]).unwrap_or_default().as_bytes()),
    }
}

fn refusal(body: &Bytes) -> steadfast_wire::rpc::ErrorObject {
    let message = std::str::from_utf8(body).ok().and_then(|text| Message::parse(text).ok());
    message.as_ref().and_then(error_in).unwrap_or_else(|| errors::refused(503))
}
