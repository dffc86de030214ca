//! Passing a request on, and its answer back.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Uri};
use steadfast_client::incoming::{End, Incoming as Received, Stream};
use steadfast_client::transport::{SendError, Transport};
use steadfast_client::{Error, Limits, Timeouts};
use steadfast_engine::{Answer, ChangeFilter, Class, ExchangeHandle, Incoming};
use steadfast_wire::params::META_SUBSCRIPTION_ID;
use steadfast_wire::rpc::ErrorObject;
use steadfast_wire::sse::Kind;
use steadfast_wire::{Message, MessageKind, RequestId, listen};

use super::errors::{self, Refused};
use super::outgoing::Outgoing;
use crate::config::{Config, Credential, Server};
use crate::stdio::splice;

/// Nothing of a request was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// Nobody is there. The network is to blame, or the server.
    #[error("{0}")]
    Away(String),
    /// The server has not proven who it is, and its operator is to blame, or ours. It does not help to wait.
    #[error("{0}")]
    Untrusted(String),
}

impl From<NotSent> for ErrorObject {
    fn from(not_sent: NotSent) -> Self {
        match not_sent {
            NotSent::Away(why) => crate::errors::unavailable(&why),
            NotSent::Untrusted(why) => crate::errors::untrusted(&why),
        }
    }
}

/// Passes requests on.
pub struct Forwarder {
    /// Sent with every request.
    headers: HeaderMap,
    credential: Credential,
    limits: Limits,
    timeouts: Timeouts,
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

    /// Has the server at this address answer a request. When the exchange is cancelled, the connection is closed at once; a
    /// subscription then ends in good order.
    pub async fn forward(
        &self,
        transport: &Arc<dyn Transport>,
        url: &Uri,
        exchange: &ExchangeHandle,
        request: &Incoming,
    ) -> Result<Answer, NotSent> {
        let own = self.ids.fetch_add(1, Ordering::Relaxed);
        let outgoing = Outgoing::new(request, own, url, &self.headers, &self.credential);
        let Outgoing { request: outgoing, token } = outgoing;
        let method = request.method.clone();
        let shows_clients = matches!(self.credential, Credential::Forwarded);
        let run = Run { exchange, own, token, method: &method, limits: &self.limits, shows_clients };
        let limit = (!exchange.is_subscription()).then_some(self.timeouts.call);
        let work = async {
            match tokio::time::timeout(self.timeouts.head, transport.send(outgoing)).await {
                Ok(Ok(response)) => Ok(run.read(response).await),
                Ok(Err(SendError::Connect(why))) => Err(NotSent::Away(why)),
                Ok(Err(SendError::Untrusted(why))) => Err(NotSent::Untrusted(why)),
                Ok(Err(SendError::Broken(why))) => Ok(Err(errors::broken(&method, &why))),
                Err(_) => Ok(Err(errors::broken(&method, "the server took too long to answer"))),
            }
        };
        tokio::select! {
            biased;
            answer = work => answer,
            () = exchange.cancelled().cancelled() => Ok(run.cancelled()),
            () = elapsed(limit) => Ok(Err(errors::broken(&method, "the server took too long to answer"))),
        }
    }
}

/// Leaves out the headers, which may be secrets.
impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder").field("credential", &self.credential).finish_non_exhaustive()
    }
}

/// A request on its way.
struct Run<'a> {
    exchange: &'a ExchangeHandle,
    own: i64,
    /// The JSON text of the client's progress token.
    token: Option<String>,
    method: &'a str,
    limits: &'a Limits,
    /// The server sees the client's own credentials, so its word on them is for the client.
    shows_clients: bool,
}

