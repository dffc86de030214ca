//! Forwards a request without a session to a server, and its answer to the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use steadfast_client::transport::{SendError, Transport};
use steadfast_client::{Error, EventStream, Limits, ServerResponse, StreamEnd, Timeouts};
use steadfast_engine::{Answer, ChangeFilter, Class, ExchangeHandle, IncomingMessage};
use steadfast_wire::params::META_SUBSCRIPTION_ID;
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::sse::Kind;
use steadfast_wire::{Message, MessageKind, RequestId, raw_json, subscriptions};

use super::error_mapping::{self as errors, Refused};
use super::upstream_request::UpstreamRequest;
use crate::config::{Config, Credential, Server};
use crate::replicas::replica::is_unavailable;

pub(super) const TIMED_OUT: &str = "the server took too long to answer";

/// Why a server has not answered a request.
#[derive(Clone, Debug, PartialEq)]
pub enum ForwardError {
    /// The server cannot be reached, and nothing was sent. The network or the server is to blame.
    Unreachable(String),
    /// Nothing was sent, because the certificate of the server is not trusted. The operator of the
    /// server or of the gateway is to blame. A retry does not help.
    Untrusted(String),
    /// The server refused `server/discover` with status 503. The request was not sent.
    Refused(ErrorObject),
    /// The connection was lost before the server sent anything. The server may have executed the
    /// request.
    Lost(ErrorObject),
    /// The response contains no answer. The server may have executed the request.
    Unanswered(ErrorObject),
    /// The connection was lost while the server answered. The client may have got a part of the
    /// answer.
    Interrupted(ErrorObject),
    /// No other replica can do better: the answer cannot be read, the request timed out, or it was
    /// cancelled.
    Final(Answer),
}

impl From<ForwardError> for Answer {
    fn from(error: ForwardError) -> Self {
        match error {
            ForwardError::Unreachable(why) => Err(crate::errors::unavailable(&why)),
            ForwardError::Untrusted(why) => Err(crate::errors::untrusted(&why)),
            ForwardError::Refused(error)
            | ForwardError::Lost(error)
            | ForwardError::Unanswered(error)
            | ForwardError::Interrupted(error) => Err(error),
            ForwardError::Final(answer) => answer,
        }
    }
}

/// Forwards requests.
pub struct Forwarder {
    /// Sent with every request.
    pub(super) headers: HeaderMap,
    pub(super) credential: Credential,
    pub(super) limits: Limits,
    pub(super) timeouts: Timeouts,
    ids: AtomicI64,
}

impl Forwarder {
    pub fn new(config: &Config) -> Self {
        let headers = match &config.server {
            Server::Http { headers, .. } => headers.clone(),
            Server::Stdio(_) => HeaderMap::new(),
        };
        let credential = config.credential.clone();
        let (limits, timeouts) = (config.limits, config.timeouts);
        Self { headers, credential, limits, timeouts, ids: AtomicI64::new(1) }
    }

    pub(super) fn next_id(&self) -> i64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Forwards a request to the server at this address. `Ok` is the server's answer, which may be
    /// an error. If the exchange is cancelled, closes the connection at once. A subscription then
    /// ends with a result.
    pub async fn forward(
        &self,
        transport: &Arc<dyn Transport>,
        url: &Uri,
        exchange: &ExchangeHandle,
        request: &IncomingMessage,
    ) -> Result<Answer, ForwardError> {
        let own_id = self.next_id();
        let outgoing = UpstreamRequest::new(request, own_id, url, &self.headers, &self.credential);
        let UpstreamRequest { request: outgoing, token } = outgoing;
        let method = request.method.clone();
        let forwards_credentials = matches!(self.credential, Credential::Forwarded);
        let forwarded = ForwardedRequest {
            exchange,
            own_id,
            token,
            method: &method,
            limits: &self.limits,
            forwards_credentials,
        };
        let limit = (!exchange.is_subscription()).then_some(self.timeouts.call);
        let work = async {
            match tokio::time::timeout(self.timeouts.head, transport.send(outgoing)).await {
                Ok(Ok(response)) => forwarded.read(response).await,
                Ok(Err(SendError::Connect(why))) => Err(ForwardError::Unreachable(why)),
                Ok(Err(SendError::Untrusted(why))) => Err(ForwardError::Untrusted(why)),
                Ok(Err(SendError::Broken(why))) => Err(ForwardError::Lost(errors::broken(&method, &why))),
                Err(_) => Err(ForwardError::Lost(errors::broken(&method, TIMED_OUT))),
            }
        };
        tokio::select! {
            biased;
            answer = work => answer,
            () = exchange.cancelled().cancelled() => Err(ForwardError::Final(cancelled(exchange))),
            () = elapsed(limit) => Err(ForwardError::Final(Err(errors::broken(&method, TIMED_OUT)))),
        }
    }
}

