//! Asking a server whether it has sessions, before it gets a request without one.

use std::sync::Arc;

use bytes::Bytes;
use http::Uri;
use steadfast_client::Error;
use steadfast_client::incoming::Incoming as Received;
use steadfast_client::transport::{SendError, Transport};
use steadfast_engine::Incoming;
use steadfast_wire::{Message, MessageKind, RequestId};

use super::era::{self, Verdict};
use super::forward::{Forwarder, Missed, TOO_LONG, error_in};
use super::outgoing::Outgoing;
use crate::errors;
use crate::replicas::is_away;
use crate::stdio::splice;

impl Forwarder {
    /// Asks in the name of whoever sent the request that comes next. `None`: the server lets nobody in, or fails, which shows
    /// nothing; what it says to the request itself counts.
    pub(super) async fn discover(
        &self,
        transport: &Arc<dyn Transport>,
        url: &Uri,
        request: &Incoming,
    ) -> Result<Option<Verdict>, Missed> {
        let own = self.next_id();
        let outgoing = Outgoing::new(&era::question(request), own, url, &self.headers, &self.credential);
        let answered = async {
            match transport.send(outgoing.request).await {
                Ok(response) => judge(Received::read(response, &self.limits).await, own).await,
                // Whatever became of the question, nothing of the request was sent.
                Err(SendError::Connect(why) | SendError::Broken(why)) => Err(Missed::Away(why)),
                Err(SendError::Untrusted(why)) => Err(Missed::Untrusted(why)),
            }
        };
        let answered = tokio::time::timeout(self.timeouts.control, answered).await;
        answered.unwrap_or_else(|_| Err(Missed::Away(TOO_LONG.to_owned())))
    }
}

/// What an answer shows. One that cannot be read is no sign of a server that knows the question.
async fn judge(received: Result<Received, Error>, own: i64) -> Result<Option<Verdict>, Missed> {
    let verdict = match received {
        Ok(Received::Whole(body)) => verdict_in(&body, own),
        Ok(Received::Stream(mut stream)) => loop {
            let Ok(event) = stream.next().await else { break None };
            if let Some(verdict) = verdict_in(&event.data, own) {
                stream.let_go();
                break Some(verdict);
            }
        },
        Ok(Received::Refusal { status, body, .. }) => match status.as_u16() {
            503 => return Err(Missed::Refused(refusal(&body))),
            status if is_away(status) => {
                return Err(Missed::Away(format!("it is away, with status {status}")));
            }
            401 | 403 | 407 | 408 | 429 | 500.. => return Ok(None),
            _ => verdict_in(&body, own),
        },
        Err(Error::BadAnswer(_)) => None,
        Err(error) => return Err(Missed::Away(error.to_string())),
    };
    Ok(Some(verdict.unwrap_or(Verdict::Sessions)))
}

/// What a message shows, if it is the answer.
fn verdict_in(bytes: &Bytes, own: i64) -> Option<Verdict> {
    let message = Message::parse(std::str::from_utf8(bytes).ok()?).ok()?;
    let is_ours = match &message.kind {
        // The server could not read the id.
        MessageKind::Response(None) => true,
        MessageKind::Response(Some(id)) => *id == RequestId::Number(own),
        MessageKind::Request(_) | MessageKind::Notification => false,
    };
    is_ours.then(|| verdict_of(&message))
}

/// What an answer to `server/discover` shows.
pub(crate) fn verdict_of(answer: &Message<'_>) -> Verdict {
    let result = || splice::find(answer.text, &["result"]).map(|part| answer.text[part].as_bytes());
    match error_in(answer) {
        Some(error) => era::of_code(error.code),
        None => era::of_result(result().unwrap_or_default()),
    }
}

/// Why nobody is served now, in the words of whoever said so.
fn refusal(body: &Bytes) -> steadfast_wire::rpc::ErrorObject {
    let message = std::str::from_utf8(body).ok().and_then(|text| Message::parse(text).ok());
    message.as_ref().and_then(error_in).unwrap_or_else(|| errors::refused(503))
}