impl Run<'_> {
    async fn read(&self, response: http::Response<steadfast_client::transport::Body>) -> Answer {
        match Received::read(response, self.limits).await {
            Ok(Received::Whole(body)) => self.whole(&body),
            Ok(Received::Stream(stream)) => self.follow(stream).await,
            Ok(Received::Refusal { status, body, challenge }) => {
                Err(self.refused(status.as_u16(), &body, challenge))
            }
            Err(Error::BadAnswer(why)) => Err(errors::bad_answer(self.method, &why)),
            Err(error) => Err(errors::broken(self.method, &error.to_string())),
        }
    }

    fn refused(&self, status: u16, body: &[u8], challenge: Option<String>) -> ErrorObject {
        let message = std::str::from_utf8(body).ok().and_then(|text| Message::parse(text).ok());
        let error = message.as_ref().and_then(error_in);
        let is_ours = message.as_ref().and_then(Message::id) == Some(&RequestId::Number(self.own));
        let error = errors::of_refusal(self.method, Refused { status, body, error, is_ours });
        let denial = crate::errors::denial(status, challenge, error.clone());
        if let Some(denial) = denial.filter(|_| self.shows_clients) {
            self.exchange.deny(denial);
        }
        error
    }

    fn whole(&self, body: &Bytes) -> Answer {
        match self.take(body) {
            Taken::Answer(answer) => answer,
            Taken::Other(_) => Err(errors::bad_answer(self.method, "it is no answer to the request")),
            Taken::Bad(why) => Err(errors::bad_answer(self.method, &why)),
        }
    }

    /// Reads a stream to the answer.
    async fn follow(&self, mut stream: Stream) -> Answer {
        let mut acknowledged = false;
        loop {
            let event = match stream.next().await {
                Ok(event) if event.kind != Kind::Message || event.data.is_empty() => continue,
                Ok(event) => event,
                Err(End::Over(why)) => return Err(errors::broken(self.method, &why.to_string())),
                Err(End::TooMuch(error)) => return Err(errors::bad_answer(self.method, &error.to_string())),
            };
            match self.take(&event.data) {
                Taken::Answer(answer) => {
                    stream.let_go();
                    return answer;
                }
                Taken::Other(message) => self.pass_on(&message, &mut acknowledged)?,
                Taken::Bad(why) => return Err(errors::bad_answer(self.method, &why)),
            }
        }
    }

    fn take<'b>(&self, bytes: &'b Bytes) -> Taken<'b> {
        let message = match std::str::from_utf8(bytes).map(Message::parse) {
            Ok(Ok(message)) => message,
            Ok(Err(error)) => return Taken::Bad(error.to_string()),
            Err(_) => return Taken::Bad("it is not UTF-8".to_owned()),
        };
        match &message.kind {
            MessageKind::Response(Some(RequestId::Number(id))) if *id == self.own => {}
            // The server could not read the id; there is but one request that it can mean.
            MessageKind::Response(None) => {}
            MessageKind::Request(_) => {
                return Taken::Bad(format!("it asks for {} in a stateless request", message.method));
            }
            MessageKind::Response(Some(_)) | MessageKind::Notification => return Taken::Other(message),
        }
        let result = splice::find(message.text, &["result"]).map(|part| &message.text[part]);
        Taken::Answer(match (error_in(&message), result) {
            (Some(error), _) => Err(errors::of_answer(self.method, error)),
            (None, Some(result)) => {
                let renamed = self.with_client_subscription(result, &["_meta"]);
                Ok(renamed.unwrap_or_else(|| bytes.slice_ref(result.as_bytes())))
            }
            (None, None) => return Taken::Bad("its error cannot be read".to_owned()),
        })
    }

    /// Hands a notification to the client.
    fn pass_on(&self, message: &Message<'_>, acknowledged: &mut bool) -> Result<(), ErrorObject> {
        let text = || Bytes::copy_from_slice(message.text.as_bytes());
        let (class, payload) = match &*message.method {
            _ if message.is_response() => {
                tracing::warn!(method = self.method, "an answer to another request is ignored");
                return Ok(());
            }
            // The result or the end of the stream says the same.
            "notifications/cancelled" => return Ok(()),
            "notifications/progress" => match self.with_client_token(message.text) {
                Some(payload) => (Class::Chatter, payload),
                None => return Ok(()),
            },
            "notifications/message" => (Class::Chatter, text()),
            _ if self.exchange.is_subscription() => {
                let Some(payload) = self.with_client_subscription(message.text, &["params", "_meta"]) else {
                    tracing::warn!(method = %message.method, "a notification of another subscription is ignored");
                    return Ok(());
                };
                (Class::Notice, payload)
            }
            _ => (Class::Notice, text()),
        };
        if self.exchange.is_subscription() && message.method == listen::ACKNOWLEDGED {
            // What changes here is none of its business: it hears what the server sends.
            if !std::mem::replace(acknowledged, true) {
                self.exchange.acknowledge(ChangeFilter::default(), payload);
            }
            return Ok(());
        }
        match self.exchange.notify(class, payload) {
            Err(_) if self.exchange.is_subscription() => Err(errors::overflow()),
            Err(_) => {
                tracing::warn!(method = %message.method, "a notification is dropped: its client does not read");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Progress in the client's terms. `None` if it is not about this request.
    fn with_client_token(&self, text: &str) -> Option<Bytes> {
        let part = splice::find(text, &["params", "progressToken"])?;
        let token = self.token.as_ref().filter(|_| text[part.clone()] == self.own.to_string())?;
        Some(splice::replace(text, &[(part, token)]))
    }

    /// What names our subscription, with the id that the client gave it. `None` if it does not.
    fn with_client_subscription(&self, text: &str, meta: &[&str]) -> Option<Bytes> {
        let part = splice::find(text, &[meta, &[META_SUBSCRIPTION_ID]].concat())?;
        let is_ours = text[part.clone()] == self.own.to_string();
        is_ours.then(|| splice::replace(text, &[(part, &self.exchange.id().to_string())]))
    }

    fn cancelled(&self) -> Answer {
        if !self.exchange.is_subscription() {
            return Err(crate::errors::cancelled(true));
        }
        let id = self.exchange.id();
        Ok(format!(r#"{{"resultType":"complete","_meta":{{"{META_SUBSCRIPTION_ID}":{id}}}}}"#).into())
    }
}

/// What a message of the server is.
enum Taken<'a> {
    Answer(Answer),
    /// Not the answer.
    Other(Message<'a>),
    /// Nothing that may come here.
    Bad(String),
}

fn error_in(message: &Message<'_>) -> Option<ErrorObject> {
    let part = splice::find(message.text, &["error"])?;
    ErrorObject::parse(message.text[part].as_bytes())
}

async fn elapsed(limit: Option<Duration>) {
    match limit {
        Some(limit) => tokio::time::sleep(limit).await,
        None => std::future::pending().await,
    }
}