/// Omits the headers, which may be secrets.
impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder").field("credential", &self.credential).finish_non_exhaustive()
    }
}

struct ForwardedRequest<'a> {
    exchange: &'a ExchangeHandle,
    own_id: i64,
    /// The JSON text of the client's progress token.
    token: Option<String>,
    method: &'a str,
    limits: &'a Limits,
    /// The server sees the client's own credentials, so the client must learn if they are rejected.
    forwards_credentials: bool,
}

impl ForwardedRequest<'_> {
    async fn read(
        &self,
        response: http::Response<steadfast_client::transport::Body>,
    ) -> Result<Answer, ForwardError> {
        match ServerResponse::read(response, self.limits).await {
            Ok(ServerResponse::Complete(body)) => self.answer_in(&body),
            Ok(ServerResponse::Stream(stream)) => {
                // The server sends a refusal as a status.
                self.exchange.accept_credentials();
                self.read_stream(stream).await
            }
            Ok(ServerResponse::Refusal { status, body, challenge }) => {
                self.refused(status.as_u16(), &body, challenge)
            }
            Err(Error::BadAnswer(why)) => Err(self.bad_answer(&why)),
            Err(error) => Err(self.interrupted(&error.to_string())),
        }
    }

    fn refused(&self, status: u16, body: &[u8], challenge: Option<String>) -> Result<Answer, ForwardError> {
        let message = std::str::from_utf8(body).ok().and_then(|text| Message::parse(text).ok());
        let error = message.as_ref().and_then(error_in);
        let is_ours = message.as_ref().and_then(Message::id) == Some(&RequestId::Number(self.own_id));
        let error = match errors::of_refusal(self.method, Refused { status, error, is_ours }) {
            Ok(result) => return Ok(Ok(result)),
            Err(error) => error,
        };
        let denial = crate::errors::denial(status, challenge, error.clone());
        if let Some(denial) = denial.filter(|_| self.forwards_credentials) {
            self.exchange.deny(denial);
        }
        // A proxy sends these statuses as well when it loses the server after the request was sent.
        if is_unavailable(status) { Err(ForwardError::Lost(error)) } else { Ok(Err(error)) }
    }

    fn answer_in(&self, body: &Bytes) -> Result<Answer, ForwardError> {
        let unanswered = || {
            let why = "the response of the server holds no answer to the request";
            Err(ForwardError::Unanswered(errors::broken(self.method, why)))
        };
        if body.trim_ascii().is_empty() {
            return unanswered();
        }
        match self.classify(body) {
            ServerMessage::Answer(answer) => Ok(answer),
            ServerMessage::Other(_) => unanswered(),
            ServerMessage::Invalid(why) => Err(self.bad_answer(&why)),
        }
    }

    async fn read_stream(&self, mut stream: EventStream) -> Result<Answer, ForwardError> {
        let mut acknowledged = false;
        loop {
            let event = match stream.next().await {
                Ok(event) if event.kind != Kind::Message || event.data.is_empty() => continue,
                Ok(event) => event,
                Err(StreamEnd::Closed(why)) => return Err(self.interrupted(&why.to_string())),
                Err(StreamEnd::OverLimit(error)) => return Err(self.bad_answer(&error.to_string())),
            };
            match self.classify(&event.data) {
                ServerMessage::Answer(answer) => {
                    stream.drain_in_background();
                    return Ok(answer);
                }
                ServerMessage::Other(message) => {
                    self.forward_notification(&message, &mut acknowledged)
                        .map_err(|error| ForwardError::Final(Err(error)))?;
                }
                ServerMessage::Invalid(why) => return Err(self.bad_answer(&why)),
            }
        }
    }

    fn bad_answer(&self, why: &str) -> ForwardError {
        ForwardError::Final(Err(errors::bad_answer(self.method, why)))
    }

    fn interrupted(&self, why: &str) -> ForwardError {
        ForwardError::Interrupted(errors::broken(self.method, why))
    }

    fn classify<'b>(&self, bytes: &'b Bytes) -> ServerMessage<'b> {
        let message = match std::str::from_utf8(bytes).map(Message::parse) {
            Ok(Ok(message)) => message,
            Ok(Err(error)) => return ServerMessage::Invalid(error.to_string()),
            Err(_) => return ServerMessage::Invalid("it is not UTF-8".to_owned()),
        };
        match &message.kind {
            MessageKind::Response(Some(RequestId::Number(id))) if *id == self.own_id => {}
            // The server could not read the id. There is only one request that it can mean.
            MessageKind::Response(None) => {}
            MessageKind::Request(_) => {
                return ServerMessage::Invalid(format!(
                    "it asks for {} in a stateless request",
                    message.method
                ));
            }
            MessageKind::Response(Some(_)) | MessageKind::Notification => {
                return ServerMessage::Other(message);
            }
        }
        let result = raw_json::get(message.text, &["result"]);
        ServerMessage::Answer(match (error_in(&message), result) {
            (Some(error), _) => errors::of_answer(self.method, error),
            (None, Some(result)) => {
                let renamed = self.with_client_subscription(result, &["_meta"]);
                Ok(renamed.unwrap_or_else(|| bytes.slice_ref(result.as_bytes())))
            }
            (None, None) => return ServerMessage::Invalid("its error cannot be read".to_owned()),
        })
    }

    fn forward_notification(
        &self,
        message: &Message<'_>,
        acknowledged: &mut bool,
    ) -> Result<(), ErrorObject> {
        let text = || Bytes::copy_from_slice(message.text.as_bytes());
        let (class, payload) = match &*message.method {
            // Requests without a session may belong to different principals, so none of them gets a
            // foreign answer.
            _ if message.is_response() => {
                tracing::warn!(method = self.method, "ignored an answer to another request");
                return Ok(());
            }
            // The result or the end of the stream tells the client the same.
            "notifications/cancelled" => return Ok(()),
            "notifications/progress" => match self.with_client_token(message.text) {
                Some(payload) => (Class::Droppable, payload),
                None => return Ok(()),
            },
            "notifications/message" => (Class::Droppable, text()),
            _ if self.exchange.is_subscription() => {
                let Some(payload) = self.with_client_subscription(message.text, &["params", "_meta"]) else {
                    tracing::warn!(method = %message.method, "ignored a notification of another subscription");
                    return Ok(());
                };
                (Class::Notification, payload)
            }
            _ => (Class::Notification, text()),
        };
        if self.exchange.is_subscription() && message.method == subscriptions::ACKNOWLEDGED {
            // The filter is empty because the client gets the server's notifications, not those of
            // the gateway.
            if !std::mem::replace(acknowledged, true) {
                self.exchange.acknowledge(ChangeFilter::default(), payload);
            }
            return Ok(());
        }
        match self.exchange.notify(class, payload) {
            Err(_) if self.exchange.is_subscription() => Err(errors::overflow()),
            Err(_) => {
                tracing::warn!(method = %message.method, "dropped a notification: the client does not read its stream");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Replaces the progress token by that of the client. `None` if the progress belongs to another
    /// request.
    fn with_client_token(&self, text: &str) -> Option<Bytes> {
        let part = raw_json::find(text, &["params", "progressToken"])?;
        let token = self.token.as_ref().filter(|_| text[part.clone()] == self.own_id.to_string())?;
        Some(raw_json::replace(text, &[(part, token)]))
    }

    /// Replaces the subscription id by that of the client. `None` if the text names another
    /// subscription.
    fn with_client_subscription(&self, text: &str, meta: &[&str]) -> Option<Bytes> {
        let part = raw_json::find(text, &[meta, &[META_SUBSCRIPTION_ID]].concat())?;
        let is_ours = text[part.clone()] == self.own_id.to_string();
        is_ours.then(|| raw_json::replace(text, &[(part, &self.exchange.id().to_string())]))
    }
}

/// Returns the answer to a request that the client has cancelled. A subscription ends with a
/// result.
pub(super) fn cancelled(exchange: &ExchangeHandle) -> Answer {
    if !exchange.is_subscription() {
        return Err(crate::errors::cancelled(true));
    }
    let id = exchange.id();
    Ok(format!(r#"{{"resultType":"complete","_meta":{{"{META_SUBSCRIPTION_ID}":{id}}}}}"#).into())
}

enum ServerMessage<'a> {
    Answer(Answer),
    /// A message that is not the answer.
    Other(Message<'a>),
    /// A message that is not allowed here.
    Invalid(String),
}

pub(super) fn error_in(message: &Message<'_>) -> Option<ErrorObject> {
    ErrorObject::parse(raw_json::get(message.text, &["error"])?.as_bytes())
}

async fn elapsed(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}
